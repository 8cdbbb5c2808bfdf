"""A scrape: the counters of the transports and the state of the queues, for Prometheus.

Queues are read one by one, and other requests run in between. Labels are names of queues and groups, never content of
messages. Beyond `limits.METRIC_QUEUES_MAX` queues the busiest have lines of their own and the others share `_other`; so
do the groups beyond `limits.METRIC_GROUPS_MAX`. The text format is the default, OpenMetrics (with exemplars) is sent to
scrapers that ask for it. Lines of queues are written directly, because a scrape may have tens of thousands of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.utils import floatToGoString

from penstock import limits
from penstock._version import __version__
from penstock.errors import QueueNotFound
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.transports.metric_aliases import alias_families, alias_lines
from penstock.transports.metrics import BrokerCounts, Metrics, ProcessMetrics, counts_of
from penstock.transports.metrics_report import added_up, process_families

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.transports.http.edge import StoredBytes

OTHER = "_other"
SLICE = 500
"""Queues that are added up between two turns of the event loop."""
OPENMETRICS = b"application/openmetrics-text"
_EOF = b"# EOF\n"


async def expose(
    metrics: Metrics, broker: Broker, *, accept: bytes = b"", aliases: bool = False, stored: StoredBytes | None = None,
    processes: ProcessMetrics | None = None,
) -> tuple[bytes, bytes]:  # fmt: skip
    """The body and its content type. `processes`: the server has several, whose metrics take the place of `metrics`."""
    is_open = OPENMETRICS in accept
    registry = CollectorRegistry(auto_describe=False)
    counts = counts_of(broker)
    if processes is not None:
        metrics, counts = added_up(processes.reports.values())
    families = list(_families(metrics, counts, stored))
    if aliases:
        families += alias_families(metrics, stored, counts.written_bytes)
    if processes is not None:
        families += process_families(processes)
    registry.register(_Scrape(families))
    if processes is None:
        ProcessCollector(registry=registry)
    lines = QueueLines(is_open=is_open, aliases=aliases)
    # Calls to the shards of a process that does not answer would wait until it is replaced.
    if processes is None or processes.is_complete:
        await _add_queues(lines, broker, _shown_queues(metrics, await value_of(broker.queues.paths())))
    if is_open:
        own: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        own = own.removesuffix(_EOF)
        return own + lines.text() + _EOF, openmetrics.CONTENT_TYPE_LATEST.encode()
    return exposition.generate_latest(registry) + lines.text(), exposition.CONTENT_TYPE_LATEST.encode()


class _Scrape:
    """The collector of one scrape."""

    def __init__(self, families: Sequence[Metric]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(metrics: Metrics, counts: BrokerCounts, stored: StoredBytes | None) -> Iterator[Metric]:
    yield InfoMetricFamily("penstock_build", "Version of the server.", value={"version": __version__})
    yield GaugeMetricFamily("penstock_ready", "1 if the server takes requests.", value=int(counts.ready))
    requests = CounterMetricFamily(
        "penstock_http_requests", "HTTP replies, by operation and status.", labels=["operation", "status"]
    )
    for (operation, status), count in sorted(metrics.requests.items()):
        requests.add_metric([operation, str(status)], count)
    yield requests
    calls = CounterMetricFamily(
        "penstock_grpc_calls", "gRPC calls that have ended, by operation and status.", labels=["operation", "status"]
    )
    for (operation, code), count in sorted(metrics.calls.items()):
        calls.add_metric([operation, code], count)
    yield calls
    yield CounterMetricFamily(
        "penstock_messages_duplicate", "Published messages that were duplicates and not stored.", metrics.duplicates
    )
    damaged, read_errors = counts.damage
    yield CounterMetricFamily(
        "penstock_messages_damaged", "Messages that became dead letters because they cannot be read.", damaged
    )
    yield CounterMetricFamily("penstock_read_errors", "Reads of stored messages that the disk refused.", read_errors)
    yield metrics.publish_seconds.family("penstock_publish_duration_seconds", "From request to durable reply.")
    yield metrics.lease_seconds.family(
        "penstock_lease_duration_seconds", "From lease request to reply, waiting for messages included."
    )
    yield metrics.delivery_seconds.family(
        "penstock_delivery_latency_seconds", "From publish to first delivery, delays included."
    )
    yield metrics.commit_seconds.family(
        "penstock_commit_duration_seconds", "Time to write one group commit to the journal and sync it."
    )
    connections = GaugeMetricFamily("penstock_connections", "Open connections.", labels=["transport"])
    connections.add_metric(["http"], metrics.count_connections())
    connections.add_metric(["websocket"], metrics.count_websockets())
    connections.add_metric(["grpc"], metrics.count_grpc_connections())
    yield connections
    webhooks = CounterMetricFamily(
        "penstock_webhook_attempts", "Requests to the endpoints of webhooks, by outcome.", labels=["outcome"]
    )
    for outcome, count in sorted(metrics.webhook_attempts().items()):
        webhooks.add_metric([outcome], count)
    yield webhooks
    yield CounterMetricFamily(
        "penstock_journal_written_bytes", "Bytes of records that were given to the journal.", counts.written_bytes
    )
    if stored is not None:
        yield from _stored_families(stored)
    for families in metrics.collectors:
        yield from families()


def _stored_families(stored: StoredBytes) -> Iterator[Metric]:
    info = {"engine": stored.store.partition(":")[0], "fsync": stored.fsync}
    yield InfoMetricFamily("penstock_store", "The storage engine and its sync policy.", value=info)
    for name, text, value in (
        ("journal_bytes", "Journal files on disk, with those that are kept for reuse.", stored.journal),
        ("segment_bytes", "Messages on disk that were copied out of the journal.", stored.segments),
        ("snapshot_bytes", "Snapshots of the state on disk.", stored.snapshots),
        ("disk_free_bytes", "Room on the disk of the data directory.", stored.disk_free),
        ("disk_size_bytes", "Size of the disk of the data directory.", stored.disk_total),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"penstock_{name}", text, value=value)


def _shown_queues(metrics: Metrics, names: list[str]) -> list[str]:
    """The queues that have lines of their own: all, or the busiest if there are too many."""
    most = limits.METRIC_QUEUES_MAX
    if len(names) <= most:
        return names
    existing = set(names)
    busiest = [name for name, _ in metrics.traffic.most_common() if name in existing]
    return list(dict.fromkeys([*busiest, *names[:most]]))[:most]


# -- queues and groups --------------------------------------------------------------------------------------------

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
_LATENCIES = {"delivery": "queue_delivery_latency_seconds", "ack": "queue_ack_latency_seconds"}
_QUANTILES = {"p50_ms": "0.5", "p95_ms": "0.95", "p99_ms": "0.99"}
_QUEUE_FAMILIES = {
    **{f"messages_{name}_total": text for name, text in _MESSAGES.items()},
    "messages_retried_total": "Messages that will be delivered again, by reason: nack, lease expired, session expired.",
    "queue_messages": "Messages by state.",
    "oldest_ready_message_age_seconds": "Age of the oldest unfinished message.",
    "queue_delivery_latency_seconds": "From publish to first delivery, in this minute and the one before it.",
    "queue_ack_latency_seconds": "From delivery to ack or dead letter, in this minute and the one before it.",
    "consumer_lag_messages": "Messages that a group has not finished.",
    "dead_letter_alarm": "1 while the dead letters of a queue are too many or grow too fast.",
    "group_busy_workers": "Consumers that hold leases, unnamed consumers included.",
    "group_finished_total": "Messages that were acked or dead-lettered.",
    "group_service_seconds_total": "Sum of the times from lease to end of finished messages.",
    "queues": "Queues that exist.",
    "waiting_consumers": "Lease requests that wait for messages.",
    "held_bytes": "Bytes that are kept because an archive has not copied them.",
    "holds_lost": "Holds that exceeded their bytes and were dropped.",
}

_number: Callable[[float], str] = floatToGoString


class QueueLines:
    """The lines of queues by metric. Names of queues and groups contain nothing that would have to be escaped."""

    def __init__(self, *, is_open: bool, aliases: bool):
        self._is_open = is_open
        self.aliases = aliases
        self._families = {f"penstock_{name}": text for name, text in _QUEUE_FAMILIES.items()}
        self._lines: dict[str, list[str]] = {name: [] for name in self._families}
        self.groups = 0
        self.other_groups: Counter[str] = Counter()

    def add(self, name: str, labels: str, value: float) -> None:
        self._lines[f"penstock_{name}"].append(f"penstock_{name}{labels} {_number(value)}\n")

    def add_alias(self, name: str, text: str, labels: str, value: float) -> None:
        self._families.setdefault(name, text)
        self._lines.setdefault(name, []).append(f"{name}{labels} {_number(value)}\n")

    def text(self) -> bytes:
        parts: list[str] = []
        for name, lines in self._lines.items():
            kind = "counter" if name.endswith("_total") else "summary" if "_latency_" in name else "gauge"
            # In OpenMetrics the name of a counter's family is without the suffix.
            family = name.removesuffix("_total") if self._is_open else name
            parts.append(f"# HELP {family} {self._families[name]}\n# TYPE {family} {kind}\n")
            parts += lines
        return "".join(parts).encode()


async def _add_queues(lines: QueueLines, broker: Broker, queues: Sequence[str]) -> None:
    for queue in queues:
        try:
            stats = await broker.stats.queue(QueuePath(queue))
            latency = (await value_of(broker.stats.consumers(QueuePath(queue), limit=1)))["latency"]
        except QueueNotFound:
            continue  # the queue was deleted
        _add_queue(lines, queue, stats, latency)
        await asyncio.sleep(0)  # other requests run between two queues
    summary = await broker.stats.summary()
    if summary["queues"] > len(queues):
        await _add_others(lines, broker, set(queues))
    if lines.other_groups:
        labels = f'{{group="{OTHER}",namespace="{OTHER}",queue="{OTHER}"}}'
        for name, value in lines.other_groups.items():
            lines.add(name, labels, value)
    lines.add("queues", "", summary["queues"])
    lines.add("waiting_consumers", "", summary.get("waiting_consumers", 0))
    for name, field in _HELD.items():
        lines.add(name, "", summary.get(field, 0))


async def _add_others(lines: QueueLines, broker: Broker, shown: set[str]) -> None:
    """One line for all queues that have none of their own."""
    totals: Counter[str] = Counter()
    states: Counter[str] = Counter()
    oldest_ms = 0
    for at, row in enumerate(await broker.stats.rows()):
        if at % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        if row.queue not in shown:
            totals.update(row.totals)
            states.update({field: getattr(row, field) for field in _STATES.values()})
            oldest_ms = max(oldest_ms, row.oldest_age_ms or 0)
    names = f'namespace="{OTHER}",queue="{OTHER}"'
    _add_counts(lines, names, totals, states)
    lines.add("oldest_ready_message_age_seconds", f"{{{names}}}", oldest_ms / 1000)


def _add_queue(lines: QueueLines, queue: str, stats: Mapping[str, Any], latency: Mapping[str, Any]) -> None:
    names = f'namespace="{queue.partition("/")[0]}",queue="{queue}"'
    labels = f"{{{names}}}"
    _add_counts(lines, names, stats["totals"], stats)
    if stats["oldest_age_ms"] is not None:
        lines.add("oldest_ready_message_age_seconds", labels, stats["oldest_age_ms"] / 1000)
    for kind, name in _LATENCIES.items():
        for field, quantile in _QUANTILES.items() if latency[kind] is not None else ():
            lines.add(name, f'{{{names},quantile="{quantile}"}}', latency[kind][field] / 1000)
    lines.add("dead_letter_alarm", labels, stats["dead_letter_alarm"] is not None)
    for group in stats["groups"]:
        _add_group(lines, names, group)
    if lines.aliases:
        alias_lines(lines, queue, stats)


def _add_counts(lines: QueueLines, names: str, totals: Mapping[str, int], states: Mapping[str, Any]) -> None:
    labels = f"{{{names}}}"
    for name in _MESSAGES:
        lines.add(f"messages_{name}_total", labels, totals[name])
    nacked = totals["retried"] - totals["lease_expired"] - totals["session_expired"]
    for reason, count in (*((each, totals[each]) for each in ("lease_expired", "session_expired")), ("nack", nacked)):
        lines.add("messages_retried_total", f'{{{names},reason="{reason}"}}', count)
    for state, field in _STATES.items():
        lines.add("queue_messages", f'{{{names},state="{state}"}}', states[field])


def _add_group(lines: QueueLines, names: str, group: Mapping[str, Any]) -> None:
    values = {
        "consumer_lag_messages": group["lag"],
        **{f"group_{name}": group[field] for field, name in _GROUPS.items()},
    }
    lines.groups += 1
    if lines.groups > limits.METRIC_GROUPS_MAX:
        lines.other_groups.update(values)
        return
    labels = f'{{group="{group["group"]}",{names}}}'
    for name, value in values.items():
        lines.add(name, labels, value)
