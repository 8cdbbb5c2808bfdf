"""The metrics of a scrape."""

from __future__ import annotations

import asyncio

from http_fake import Http

from penstock import limits
from penstock.batch import Batch, build

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
    queues = {name.split('queue="default/default/')[1][0] for name in shown if "messages_published_total" in name}
    assert queues == {"e", "a"}
    assert shown['penstock_queue_messages{namespace="_other",queue="_other",state="inflight"}'] == 7 - 2 * 2


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
