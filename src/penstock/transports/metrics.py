"""Prometheus metrics: counters of the transports and the state of the queues.

The broker counts outcomes of messages, from its records. The transports count requests and durations: plain additions
on the hot path, once per run and never per message. Metric families and labels are built at scrape time, queue by
queue, and other requests run in between. Labels are queue and group names, never content of messages. Beyond
`limits.METRIC_QUEUES_MAX` queues the busiest queues have their own lines and the other queues share `_other`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from penstock import limits
from penstock._version import __version__
from penstock.broker.types import DeliveredRun, PublishedRun
from penstock.errors import QueueNotFound
from penstock.ids import QueuePath

if TYPE_CHECKING:
    from penstock.broker.service import Broker

OTHER = "_other"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


class Histogram:
    """Counts per bucket. `observe` takes a weight, because a run of messages shares its latency."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        self._counts[bisect_left(_SECONDS, seconds)] += count
        self._sum += seconds * count

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        buckets, total = [], 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """Counters since the start of this process, and callbacks that other parts of the server set."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._traffic: Counter[str] = Counter()
        """Messages published and delivered per queue, to find the busiest queues."""
        self._duplicates = 0
        self.publish_seconds = Histogram()
        self.lease_seconds = Histogram()
        self._delivery_seconds = Histogram()
        self.commit_seconds = Histogram()
        self.count_connections: Callable[[], int] = lambda: 0
        """Open HTTP connections, called at every scrape. The HTTP server sets it."""
        self.webhook_attempts: Callable[[], Mapping[str, int]] = dict
        """Webhook attempts by outcome. The webhook deliverer sets it."""
        self.count_websockets: Callable[[], int] = lambda: 0
        self.collectors: list[Callable[[], Iterable[Metric]]] = []
        """Metric families of other transports."""
        self.count_grpc_connections: Callable[[], int] = lambda: 0

    # -- counting ---------------------------------------------------------------------------------------------

    def answered(self, operation: str, status: int) -> None:
        self._requests[operation, status] += 1

    def called(self, operation: str, status: str) -> None:
        """Count a gRPC call that has ended; a stream counts once."""
        self._calls[operation, status] += 1

    def published(self, runs: Sequence[PublishedRun]) -> None:
        for run in runs:
            self._traffic[run.queue] += run.count
            if run.duplicate:
                self._duplicates += run.count

    def delivered(self, runs: Sequence[DeliveredRun], now_ms: int) -> None:
        # A lease that skips messages yields many short runs with one publish time; they are observed together.
        counts: dict[tuple[str, int, bool], int] = {}
        for run in runs:
            alike = run.queue, run.published_at_ms, run.attempt == 1
            counts[alike] = counts.get(alike, 0) + run.count
        for (queue, published_at_ms, is_first), count in counts.items():
            self._traffic[queue] += count
            if is_first:
                self._delivery_seconds.observe(max(0, now_ms - published_at_ms) / 1000, count)

    # -- showing ----------------------------------------------------------------------------------------------

    async def exposition(self, broker: Broker) -> tuple[bytes, bytes]:
        """The body of a scrape and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self, broker))
        ProcessCollector(registry=registry)
        own = exposition.generate_latest(registry)
        return own + await _queue_lines(broker, self._shown_queues(broker)), exposition.CONTENT_TYPE_LATEST.encode()

    def families(self, broker: Broker) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_build", "Version of the server.", value={"version": __version__})
        yield GaugeMetricFamily("penstock_ready", "1 if the server takes requests.", value=int(broker.ready))
        requests = CounterMetricFamily(
            "penstock_http_requests", "HTTP replies, by operation and status.", labels=["operation", "status"]
        )
        for (operation, status), count in sorted(self._requests.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        calls = CounterMetricFamily(
            "penstock_grpc_calls",
            "gRPC calls that have ended, by operation and status.",
            labels=["operation", "status"],
        )
        for (operation, code), count in sorted(self._calls.items()):
            calls.add_metric([operation, code], count)
        yield calls
        yield CounterMetricFamily(
            "penstock_messages_duplicate", "Published messages that were duplicates and not stored.", self._duplicates
        )
        yield CounterMetricFamily(
            "penstock_messages_damaged",
            "Messages that became dead letters because they cannot be read.",
            broker.damage[0],
        )
        yield CounterMetricFamily(
            "penstock_read_errors", "Reads of stored messages that the disk refused.", broker.damage[1]
        )
        yield self.publish_seconds.family("penstock_publish_duration_seconds", "From request to durable reply.")
        yield self.lease_seconds.family(
            "penstock_lease_duration_seconds", "From lease request to reply, waiting for messages included."
        )
        yield self._delivery_seconds.family(
            "penstock_delivery_latency_seconds", "From publish to first delivery, delays included."
        )
        yield self.commit_seconds.family(
            "penstock_commit_duration_seconds", "Time to write one group commit to the journal and sync it."
        )
        connections = GaugeMetricFamily("penstock_connections", "Open connections.", labels=["transport"])
        connections.add_metric(["http"], self.count_connections())
        connections.add_metric(["websocket"], self.count_websockets())
        connections.add_metric(["grpc"], self.count_grpc_connections())
        yield connections
        webhooks = CounterMetricFamily(
            "penstock_webhook_attempts",
            "Requests to the endpoints of webhooks, by outcome.",
            labels=["outcome"],
        )
        for outcome, count in sorted(self.webhook_attempts().items()):
            webhooks.add_metric([outcome], count)
        yield webhooks
        for families in self.collectors:
            yield from families()

    def _shown_queues(self, broker: Broker) -> list[str]:
        """The queues that have lines of their own: all, or the busiest if there are too many."""
        names, most = broker.queues.paths(), limits.METRIC_QUEUES_MAX
        if len(names) <= most:
            return names
        busiest = [name for name, _ in self._traffic.most_common(most)]
        return list(dict.fromkeys([*busiest, *names[:most]]))[:most]


class _Scrape:
    """The collector of one scrape."""

    def __init__(self, metrics: Metrics, broker: Broker):
        self._metrics = metrics
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families(self._broker)


_MESSAGES = {
    "published": "Messages stored.",
    "delivered": "Messages delivered under a lease.",
    "redelivered": "Messages delivered again.",
    "acked": "Messages acknowledged.",
    "dead_lettered": "Messages that became dead letters.",
    "redriven": "Dead letters made ready again.",
    "expired": "Messages whose time to live ended.",
    "cancelled": "Messages cancelled before delivery.",
}
_GROUPS = {"busy_workers": "busy_workers", "finished": "finished_total", "service_s": "service_seconds_total"}
_STATES = {"ready": "ready", "inflight": "leased", "scheduled": "scheduled", "dead": "dead"}
_HELD = {"held_bytes": "held_bytes", "holds_lost": "holds_lost"}
_QUEUE_FAMILIES = {
    **{f"messages_{name}_total": text for name, text in _MESSAGES.items()},
    "messages_retried_total": "Messages that will be delivered again, by reason: nack, lease expired, session expired.",
    "queue_messages": "Messages by state.",
    "oldest_ready_message_age_seconds": "Age of the oldest unfinished message.",
    "consumer_lag_messages": "Messages that a group has not finished.",
    "dead_letter_alarm": "1 while the dead letters of a queue are too many or grow too fast.",
    "group_busy_workers": "Consumers that hold leases, unnamed consumers included.",
    "group_finished_total": "Messages that were acked or dead-lettered.",
    "group_service_seconds_total": "Sum of the times from lease to end of finished messages.",
    "held_bytes": "Bytes that are kept because an archive has not copied them.",
    "holds_lost": "Holds that exceeded their bytes and were dropped.",
}
"""Metrics of queues and groups. A scrape may have tens of thousands of lines of them, so they are written directly."""


_number: Callable[[float], str] = floatToGoString


class _QueueLines:
    """The lines of a scrape by metric. Names of queues and groups contain nothing that would have to be escaped."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in _QUEUE_FAMILIES}

    def add(self, name: str, labels: str, value: float) -> None:
        self._lines[name].append(f"penstock_{name}{labels} {_number(value)}\n")

    def text(self) -> bytes:
        parts: list[str] = []
        for name, lines in self._lines.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            parts.append(f"# HELP penstock_{name} {_QUEUE_FAMILIES[name]}\n# TYPE penstock_{name} {kind}\n")
            parts += lines
        return "".join(parts).encode()


async def _queue_lines(broker: Broker, queues: Sequence[str]) -> bytes:
    lines = _QueueLines()
    seen: Counter[str] = Counter()
    for queue in queues:
        try:
            stats = await broker.stats.queue(QueuePath(queue))
        except QueueNotFound:
            continue  # the queue was deleted
        _add_queue(lines, queue, stats)
        seen.update({field: stats[field] for field in _STATES.values()})
        await asyncio.sleep(0)  # other requests run between two queues
    summary = await broker.stats.summary()
    if summary["queues"] > len(queues):
        for state, field in _STATES.items():
            if field in summary:
                labels = f'{{namespace="{OTHER}",queue="{OTHER}",state="{state}"}}'
                lines.add("queue_messages", labels, max(0, summary[field] - seen[field]))
    for name, field in _HELD.items():
        lines.add(name, "", summary.get(field, 0))
    return lines.text()


def _add_queue(lines: _QueueLines, queue: str, stats: Mapping[str, Any]) -> None:
    names = f'namespace="{queue.partition("/")[0]}",queue="{queue}"'
    labels, totals = f"{{{names}}}", stats["totals"]
    for name in _MESSAGES:
        lines.add(f"messages_{name}_total", labels, totals[name])
    nacked = totals["retried"] - totals["lease_expired"] - totals["session_expired"]
    for reason, count in (*((each, totals[each]) for each in ("lease_expired", "session_expired")), ("nack", nacked)):
        lines.add("messages_retried_total", f'{{{names},reason="{reason}"}}', count)
    for state, field in _STATES.items():
        lines.add("queue_messages", f'{{{names},state="{state}"}}', stats[field])
    if stats["oldest_age_ms"] is not None:
        lines.add("oldest_ready_message_age_seconds", labels, stats["oldest_age_ms"] / 1000)
    lines.add("dead_letter_alarm", labels, stats["dead_letter_alarm"] is not None)
    for group in stats["groups"]:
        labels = f'{{group="{group["group"]}",{names}}}'
        lines.add("consumer_lag_messages", labels, group["lag"])
        for field, name in _GROUPS.items():
            lines.add(f"group_{name}", labels, group[field])
