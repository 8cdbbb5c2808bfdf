"""Counters of the transports: requests, durations, duplicates. `exposition.py` shows them, and the state of the queues.

The broker counts outcomes of messages, from its records. The transports count requests and durations: plain additions
on the hot path, once per run and never per message. Metric families and labels are built at scrape time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from penstock import limits
from penstock.broker.types import DeliveredRun, PublishedRun
from penstock.cluster.peers import ExemplarReport, HistogramReport, MetricsReport, RecentCommits

if TYPE_CHECKING:
    from penstock.broker.service import Broker

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
"""Upper bounds of the buckets, in seconds."""
_LABELS = (*map(floatToGoString, BOUNDS), "+Inf")
SPEED_S = 300.0
"""The speed of commits is that of about so many seconds."""
MARK_S = 30.0


class Histogram:
    """Counts per bucket. `observe` takes a weight, because a run of messages shares its latency."""

    __slots__ = ("_exemplars", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LABELS)
        self.total = 0.0
        self._exemplars: dict[int, ExemplarReport] = {}

    def observe(self, seconds: float, count: int = 1) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += count
        self.total += seconds * count

    def exemplify(self, seconds: float, trace_id: str, at_s: float) -> None:
        """Name the trace of an observation: the newest one of each bucket is shown."""
        self._exemplars[bisect_left(BOUNDS, seconds)] = ExemplarReport(trace_id, seconds, at_s)

    def quantile(self, share: float) -> float | None:
        """An estimate in seconds; None without observations."""
        return quantile(self.counts, share)

    def report(self) -> HistogramReport:
        return HistogramReport(self.counts, self.total, self._exemplars)

    def add(self, report: HistogramReport) -> None:
        """Add the observations of another process."""
        self.counts = [here + there for here, there in zip(self.counts, report.counts, strict=True)]
        self.total += report.total
        for at, exemplar in report.exemplars.items():
            known = self._exemplars.get(at)
            if known is None or known.at_s < exemplar.at_s:
                self._exemplars[at] = exemplar

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        buckets: list[Any] = []
        total = 0
        for at, (bound, count) in enumerate(zip(_LABELS, self.counts, strict=True)):
            total += count
            found = self._exemplars.get(at)
            if found is None:
                buckets.append((bound, total))
            else:
                buckets.append((bound, total, Exemplar({"trace_id": found.trace_id}, found.seconds, found.at_s)))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self.total)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Interpolated within its bucket, as `histogram_quantile` of Prometheus does."""
    wanted, passed, lower = share * sum(counts), 0, 0.0
    for bound, count in zip((*BOUNDS, BOUNDS[-1]), counts, strict=True):
        if count and passed + count >= wanted:
            return lower + (bound - lower) * (wanted - passed) / count
        passed, lower = passed + count, bound
    return None


class CommitSpeed(NamedTuple):
    """Of the last minutes."""

    per_s: float
    p50_ms: float
    p99_ms: float


def commit_speed(parts: Sequence[RecentCommits]) -> CommitSpeed | None:
    """How fast the commits of all processes were; None if there were none."""
    counts = [sum(each) for each in zip(*(part.counts for part in parts), strict=True)]
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    if p50 is None or p99 is None:
        return None
    per_s = sum(sum(part.counts) / max(1.0, part.seconds) for part in parts)
    return CommitSpeed(round(per_s, 3), round(p50 * 1000, 3), round(p99 * 1000, 3))


class BrokerCounts(NamedTuple):
    ready: bool
    damage: tuple[int, int]
    """(messages that became dead letters as damaged, reads that the disk refused)"""
    written_bytes: int


def counts_of(broker: Broker) -> BrokerCounts:
    """Those of the shards of this process."""
    return BrokerCounts(broker.ready, broker.damage, broker.written_bytes)


class ProcessMetrics(NamedTuple):
    """The metrics of a server of several processes."""

    running: int
    """The processes of the server."""
    reports: Mapping[int, MetricsReport]
    """By process, of those that answered."""

    @property
    def is_complete(self) -> bool:
        return len(self.reports) == self.running


class Metrics:
    """Counters since the start of this process, and callbacks that other parts of the server set."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """HTTP replies by operation and status."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """gRPC calls by operation and status."""
        self.traffic: Counter[str] = Counter()
        """Messages published and delivered per queue, to find the busiest queues."""
        self.duplicates = 0
        self.publish_seconds = Histogram()
        self.lease_seconds = Histogram()
        self.delivery_seconds = Histogram()
        self.commit_seconds = Histogram()
        self._commit_marks: deque[tuple[float, list[int]]] = deque()
        """Times, and the counts of commits at those times."""
        self.count_connections: Callable[[], int] = lambda: 0
        """Open HTTP connections, called at every scrape. The HTTP server sets it."""
        self.webhook_attempts: Callable[[], Mapping[str, int]] = dict
        """Webhook attempts by outcome. The webhook deliverer sets it."""
        self.count_websockets: Callable[[], int] = lambda: 0
        self.collectors: list[Callable[[], Iterable[Metric]]] = []
        """Metric families of other transports."""
        self.log_call: Callable[..., None] | None = None
        """Writes a line for a gRPC call; None unless lines of requests are on."""
        self.count_grpc_connections: Callable[[], int] = lambda: 0

    def answered(self, operation: str, status: int) -> None:
        self.requests[operation, status] += 1

    def called(self, operation: str, status: str) -> None:
        """Count a gRPC call that has ended; a stream counts once."""
        self.calls[operation, status] += 1

    def published(self, runs: Sequence[PublishedRun]) -> None:
        for run in runs:
            self.traffic[run.queue] += run.count
            if run.duplicate:
                self.duplicates += run.count
        if len(self.traffic) > limits.METRIC_TRAFFIC_MAX:
            # The names of queues that were deleted are among them, and would stay.
            self.traffic = Counter(dict(self.traffic.most_common(limits.METRIC_TRAFFIC_MAX // 2)))

    def delivered(self, runs: Sequence[DeliveredRun], now_ms: int) -> None:
        # A lease that skips messages yields many short runs with one publish time; they are observed together.
        counts: dict[tuple[str, int, bool], int] = {}
        for run in runs:
            alike = run.queue, run.published_at_ms, run.attempt == 1
            counts[alike] = counts.get(alike, 0) + run.count
        for (queue, published_at_ms, is_first), count in counts.items():
            self.traffic[queue] += count
            if is_first:
                self.delivery_seconds.observe(max(0, now_ms - published_at_ms) / 1000, count)

    def recent_commits(self, now_s: float) -> RecentCommits:
        """The commits between this call and those of the last minutes."""
        marks, counts = self._commit_marks, list(self.commit_seconds.counts)
        while len(marks) > 1 and marks[1][0] < now_s - SPEED_S:
            marks.popleft()
        since_s, before = marks[0] if marks else (now_s, [0] * len(counts))
        if not marks or now_s - marks[-1][0] >= MARK_S:
            marks.append((now_s, counts))
        recent = [now - then for now, then in zip(counts, before, strict=True)]
        return RecentCommits(recent, now_s - since_s)

    async def exposition(self, broker: Broker, **options: Any) -> tuple[bytes, bytes]:
        """The body of a scrape and its content type."""
        from penstock.transports.exposition import expose  # loaded with the first scrape

        return await expose(self, broker, **options)
