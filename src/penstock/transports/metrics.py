"""Prometheus metrics: counters of the transports and the state of the queues.

The broker counts outcomes of messages, from its records. The transports count requests and durations: plain additions
on the hot path, once per run and never per message. Metric families and labels are built at scrape time. Labels are
queue and group names, never content of messages. Beyond `limits.METRIC_QUEUES_MAX` queues the busiest queues have
their own lines and the other queues share `_other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

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
        self._publish_seconds = Histogram()
        self._delivery_seconds = Histogram()
        self._commit_seconds = Histogram()
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

    def publish_took(self, seconds: float) -> None:
        self._publish_seconds.observe(seconds)

    def commit_took(self, seconds: float) -> None:
        self._commit_seconds.observe(seconds)

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

    def exposition(self, broker: Broker) -> tuple[bytes, bytes]:
        """The body of a scrape and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self, broker))
        return exposition.generate_latest(registry), exposition.CONTENT_TYPE_LATEST.encode()

    def families(self, broker: Broker) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_build", "Version of the server.", value={"version": __version__})
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
        yield self._publish_seconds.family("penstock_publish_duration_seconds", "From request to durable reply.")
        yield self._delivery_seconds.family(
            "penstock_delivery_latency_seconds", "From publish to first delivery, delays included."
        )
        yield self._commit_seconds.family(
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
        yield from _queue_families(broker, self._shown_queues(broker))

    def _shown_queues(self, broker: Broker) -> list[str]:
        """The queues that have lines of their own: all, or the busiest if there are too many."""
        most = limits.METRIC_QUEUES_MAX
        listed = broker.list_queues(limit=most)
        names = [entry["queue"] for entry in listed["queues"]]
        if listed["total"] <= most:
            return names
        busiest = [name for name, _ in self._traffic.most_common(most)]
        return list(dict.fromkeys([*busiest, *names]))[:most]


class _Scrape:
    """The collector of one scrape."""

    def __init__(self, metrics: Metrics, broker: Broker):
        self._metrics = metrics
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families(self._broker)


_TOTALS = {
    "published": "Messages stored.",
    "delivered": "Messages delivered under a lease.",
    "redelivered": "Messages delivered again.",
    "acked": "Messages acknowledged.",
    "dead_lettered": "Messages that became dead letters.",
    "redriven": "Dead letters made ready again.",
    "expired": "Messages whose time to live ended.",
    "cancelled": "Messages cancelled before delivery.",
}
_GROUPS = {
    "busy_workers": (GaugeMetricFamily, "busy_workers", "Consumers that hold leases, unnamed consumers included."),
    "finished": (CounterMetricFamily, "finished", "Messages that were acked or dead-lettered."),
    "service_s": (CounterMetricFamily, "service_seconds", "Sum of the times from lease to end of finished messages."),
}
_STATES = {"ready": "ready", "inflight": "leased", "scheduled": "scheduled", "dead": "dead"}


def _queue_families(broker: Broker, queues: Sequence[str]) -> list[Metric]:
    labels = ["namespace", "queue"]
    totals = {
        name: CounterMetricFamily(f"penstock_messages_{name}", text, labels=labels) for name, text in _TOTALS.items()
    }
    messages = GaugeMetricFamily("penstock_queue_messages", "Messages by state.", labels=[*labels, "state"])
    age = GaugeMetricFamily(
        "penstock_oldest_ready_message_age_seconds", "Age of the oldest unfinished message.", labels=labels
    )
    lag = GaugeMetricFamily(
        "penstock_consumer_lag_messages", "Messages that a group has not finished.", labels=[*labels, "group"]
    )
    retried = CounterMetricFamily(
        "penstock_messages_retried",
        "Messages that will be delivered again, by reason: nack, lease expired, session expired.",
        labels=[*labels, "reason"],
    )
    groups = {
        field: kind(f"penstock_group_{name}", text, labels=[*labels, "group"])
        for field, (kind, name, text) in _GROUPS.items()
    }
    alarm = GaugeMetricFamily(
        "penstock_dead_letter_alarm",
        "1 while the dead letters of a queue are too many or grow too fast.",
        labels=labels,
    )
    seen: Counter[str] = Counter()
    for queue in queues:
        try:
            stats = broker.stats(QueuePath(queue))
        except QueueNotFound:
            continue  # the queue was deleted
        names = [queue.partition("/")[0], queue]
        for name, family in totals.items():
            family.add_metric(names, stats["totals"][name])
        for state, field in _STATES.items():
            messages.add_metric([*names, state], stats[field])
            seen[field] += stats[field]
        alarm.add_metric(names, stats["dead_letter_alarm"] is not None)
        if stats["oldest_age_ms"] is not None:
            age.add_metric(names, stats["oldest_age_ms"] / 1000)
        nacked = stats["totals"]["retried"]
        for reason in ("lease_expired", "session_expired"):
            retried.add_metric([*names, reason], stats["totals"][reason])
            nacked -= stats["totals"][reason]
        retried.add_metric([*names, "nack"], nacked)
        for group in stats["groups"]:
            lag.add_metric([*names, group["group"]], group["lag"])
            for field, family in groups.items():
                family.add_metric([*names, group["group"]], group[field])
    summary = broker.summary()
    if summary["queues"] > len(queues):
        for state, field in _STATES.items():
            if field in summary:
                messages.add_metric([OTHER, OTHER, state], max(0, summary[field] - seen[field]))
    holds = [
        GaugeMetricFamily(f"penstock_{name}", text, value=summary.get(field, 0))
        for name, field, text in (
            ("held_bytes", "held_bytes", "Bytes that are kept because an archive has not copied them."),
            ("holds_lost", "holds_lost", "Holds that exceeded their bytes and were dropped."),
        )
    ]
    return [*totals.values(), retried, messages, age, lag, alarm, *groups.values(), *holds]
