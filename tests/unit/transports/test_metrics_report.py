"""The counters of several processes, added up."""

from __future__ import annotations

from boxed import boxed
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from penstock.cluster.codec import codec_of
from penstock.transports.metrics import Metrics, RecentCommits, commit_speed
from penstock.transports.metrics_report import added_up, report


def _sent(metrics, broker):
    """A report as it arrives in another process."""
    codec = codec_of("process.metrics")
    return codec.decode_reply(codec.encode_reply(report(metrics, broker)))


def _metrics(publishes: int, at_s: float) -> Metrics:
    metrics = Metrics()
    for _ in range(publishes):
        metrics.answered("publish", 201)
        metrics.called("Publish", "OK")
        metrics.publish_seconds.observe(0.02)
    metrics.publish_seconds.exemplify(0.02, f"trace{publishes}", at_s)
    metrics.duplicates = publishes
    metrics.traffic["q"] = publishes
    metrics.count_connections = lambda: publishes
    metrics.webhook_attempts = lambda: {"ok": publishes}

    def families():
        yield CounterMetricFamily("closed", "", labels=["code"])
        closed = CounterMetricFamily("frames", "Frames.", labels=["kind"])
        closed.add_metric(["publish"], publishes)
        closed.add_metric([f"only{publishes}"], 1)
        yield closed
        yield GaugeMetricFamily("streams", "Streams.", value=publishes)

    metrics.collectors.append(families)
    return metrics


@boxed
async def test_reports_add_up(box):
    reports = [_sent(_metrics(3, 10.0), box.broker), _sent(_metrics(4, 9.0), box.broker)]
    total, counts = added_up(reports)
    assert total.requests == {("publish", 201): 7}
    assert total.calls == {("Publish", "OK"): 7}
    assert (total.duplicates, total.traffic["q"]) == (7, 7)
    assert (total.count_connections(), total.count_websockets()) == (7, 0)
    assert total.webhook_attempts() == {"ok": 7}
    assert sum(total.publish_seconds.counts) == 7
    assert round(total.publish_seconds.total, 6) == 0.14
    assert [each.trace_id for each in total.publish_seconds.report().exemplars.values()] == ["trace3"], "the newest"
    samples = {(each.name, *each.labels.values()): each.value for families in total.collectors
               for family in families() for each in family.samples}  # fmt: skip
    assert samples == {
        ("frames_total", "publish"): 7, ("frames_total", "only3"): 1, ("frames_total", "only4"): 1, ("streams",): 7,
    }  # fmt: skip
    assert counts.ready
    assert counts.written_bytes == reports[0].written_bytes + reports[1].written_bytes


@boxed
async def test_server_is_ready_if_all_processes_are(box):
    ready = report(Metrics(), box.broker)
    await box.broker.close()
    closed = report(Metrics(), box.broker)
    assert (ready.ready, closed.ready) == (True, False)
    assert not added_up([ready, closed])[1].ready


def test_speed_of_commits_is_that_of_all():
    first, second = Metrics(), Metrics()
    for metrics, commits in ((first, 10), (second, 30)):
        metrics.recent_commits(0.0)
        for _ in range(commits):
            metrics.commit_seconds.observe(0.02)
    speed = commit_speed([first.recent_commits(10.0), second.recent_commits(10.0)])
    assert speed.per_s == 4.0
    assert 10 <= speed.p50_ms <= 25
    assert commit_speed([RecentCommits([0] * 19, 10.0)]) is None
