"""The metrics of a scrape."""

from __future__ import annotations

import asyncio
import re

from http_fake import Http
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import limits
from penstock.batch import Batch, build
from penstock.broker.types import PublishedRun
from penstock.transports.metrics import Metrics, commit_speed

ORDERS = "default/default/orders"
LABELS = f'namespace="default",queue="{ORDERS}"'


def scrape(story):
    """The samples of a scrape after a story: name with labels -> value."""

    async def run():
        http = Http()
        await story(http)
        await asyncio.sleep(0)  # a publish is noted in the turn after its answer, when it is surely durable
        answer = await http.ask("GET", "/metrics")
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
        lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    return asyncio.run(run())


def test_requests_and_durations():
    async def story(http):
        http.app.metrics.count_connections = lambda: 5
        for _ in range(3):
            await http.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}, {"payload": 2}]})
        await http.ask("POST", "/v1/publish", {})
        await http.ask("GET", "/nowhere")
        await http.ask("POST", "/v1/lease", {"queue": "orders", "max": 100})

    shown = scrape(story)
    assert shown['penstock_http_requests_total{operation="publish",status="201"}'] == 3
    assert shown['penstock_http_requests_total{operation="publish",status="400"}'] == 1
    assert shown['penstock_http_requests_total{operation="none",status="404"}'] == 1
    assert shown["penstock_publish_duration_seconds_count"] == 3
    assert shown["penstock_delivery_latency_seconds_count"] == 6
    assert shown['penstock_delivery_latency_seconds_bucket{le="+Inf"}'] == 6
    assert shown['penstock_connections{transport="http"}'] == 5


def test_queues():
    async def story(http):
        http.broker.stored[ORDERS] = []

    shown = scrape(story)
    assert shown[f"penstock_messages_acked_total{{{LABELS}}}"] == 3
    assert shown[f'penstock_messages_retried_total{{{LABELS},reason="nack"}}'] == 2
    assert shown[f'penstock_messages_retried_total{{{LABELS},reason="lease_expired"}}'] == 1
    assert shown[f'penstock_group_busy_workers{{group="default",{LABELS}}}'] == 2
    assert shown[f'penstock_group_service_seconds_total{{group="default",{LABELS}}}'] == 4.5
    assert shown[f'penstock_queue_messages{{{LABELS},state="inflight"}}'] == 2
    assert shown[f"penstock_oldest_ready_message_age_seconds{{{LABELS}}}"] == 1.5
    assert shown[f'penstock_consumer_lag_messages{{group="default",{LABELS}}}'] == 4


def test_queues_over_the_limit_share_one_line(monkeypatch):
    monkeypatch.setattr(limits, "METRIC_QUEUES_MAX", 3)

    async def story(http):
        for name in "abcdef":
            http.broker.stored[f"default/default/{name}"] = []
        for name in ("e", "gone"):
            await http.ask("POST", "/v1/publish", {"queue": name, "messages": [{"payload": 1}]})
        del http.broker.stored["default/default/gone"]

    shown = scrape(story)
    queues = set(re.findall(r'messages_published_total\S*queue="default/default/(.)', " ".join(shown)))
    assert queues == {"e", "a", "b"}, "a queue that was deleted takes no place"
    other = 'namespace="_other",queue="_other"'
    assert shown[f'penstock_queue_messages{{{other},state="inflight"}}'] == 3 * 2, "c, d and f"
    assert shown[f"penstock_messages_acked_total{{{other}}}"] == 3 * 3
    assert shown[f"penstock_oldest_ready_message_age_seconds{{{other}}}"] == 1.5


def test_busy_queues_that_were_deleted_are_forgotten(monkeypatch):
    monkeypatch.setattr(limits, "METRIC_TRAFFIC_MAX", 10)
    metrics = Metrics()
    for number in range(100):
        for count, name in ((1, f"queue-{number}"), (5, "busy")):
            metrics.published([PublishedRun(0, name, 0, 0, count, 0, False, None)])
    assert len(metrics.traffic) <= 10 and metrics.traffic["busy"] == 500


def test_groups_over_the_limit_share_one_line(monkeypatch):
    monkeypatch.setattr(limits, "METRIC_GROUPS_MAX", 2)

    async def story(http):
        for name in "abcde":
            http.broker.stored[f"default/default/{name}"] = []

    shown = scrape(story)
    lags = {name: value for name, value in shown.items() if name.startswith("penstock_consumer_lag_messages")}
    assert len(lags) == 3
    assert lags['penstock_consumer_lag_messages{group="_other",namespace="_other",queue="_other"}'] == 3 * 4


