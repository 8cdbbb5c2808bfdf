"""The counters of a process in the form that the other processes add up, and their sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from penstock import limits
from penstock.cluster.peers import FamilyReport, MetricsReport, SampleReport
from penstock.transports.metrics import BrokerCounts, Metrics, ProcessMetrics, counts_of

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_HISTOGRAMS = ("publish_seconds", "lease_seconds", "delivery_seconds", "commit_seconds")
_LABEL = "process"


def report(metrics: Metrics, broker: Broker) -> MetricsReport:
    counts = counts_of(broker)
    return MetricsReport(
        ready=counts.ready,
        requests=[(*key, count) for key, count in metrics.requests.items()],
        calls=[(*key, count) for key, count in metrics.calls.items()],
        traffic=dict(metrics.traffic.most_common(limits.METRIC_QUEUES_MAX)),
        duplicates=metrics.duplicates,
        histograms={name: getattr(metrics, name).report() for name in _HISTOGRAMS},
        connections={
            "http": metrics.count_connections(),
            "websocket": metrics.count_websockets(),
            "grpc": metrics.count_grpc_connections(),
        },
        webhook_attempts=dict(metrics.webhook_attempts()),
        damaged=counts.damage,
        written_bytes=counts.written_bytes,
        families=[_reported(family) for families in metrics.collectors for family in families()],
        usage=[_reported(family) for family in ProcessCollector(registry=None).collect()],
    )


def added_up(reports: Iterable[MetricsReport]) -> tuple[Metrics, BrokerCounts]:
    """The sums, in the form of one process."""
    total, ready, damaged, errors, written = Metrics(), True, 0, 0, 0
    connections = dict.fromkeys(("http", "websocket", "grpc"), 0)
    webhooks: dict[str, int] = {}
    families: dict[str, Metric] = {}
    for each in reports:
        total.requests.update({(operation, status): count for operation, status, count in each.requests})
        total.calls.update({(operation, status): count for operation, status, count in each.calls})
        total.traffic.update(each.traffic)
        total.duplicates += each.duplicates
        for name, histogram in each.histograms.items():
            getattr(total, name).add(histogram)
        _add(connections, each.connections)
        _add(webhooks, each.webhook_attempts)
        ready = ready and each.ready
        damaged, errors, written = damaged + each.damaged[0], errors + each.damaged[1], written + each.written_bytes
        for family in each.families:
            _add_family(families, family)
    total.count_connections = lambda: connections["http"]
    total.count_websockets = lambda: connections["websocket"]
    total.count_grpc_connections = lambda: connections["grpc"]
    total.webhook_attempts = lambda: webhooks
    total.collectors.append(families.values)
    return total, BrokerCounts(ready, (damaged, errors), written)


def process_families(processes: ProcessMetrics) -> Iterator[Metric]:
    """Metrics that do not add up: how many processes answered, and the usage of each."""
    yield GaugeMetricFamily("penstock_processes", "Processes of this server.", value=processes.running)
    yield GaugeMetricFamily(
        "penstock_processes_answered", "Processes that are part of this scrape.", value=len(processes.reports)
    )
    families: dict[str, Metric] = {}
    for number, each in processes.reports.items():
        for family in each.usage:
            metric = families.setdefault(family.name, Metric(family.name, family.text, family.kind))
            for name, labels, value in family.samples:
                metric.add_sample(name, {**labels, _LABEL: str(number)}, value)
    yield from families.values()


def _reported(family: Metric) -> FamilyReport:
    samples = [SampleReport(each.name, dict(each.labels), each.value) for each in family.samples]
    return FamilyReport(family.name, family.documentation, family.type, samples)


def _add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


def _add_family(families: dict[str, Metric], family: FamilyReport) -> None:
    """Add the samples with the same labels."""
    metric = families.setdefault(family.name, Metric(family.name, family.text, family.kind))
    places = {(each.name, *sorted(each.labels.items())): at for at, each in enumerate(metric.samples)}
    for name, labels, value in family.samples:
        at = places.get((name, *sorted(labels.items())))
        if at is None:
            metric.add_sample(name, labels, value)
        else:
            metric.samples[at] = metric.samples[at]._replace(value=metric.samples[at].value + value)
