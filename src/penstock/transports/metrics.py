"""Counters of this edge and the state of the queues, in the form that Prometheus scrapes.

What became of messages is counted by the broker, from its records; here is only what the edge alone knows: requests
and how long things took. That is on the hot path, so it is plain additions, once per run and never per message, and
families and labels are only made when somebody scrapes. Labels are queue names and nothing that a message carries.
Beyond `limits.METRIC_QUEUES_MAX` queues the busiest have their own lines and the rest share `_other`.
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
    """What this process has counted since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._traffic: Counter[str] = Counter()
        """Messages in and out by queue: only to know which queues are the busiest."""
        self._duplicates = 0
        self._publish_seconds = Histogram()
        self._delivery_seconds = Histogram()
        self._commit_seconds = Histogram()
        self.count_connections: Callable[[], int] = lambda: 0
        """Connections that speak HTTP. Asked at every scrape; whoever owns the sockets sets it."""
        self.webhook_attempts: Callable[[], Mapping[str, int]] = dict
        """By outcome; whoever delivers webhooks sets it."""
        self.count_websockets: Callable[[], int] = lambda: 0
        self.others: list[Callable[[], Iterable[Metric]]] = []
        """What other edges of this node count."""
        self.count_grpc_connections: Callable[[], int] = lambda: 0

    # -- counting ---------------------------------------------------------------------------------------------

    def answered(self, operation: str, status: int) -> None:
        self._requests[operation, status] += 1

    def called(self, operation: str, status: str) -> None:
        """A call of gRPC has ended; a stream counts once."""
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
        # What a lease leaves out makes many short runs of messages that were published together.
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
        """The text of a scrape and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self, broker))
        return exposition.generate_latest(registry), exposition.CONTENT_TYPE_LATEST.encode()

    def families(self, broker: Broker) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_build", "Version of the server.", value={"version": __version__})
        requests = CounterMetricFamily(
            "penstock_http_requests", "Answers given, by operation and status.", labels=["operation", "status"]
        )
        for (operation, status), count in sorted(self._requests.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        calls = CounterMetricFamily(
            "penstock_grpc_calls", "Calls that have ended, by operation and status.", labels=["operation", "status"]
        )
        for (operation, code), count in sorted(self._calls.items()):
            calls.add_metric([operation, code], count)
        yield calls
        yield CounterMetricFamily(
            "penstock_messages_duplicate", "Messages that were there already and not stored again.", self._duplicates
        )
        yield self._publish_seconds.family("penstock_publish_duration_seconds", "From request to durable answer.")
        yield self._delivery_seconds.family(
            "penstock_delivery_latency_seconds", "From published to first handed out, delays included."
        )
        yield self._commit_seconds.family(
            "penstock_commit_duration_seconds", "To write one group commit to the journal and sync it."
        )
        connections = GaugeMetricFamily("penstock_connections", "Open connections.", labels=["transport"])
        connections.add_metric(["http"], self.count_connections())
        connections.add_metric(["websocket"], self.count_websockets())
        connections.add_metric(["grpc"], self.count_grpc_connections())
        yield connections
        webhooks = CounterMetricFamily(
            "penstock_webhook_attempts",
            "Requests to the endpoints of webhooks, by what came of them.",
            labels=["outcome"],
        )
        for outcome, count in sorted(self.webhook_attempts().items()):
            webhooks.add_metric([outcome], count)
        yield webhooks
        for families in self.others:
            yield from families()
        yield from _queue_families(broker, self._shown_queues(broker))

    def _shown_queues(self, broker: Broker) -> list[str]:
        """The queues that get lines of their own."""
        most = limits.METRIC_QUEUES_MAX
        listed = broker.list_queues(limit=most)
        names = [entry["queue"] for entry in listed["queues"]]
        if listed["total"] <= most:
            return names
        busiest = [name for name, _ in self._traffic.most_common(most)]
        return list(dict.fromkeys([*busiest, *names]))[:most]


class _Scrape:
    """One scrape, as Prometheus' registry wants it."""

    def __init__(self, metrics: Metrics, broker: Broker):
        self._metrics = metrics
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families(self._broker)


_TOTALS = {
    "published": "Messages stored.",
    "delivered": "Messages handed out under a lease.",
    "redelivered": "Messages handed out again.",
    "acked": "Messages done.",
    "dead_lettered": "Messages given up.",
    "redriven": "Dead letters made ready again.",
    "expired": "Messages that outlived their time.",
    "cancelled": "Messages taken back before delivery.",
}
_GROUPS = {
    "busy_workers": (GaugeMetricFamily, "busy_workers", "Consumers that hold messages; leases without a name count."),
    "finished": (CounterMetricFamily, "finished", "Messages that a consumer was done with: acked or given up."),
    "service_s": (CounterMetricFamily, "service_seconds", "From lease to end, of all that was finished."),
}
_STATES = {"ready": "ready", "inflight": "leased", "scheduled": "scheduled", "dead": "dead"}


def _queue_families(broker: Broker, queues: Sequence[str]) -> list[Metric]:
    labels = ["namespace", "queue"]
    totals = {
        name: CounterMetricFamily(f"penstock_messages_{name}", text, labels=labels) for name, text in _TOTALS.items()
    }
    messages = GaugeMetricFamily("penstock_queue_messages", "Messages by state.", labels=[*labels, "state"])
    age = GaugeMetricFamily(
        "penstock_oldest_ready_message_age_seconds", "Age of the oldest message that is not done.", labels=labels
    )
    lag = GaugeMetricFamily(
        "penstock_consumer_lag_messages", "Messages that a group has not done yet.", labels=[*labels, "group"]
    )
    retried = CounterMetricFamily(
        "penstock_messages_retried",
        "Messages that will be handed out again: given back (nack), or not settled in time by who held them.",
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
            continue  # deleted since it was busy
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
            ("held_bytes", "held_bytes", "What archives still have to copy, and keep from being let go."),
            ("holds_lost", "holds_lost", "Holds that spanned too much and were let go."),
        )
    ]
    return [*totals.values(), retried, messages, age, lag, alarm, *groups.values(), *holds]
