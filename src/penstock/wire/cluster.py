"""The nodes of a server and the owners of its shards. With `--processes` each process is a node."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ClusterNode(msgspec.Struct):
    id: str
    name: str
    http: Annotated[str, Meta(description="The URL that it serves; empty while it is not known.")]
    grpc: str | None
    state: Literal["up", "draining", "unreachable"]
    shards: list[int]


class ClusterShard(msgspec.Struct):
    number: int
    owner: Annotated[str, Meta(description="The id of a node.")]
    term: Annotated[
        int | None, Meta(description="How often the shard had a new owner or a new start; null if it is unreachable.")
    ]
    state: Annotated[
        Literal["open", "suspended", "unreachable"],
        Meta(description="`suspended`: it takes no writes, because its store is missing, full or failed."),
    ]


class ClusterReply(msgspec.Struct):
    cluster: str
    engine: str
    durability: Annotated[
        Literal["memory", "disk", "replicated"],
        Meta(description="The loss that a durable message survives: none, that of power, or that of a machine."),
    ]
    nodes: list[ClusterNode]
    shards: list[ClusterShard]


class MapNode(msgspec.Struct):
    id: str
    addrs: Annotated[list[str], Meta(description="URLs.")]


class ClusterMapReply(msgspec.Struct):
    """For clients that send a request to the owner of its queue. Any node answers any request."""

    version: Annotated[str, Meta(description="Another one, if anything below is different.")]
    shards: int
    hash: Annotated[str, Meta(description="The function that gives the shard of a queue by its path.")]
    nodes: list[MapNode]
    owners: Annotated[list[str], Meta(description="The id of a node, by the number of a shard.")]
