"""Metrics under the names that users of other systems know, for dashboards that exist: `/metrics?aliases=true`.

The names keep their units and labels, which do not follow the conventions of Prometheus;
docs/operating/monitoring.md has the table. A value that this server does not measure per topic has no topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from penstock.transports.exposition import QueueLines
    from penstock.transports.http.edge import StoredBytes
    from penstock.transports.metrics import Histogram, Metrics

_QUANTILES = (0.5, 0.95, 0.99)


def alias_families(metrics: Metrics, stored: StoredBytes | None, written_bytes: int) -> Iterator[Metric]:
    yield CounterMetricFamily("wal_bytes_written", "Alias of penstock_journal_written_bytes_total.", written_bytes)
    for name, histogram, scale in (
        ("enqueue_latency_ms", metrics.publish_seconds, 1000),
        ("pop_latency_ms", metrics.lease_seconds, 1000),
        ("raft_apply_latency_ms", metrics.commit_seconds, 1000),
        ("proxy_message_latency_seconds", metrics.delivery_seconds, 1),
    ):
        yield _quantiles(name, histogram, scale)
    connections = GaugeMetricFamily("proxy_connections_total", "Alias of penstock_connections.", labels=["type"])
    connections.add_metric(["http"], metrics.count_connections())
    connections.add_metric(["websocket"], metrics.count_websockets())
    connections.add_metric(["grpc"], metrics.count_grpc_connections())
    yield connections
    errors = CounterMetricFamily("proxy_errors", "Refused and failed requests.", labels=["type", "code"])
    for (operation, status), count in sorted(metrics.requests.items()):
        if status >= 400:
            errors.add_metric([operation, str(status)], count)
    yield errors
    if stored is not None:
        snapshot = GaugeMetricFamily("snapshot_bytes", "Alias of penstock_snapshot_bytes.", labels=["partition"])
        snapshot.add_metric(["0"], stored.snapshots)
        yield snapshot


def _quantiles(name: str, histogram: Histogram, scale: float) -> Metric:
    family = GaugeMetricFamily(name, "Estimated since the start of the server.", labels=["quantile"])
    for share in _QUANTILES:
        value = histogram.quantile(share)
        if value is not None:
            family.add_metric([str(share)], value * scale)
    return family


def alias_lines(lines: QueueLines, queue: str, stats: Mapping[str, Any]) -> None:
    """The lines of one queue."""
    topic, totals = f'{{topic="{queue}"}}', stats["totals"]
    for name, ours, value in (
        ("inflight", 'penstock_queue_messages{state="inflight"}', stats["leased"]),
        ("proxy_queue_depth", "the unfinished messages of a queue", stats["depth"]),
        ("retries_total", "penstock_messages_retried_total", totals["retried"]),
        ("dlq_total", "penstock_messages_dead_lettered_total", totals["dead_lettered"]),
        ("lease_timeouts_total", 'penstock_messages_retried_total{reason="lease_expired"}', totals["lease_expired"]),
        ("proxy_messages_received_total", "penstock_messages_published_total", totals["published"]),
    ):
        lines.add_alias(name, f"Alias of {ours}.", topic, value)
    lines.add_alias(
        "proxy_messages_delivered_total", "Alias of penstock_messages_delivered_total.",
        f'{{topic="{queue}",type="any"}}', totals["delivered"],
    )  # fmt: skip
    for partition in stats["partitions"]:
        labels = f'{{topic="{queue}",partition="{partition["partition"]}"}}'
        lines.add_alias("backlog", "Unfinished messages of a partition.", labels, partition["depth"])
