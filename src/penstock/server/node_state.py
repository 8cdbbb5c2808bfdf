"""The state of this process as a node: its addresses, and the shards that it serves."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster.peers import NodeReport, ShardReport
from penstock.runtime.host import ShardHost
from penstock.transports.http.edge import Edge


class NodeState:
    def __init__(self, hosts: Sequence[ShardHost], shards: int, engine: str, edge: Edge):
        self._hosts = hosts
        self._shards = shards
        self._engine = engine
        self._edge = edge
        self.http = ""
        """The addresses are set when requests are accepted."""
        self.grpc: str | None = None

    def report(self) -> NodeReport:
        shards = [
            ShardReport(
                host.number, host.journal.term, host.loop.suspended is None and host.loop.failed is None
            )
            for host in self._hosts
        ]  # fmt: skip
        durability = self._hosts[0].journal.traits.durability
        return NodeReport(
            self._shards, self._engine, durability, self.http, self.grpc, self._edge.draining, shards
        )  # fmt: skip
