"""Counters of this edge and the state of the queues, in the form that Prometheus scrapes.

Counting is on the hot path, so it is plain additions, once per run and never per message; families and labels are
only made when somebody scrapes. Labels are queue names and nothing that a message carries. Beyond
`limits.METRIC_QUEUES_MAX` queues the rest are added up as `_other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

from penstock import limits
from penstock._version import __version__
from penstock.broker.types import DeliveredRun, PublishedRun

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
        self._published: Counter[str] = Counter()
        self._duplicates: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._redelivered: Counter[str] = Counter()
        self._publish_seconds = Histogram()
        self._delivery_seconds = Histogram()
        self.count_connections: Callable[[], int] = lambda: 0
        """Asked at every scrape; whoever owns the sockets sets it."""

    # -- counting ---------------------------------------------------------------------------------------------

    def answered(self, operation: str, status: int) -> None:
        self._requests[operation, status] += 1

    def published(self, runs: Sequence[PublishedRun]) -> None:
        for run in runs:
            (self._duplicates if run.duplicate else self._published)[run.queue] += run.count

    def publish_took(self, seconds: float) -> None:
        self._publish_seconds.observe(seconds)

    def delivered(self, runs: Sequence[DeliveredRun], now_ms: int) -> None:
        for run in runs:
            self._delivered[run.queue] += run.count
            if run.attempt > 1:
                self._redelivered[run.queue] += run.count
            else:
                self._delivery_seconds.observe(max(0, now_ms - run.published_at_ms) / 1000, run.count)

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
        by_queue = (
            ("penstock_messages_published", "Messages stored.", self._published),
            ("penstock_messages_duplicate", "Messages that were stored before and not stored again.", self._duplicates),
            ("penstock_messages_delivered", "Messages handed out under a lease.", self._delivered),
            ("penstock_messages_redelivered", "Messages handed out again.", self._redelivered),
        )
        for name, text, counts in by_queue:
            family = CounterMetricFamily(name, text, labels=["namespace", "queue"])
            for queue, count in _capped(counts):
                family.add_metric([_namespace(queue), queue], count)
            yield family
        yield self._publish_seconds.family("penstock_publish_duration_seconds", "From request to durable answer.")
        yield self._delivery_seconds.family(
            "penstock_delivery_latency_seconds", "From published to first handed out, delays included."
        )
        connections = GaugeMetricFamily("penstock_connections", "Open connections.", labels=["transport"])
        connections.add_metric(["http"], self.count_connections())
        yield connections
        yield from _queue_gauges(broker)


class _Scrape:
    """One scrape, as Prometheus' registry wants it."""

    def __init__(self, metrics: Metrics, broker: Broker):
        self._metrics = metrics
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families(self._broker)


def _capped(counts: Counter[str]) -> list[tuple[str, int]]:
    """The busiest queues by name, the rest together."""
    if len(counts) <= limits.METRIC_QUEUES_MAX:
        return sorted(counts.items())
    shown = counts.most_common(limits.METRIC_QUEUES_MAX)
    return [*sorted(shown), (OTHER, counts.total() - sum(count for _, count in shown))]


def _namespace(queue: str) -> str:
    return OTHER if queue == OTHER else queue.partition("/")[0]


def _queue_gauges(broker: Broker) -> Iterator[Metric]:
    messages = GaugeMetricFamily("penstock_queue_messages", "Messages by state.", labels=["namespace", "queue", "state"])
    yield messages
