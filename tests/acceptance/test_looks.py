"""Why it is still here, what became of it, how many workers it takes: over real HTTP, the SDK and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from http_server import running

from penstock import Client, QueueNotFound, sync

_numbers = count()
UNKNOWN = "01JP0000000000000000000000"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("looks") / "data") as running_server:
        yield running_server


@pytest.fixture
def client(server):
    with sync.Client(server.url) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A queue that no other test uses."""
    return f"looks/q{next(_numbers)}"


@pytest.fixture
def lease(server):
    def call(queue: str, **more: Any) -> list[dict[str, Any]]:
        answer = server.ask("POST", "/v1/lease", {"queue": queue, **more})
        assert answer.status == 200, answer.body
        return answer.json["messages"]

    return call


@pytest.fixture
def penstock(server):
    def run(*arguments: str, code: int = 0) -> str:
        environment = {**os.environ, "PENSTOCK_URL": server.url, "COLUMNS": "300", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return (done.stdout if code == 0 else done.stderr).decode()

    return run


def test_a_blocked_key_from_the_first_look_to_the_end(client, server, lease, name):
    queue = client.create_queue(name, ordered_keys=True)
    first, second = queue.publish_many([1, 2], key="k")
    (entry,) = queue.explain().messages
    assert (entry.id, [reason["kind"] for reason in entry.reasons]) == (first.id, ["group_not_begun"])
    (held,) = lease(name, max=10, consumer="worker-7")
    (entry,) = queue.explain(second.id).messages
    (reason,) = entry.reasons
    assert (entry.state, entry.deliverable) == ("ready", False)
    assert (reason["kind"], reason["id"], reason["state"]) == ("key_blocked", first.id, "leased")
    assert (reason["consumer"], reason["deadline_at_ms"]) == ("worker-7", held["deadline_at_ms"])
    assert "worker-7" in entry.text
    server.ask("POST", "/v1/ack", {"receipts": [held["receipt"]]})
    (entry,) = queue.explain(second.id).messages
    assert (entry.deliverable, entry.reasons) == (True, [])
    history = queue.history(first.id)
    assert history.complete and (history.partition, history.offset) == (0, 0)
    assert [event.kind for event in history.events] == ["published", "leased", "acked"]
    assert {event.consumer for event in history.events} == {msgspec.UNSET, "worker-7"}


def test_the_sdk_in_both_shells(client, server, name):
    published = client.queue(name).publish({"secret": "word"}, delay=60)

    async def look() -> list[Any]:
        async with Client(server.url) as other:
            queue = other.queue(name)
            return [
                await queue.explain(published.id, group="billing"),
                await queue.history(published.id),
                await queue.autoscale(group="billing", target_drain=5, min_workers=3),
            ]

    explained, history, signal = asyncio.run(look())
    queue = client.queue(name)
    assert explained.messages[0].id == queue.explain(published.id).messages[0].id == published.id
    assert [reason["kind"] for reason in explained.messages[0].reasons] == ["not_due", "group_not_begun"]
    assert history == queue.history(published.id)
    assert "secret" not in repr([explained, history])
    assert (signal.group, signal.suggested_workers, signal.target_drain_s) == ("billing", 3, 5.0)
    assert queue.autoscale(max_workers=0).suggested_workers == 0


def test_every_leaf_that_a_scaler_can_read_is_a_number(client, lease, name):
    queue = client.create_queue(name)
    queue.publish_many(range(50))
    lease(name, max=5, consumer="w")
    signal = queue.autoscale()
    shown = msgspec.structs.asdict(signal)
    assert {key for key, value in shown.items() if isinstance(value, str)} == {"queue", "group"}
    assert all(isinstance(value, (int, float)) for key, value in shown.items() if key not in ("queue", "group"))
    assert (signal.ready, signal.in_flight, signal.busy_workers) == (45, 5, 1)
    assert signal.arrival_rate > 0 and signal.suggested_workers == 1


def test_metrics_say_why_messages_are_retried(client, server, lease, name):
    client.create_queue(name, backoff={"kind": "none"})
    client.queue(name).publish(1)
    (held,) = lease(name)
    server.ask("POST", "/v1/nack", {"receipts": [held["receipt"]]})
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    path = name.replace("/", "/default/")
    (line,) = [each for each in lines if f'queue="{path}",reason="nack"' in each]
    assert line.endswith(" 1.0")


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/v1/explain", "queue"),
        ("/v1/explain?queue=UPPER!", "queue"),
        ("/v1/explain?queue=orders&group=-x", "group"),
        ("/v1/explain?queue=orders&nonsense=1", "nonsense"),
        ("/v1/history?queue=orders", "id"),
        ("/v1/autoscale?queue=orders&target_drain_s=0", "target_drain_s"),
        ("/v1/autoscale?queue=orders&target_drain_s=nan", "target_drain_s"),
        ("/v1/autoscale?queue=orders&min_workers=5&max_workers=4", "min_workers"),
        ("/v1/autoscale?queue=orders&max_workers=-1", "max_workers"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(server, client, target, field):
    client.create_queue("orders")
    answer = server.ask("GET", target)
    assert (answer.status, answer.json["error"]["details"].get("field")) == (400, field)


def test_what_is_not_there(client, name):
    with pytest.raises(QueueNotFound):
        client.queue(name).explain()
    queue = client.create_queue(name)
    assert queue.explain().messages == []
    assert queue.explain(UNKNOWN).messages[0].state == "not_found"
    history = queue.history(UNKNOWN)
    assert (history.events, history.partition, history.complete) == ([], None, True)
    assert queue.explain("no-such-id").messages[0].state == "not_found", "any text can be a client's own id"
    assert queue.history("no-such-id").events == []


def test_on_the_command_line(client, lease, penstock, name):
    queue = client.create_queue(name)
    assert "nothing waits" in penstock("explain", name)
    first, second = queue.publish_many([1, 2])
    lease(name, consumer="worker-7")
    head = penstock("explain", name)
    assert head.startswith(f"{second.id} at 0:1, ready: ") and len(head.splitlines()) == 1
    assert "leased to consumer worker-7" in penstock("explain", name, first.id).lower()
    of_another = penstock("explain", name, first.id, "--group", "billing")
    assert "has ever asked" in of_another and "billing in this queue yet, but default:" in of_another
    assert "messages" in json.loads(penstock("explain", name, "--group", "billing", "-o", "json"))
    assert json.loads(penstock("explain", name, first.id, "-o", "json"))["messages"][0]["state"] == "leased"
    shown = penstock("history", name, first.id).splitlines()
    assert shown[0].split()[:4] == ["at", "kind", "group", "consumer"]
    assert [line.split()[1] for line in shown[1:]] == ["published", "leased"]
    assert json.loads(penstock("history", name, first.id, "-o", "json"))["complete"]
    assert penstock("history", name, UNKNOWN) == "no events\n"
    assert penstock("history", name, "no-such-id").startswith("no events\n")
    assert "no-such-id" in penstock("explain", name, "no-such-id")


def test_workers_that_it_takes_on_the_command_line(client, penstock, name):
    client.create_queue(name).publish_many([1, 2])
    lines = penstock("autoscale", name, "--min-workers", "3").splitlines()
    shown = dict(line.strip().split(maxsplit=1) for line in lines)
    assert (shown["group"], shown["ready"], shown["suggested_workers"]) == ("default", "2", "3")
    assert (shown["mean_service_time_s"], shown["time_to_drain_s"]) == ("-", "never, at these rates")
    signal = json.loads(penstock("autoscale", name, "--group", "billing", "--target-drain", "5", "-o", "json"))
    assert (signal["group"], signal["target_drain_s"], signal["time_to_drain_s"]) == ("billing", 5.0, -1)
    assert "min_workers" in penstock("autoscale", name, "--min-workers", "2", "--max-workers", "1", code=1)


def test_documented_url_of_keda_works(server, tmp_path):
    page = (Path(__file__).parents[2] / "docs/operating/autoscale.md").read_text()
    url = urlsplit(re.search(r'url: "(http://[^"]+)"', page)[1])
    flags = re.search(r"`penstock serve (--allowed-host \S+)`", page)[1].split()
    target, location = f"{url.path}?{url.query}", re.search(r'valueLocation: "(\w+)"', page)[1]
    assert server.ask("GET", target, host=url.netloc).status == 403
    with running(tmp_path / "keda", *flags) as told:
        told.publish("orders", 1)
        answer = told.ask("GET", target, host=url.netloc)
        assert (answer.status, answer.json[location]) == (200, 1)
        assert told.ask("GET", target, host="other:7400").status == 403
