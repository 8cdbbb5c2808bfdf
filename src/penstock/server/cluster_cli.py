"""`penstock cluster`: the nodes of a server, and the owners of its shards."""

from __future__ import annotations

from typing import Any

from penstock.server.lazy_commands import command_group
from penstock.server.remote import Remote
from penstock.server.tables import Listing
from penstock.server.terminal import remote_command

NODES = Listing("nodes", ("id", "name", "state", "http", "grpc", "shards"))

cluster = command_group("The nodes of a server, and the shards that they serve.", alone="status")


@cluster.command()
@remote_command(NODES, is_refusal=lambda answer: any(node["state"] == "unreachable" for node in answer["nodes"]))
def status(remote: Remote) -> Any:
    """Show the nodes. With --processes each process is one. JSON also has the term and the state of each shard.

    Exits with 1 if a node does not answer.

    Example: penstock cluster status
    """
    return remote.ask("cluster")
