"""The part of this process in what a server of several processes says about itself, and the sum over all of them."""

from __future__ import annotations

from penstock.cluster.peers import MetricsReport, NodeReport, RecentCommits
from penstock.errors import NotFound
from penstock.transports.http.connections import connections_of
from penstock.transports.http.edge import Edge
from penstock.transports.metrics import ProcessMetrics
from penstock.wire.logs import LogsReply, LogsRequest
from penstock.wire.queue_table import ConnectionsReply


class ThisProcess:
    """Answers the `ProcessCalls` of the others."""

    def __init__(self, edge: Edge):
        self._edge = edge

    def metrics(self) -> MetricsReport:
        from penstock.transports.metrics_report import report  # loaded with the first scrape

        return report(self._edge.metrics, self._edge.broker)

    def node(self) -> NodeReport:
        assert self._edge.node is not None, "it is set before the links start"
        return self._edge.node()

    def commits(self) -> RecentCommits:
        return self._edge.metrics.recent_commits(self._edge.clock.monotonic())

    def connections(self, limit: int) -> ConnectionsReply:
        return connections_of(self._edge, limit)

    def set_log_levels(self, asked: LogsRequest, actor: str) -> LogsReply:
        if self._edge.log_levels is None:
            raise NotFound("this process configures its own logging")
        return self._edge.log_levels.change(asked, actor)


async def metrics_of_all(edge: Edge) -> ProcessMetrics | None:
    """None: there is one process."""
    if edge.peers is None:
        return None
    reports = {edge.peers.number: ThisProcess(edge).metrics(), **await edge.peers.ask("metrics")}
    return ProcessMetrics(edge.peers.count, dict(sorted(reports.items())))


async def commits_of_all(edge: Edge) -> list[RecentCommits]:
    here = ThisProcess(edge).commits()
    return [here] if edge.peers is None else [here, *(await edge.peers.ask("commits")).values()]