def test_percentiles_of_a_queue():
    async def story(http):
        http.broker.stored[ORDERS] = []

    shown = scrape(story)
    assert shown[f'penstock_queue_delivery_latency_seconds{{{LABELS},quantile="0.99"}}'] == 0.25
    assert not any(name.startswith("penstock_queue_ack_latency_seconds") for name in shown)


def test_openmetrics_is_valid_and_has_exemplars():
    async def run():
        http = Http()
        http.broker.stored[ORDERS] = []
        await http.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}]})
        http.app.metrics.publish_seconds.exemplify(0.02, "4bf92f3577b34da6a3ce929d0e0e4736", 1_700_000_000.0)
        return await http.ask("GET", "/metrics?aliases=true", headers={"accept": "application/openmetrics-text;q=1.0"})

    answer = asyncio.run(run())
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = list(text_string_to_metric_families(answer.body.decode()))
    published = next(each for each in families if each.name == "penstock_publish_duration_seconds")
    (marked,) = [sample for sample in published.samples if sample.exemplar is not None]
    assert marked.exemplar.labels == {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    assert marked.labels == {"le": "0.025"}
    counted = {family.name: family.type for family in families}
    assert counted["penstock_messages_published"] == "counter"


def test_aliases_are_shown_only_if_they_are_asked_for():
    async def run(target):
        http = Http()
        http.broker.stored[ORDERS] = []
        await http.ask("POST", "/v1/publish", {})
        await http.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 1}]})
        return (await http.ask("GET", target)).body.decode()

    assert "dlq_total" not in asyncio.run(run("/metrics")).replace("penstock_", "")
    text = asyncio.run(run("/metrics?aliases=true"))
    for line in (
        f'inflight{{topic="{ORDERS}"}} 2.0',
        f'backlog{{topic="{ORDERS}",partition="0"}} 1.0',
        f'retries_total{{topic="{ORDERS}"}} 3.0',
        f'dlq_total{{topic="{ORDERS}"}} 3.0',
        f'lease_timeouts_total{{topic="{ORDERS}"}} 1.0',
        f'proxy_messages_received_total{{topic="{ORDERS}"}} 3.0',
        f'proxy_messages_delivered_total{{topic="{ORDERS}",type="any"}} 3.0',
        f'proxy_queue_depth{{topic="{ORDERS}"}} 1.0',
        'proxy_connections_total{type="http"} 0.0',
        'proxy_errors_total{code="400",type="publish"} 1.0',
        'snapshot_bytes{partition="0"} 0.0',
        "wal_bytes_written_total 0.0",
    ):
        assert f"\n{line}\n" in text, line
    for name in ("enqueue_latency_ms", "pop_latency_ms", "raft_apply_latency_ms", "proxy_message_latency_seconds"):
        assert f"# TYPE {name} gauge" in text


def test_speed_of_commits_is_that_of_the_last_minutes():
    metrics = Metrics()
    assert commit_speed([metrics.recent_commits(0.0)]) is None
    for _ in range(100):
        metrics.commit_seconds.observe(0.002)
    slow = commit_speed([metrics.recent_commits(10.0)])
    assert slow is not None and slow.per_s == 10.0 and 1 <= slow.p50_ms <= 2.5
    for second in range(40, 1000, 30):
        metrics.commit_seconds.observe(0.0001)
        fast = commit_speed([metrics.recent_commits(float(second))])
    assert fast is not None and fast.p99_ms < 0.5


def test_dead_letter_metrics():
    async def run():
        http = Http()
        http.broker.stored[ORDERS] = [Batch.open(build([b'{"n":1}'], checked=True))]
        return (await http.ask("GET", "/v1/dlq?queue=orders&page=2&limit=5")).json

    answer = asyncio.run(run())
    (letter,) = answer["messages"]
    assert (answer["total"], answer["page"], answer["limit"]) == (1, 2, 5)
    assert (letter["payload"], letter["attempt"], letter["reason"], letter["error"]) == ({"n": 1}, 4, "retries", "e")
    assert (letter["group"], letter["consumer"], letter["dead_at_ms"]) == ("default", "w", 3)
