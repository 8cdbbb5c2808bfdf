"""`/v1/cluster` and `/v1/cluster/map`: the nodes of this server, and the owner of each shard."""

from __future__ import annotations

from zlib import crc32

import msgspec

from penstock.cluster.peers import NodeReport
from penstock.errors import NotFound
from penstock.placement import HASH_NAME
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.cluster import ClusterMapReply, ClusterNode, ClusterReply, ClusterShard, MapNode
from penstock.wire.messages import NoQuery
from penstock.wire.parse import parse_query

NAME = "default"
"""Of the cluster, until it can be chosen."""


async def cluster(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    here = _here(edge)
    reports = {edge.number: here}
    if edge.peers is not None:
        reports.update(await edge.peers.ask("node"))
    nodes = [_node(number, reports.get(number), here, edge.processes) for number in range(edge.processes)]
    served = {shard.number: shard for report in reports.values() for shard in report.shards}
    shards = [
        ClusterShard(number, str(number % edge.processes), None, "unreachable")
        if (shard := served.get(number)) is None
        else ClusterShard(number, str(number % edge.processes), shard.term, "open" if shard.is_open else "suspended")
        for number in range(here.shards_of_store)
    ]
    return json_answer(ClusterReply(NAME, here.engine, here.durability, nodes, shards))


def cluster_map(edge: Edge, request: Request) -> Answer:
    """All processes listen on one address, so nothing has to be asked."""
    parse_query(NoQuery, request.query)
    here = _here(edge)
    addresses = [each for each in (here.http, here.grpc) if each]
    nodes = [MapNode(str(number), addresses) for number in range(edge.processes)]
    owners = [str(shard % edge.processes) for shard in range(here.shards_of_store)]
    version = f"{crc32(msgspec.json.encode((nodes, owners))):08x}"
    return json_answer(ClusterMapReply(version, here.shards_of_store, HASH_NAME, nodes, owners))


def _here(edge: Edge) -> NodeReport:
    if edge.node is None:
        raise NotFound("this server is part of another program and has no nodes")
    return edge.node()


def _node(number: int, report: NodeReport | None, here: NodeReport, processes: int) -> ClusterNode:
    shards = list(range(number, here.shards_of_store, processes))
    name = f"process {number}"
    if report is None:
        return ClusterNode(str(number), name, here.http, here.grpc, "unreachable", shards)
    return ClusterNode(
        str(number), name, report.http, report.grpc, "draining" if report.is_draining else "up", shards
    )  # fmt: skip
