"""Dead letters and transactions, on a real server: over HTTP, with the SDK, from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from itertools import count
from urllib.parse import quote

import pytest
from http_server import Server, running

import penstock.sync
from penstock import Client, Conflict, StaleReceipt

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("dlq") / "data") as running_server:
        yield running_server


@pytest.fixture
def name() -> str:
    return f"dlq/q{next(_numbers)}"


def give_up(server: Server, queue: str, *payloads, error: str = "no") -> list[str]:
    """Publish and reject; returns the ids."""
    messages = server.publish(queue, *payloads)
    receipts = [message["receipt"] for message in server.lease(queue, max=len(payloads))]
    server.ask("POST", "/v1/reject", {"receipts": receipts, "error": error})
    return [message["id"] for message in messages]


def ended(server: Server, queue: str, redrive_id: str) -> dict:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = server.ask("GET", f"/v1/dlq/redrives?queue={queue}&redrive_id={redrive_id}")
        (redrive,) = answer.json["redrives"]
        if redrive["status"] != "running":
            return redrive
        time.sleep(0.01)
    raise AssertionError(f"still under way: {redrive}")


# -- over HTTP --------------------------------------------------------------------------------------------------------


def test_browse_dry_run_redrive_delete(server, name):
    ids = give_up(server, name, {"total": 50}, {"total": 150}, {"total": 250}, error="Read timeout")
    wanted = quote('error ~ "timeout" and payload.total > 100')
    page = server.ask("GET", f"/v1/dlq?queue={name}&filter={wanted}").json
    assert [letter["id"] for letter in page["messages"]] == ids[1:]
    assert (page["total"], page["next"]) == (2, None)
    dry = server.ask("POST", "/v1/dlq/redrive", {"queue": name, "filter": "payload.total > 100"}).json
    assert (dry["dry_run"], dry["count"], [each["id"] for each in dry["sample"]]) == (True, 2, ids[1:])
    terms = {"queue": name, "filter": "payload.total > 100", "dry_run": False, "redrive_id": "after-the-fix"}
    started = server.ask("POST", "/v1/dlq/redrive", terms)
    assert started.status == 200 and started.json["redrive_id"] == "after-the-fix"
    done = ended(server, name, "after-the-fix")
    assert (done["status"], done["redriven"]) == ("finished", 2)
    assert server.ask("POST", "/v1/dlq/redrive", terms).json == {**done, "dry_run": False}
    assert [(m["id"], m["attempt"]) for m in server.lease(name, max=9)] == [(ids[1], 1), (ids[2], 1)]
    refused = server.ask("POST", "/v1/dlq/delete", {"queue": name, "ids": ids[:1]})
    details = refused.json["error"]["details"]
    assert (refused.status, details["would_lose"]) == (409, {"dead_letters": 1})
    deleted = server.ask("POST", f"/v1/dlq/delete?confirm={details['confirm']}", {"queue": name, "ids": ids[:1]})
    assert deleted.json["deleted"] == 1
    assert server.ask("GET", f"/v1/dlq?queue={name}").json["total"] == 0


def test_mistakes_have_a_place(server, name):
    give_up(server, name, 1)
    answer = server.ask("GET", f"/v1/dlq?queue={name}&filter={quote('reason == 3')}")
    assert (answer.status, answer.json["error"]["details"]) == (400, {"field": "filter", "position": 8})
    for body, field in (
        ({"queue": name}, "filter"),
        ({"queue": name, "filter": "", "ids": ["0" * 26]}, "filter"),
        ({"queue": name, "filter": "", "rate_per_s": 0}, "rate_per_s"),
        ({"queue": name, "filter": "", "priority": 3}, "priority"),
        ({"queue": name, "ids": []}, "ids"),
        ({"queue": name, "filter": "", "oops": 1}, "oops"),
    ):
        answer = server.ask("POST", "/v1/dlq/redrive", body)
        assert (answer.status, answer.json["error"]["details"]["field"]) == (400, field)
    assert server.ask("GET", f"/v1/dlq/redrives?queue={name}&redrive_id=never").status == 404


def test_a_redrive_survives_a_crash(tmp_path):
    server = Server(tmp_path / "data")
    try:
        give_up(server, "orders", *range(30))
        server.ask("PUT", "/v1/queues/mended", {})
        terms = {"queue": "orders", "filter": "", "target": "mended", "rate_per_s": 20, "dry_run": False}
        server.ask("POST", "/v1/dlq/redrive", {**terms, "redrive_id": "slow"})
        while not server.ask("GET", "/v1/dlq/redrives?queue=orders").json["redrives"][0]["redriven"]:
            time.sleep(0.01)
    finally:
        server.kill()
    with running(tmp_path / "data") as server:
        assert ended(server, "orders", "slow")["redriven"] == 30
        copies = server.lease("mended", max=100)
        assert sorted(message["payload"] for message in copies) == list(range(30))
        assert server.ask("GET", "/v1/dlq?queue=orders").json["total"] == 0


def test_a_transaction_is_all_or_nothing_and_can_be_repeated(server, name):
    server.publish(name, 1, 2)
    first, second = (message["receipt"] for message in server.lease(name, max=2))
    body = {
        "ack": [first],
        "publish": [{"queue": f"{name}-a", "payload": {"a": 1}}, {"queue": f"{name}-b", "payload": 2}],
    }
    answer = server.ask("POST", "/v1/transact", body)
    assert (answer.status, answer.json["acked"]) == (200, [first])
    assert [(m["queue"].split("/")[-1], m["duplicate"]) for m in answer.json["messages"]] == [
        (f"{name}-a".split("/")[-1], False), (f"{name}-b".split("/")[-1], False),
    ]  # fmt: skip
    again = server.ask("POST", "/v1/transact", body)
    assert [m["id"] for m in again.json["messages"]] == [m["id"] for m in answer.json["messages"]]
    assert all(m["duplicate"] for m in again.json["messages"])
    stale = server.ask("POST", "/v1/transact", {**body, "ack": [second, first]})
    assert (stale.status, stale.json["error"]["code"]) == (409, "stale_receipt")
    assert stale.json["error"]["details"] == {"receipts": [first]}
    for wrong in (
        {"ack": [second], "publish": [{"queue": f"{name}-a", "payload": 1}, {"queue": "NO!", "payload": 1}]},
        {"ack": [second], "publish": [{"payload": 1}]},
        {"ack": [second], "publish": [{"queue": f"{name}-a"}]},
        {},
    ):
        assert server.ask("POST", "/v1/transact", wrong).status == 400
    assert len(server.lease(f"{name}-a", max=9)) == 1
    assert server.ask("POST", "/v1/ack", {"receipts": [second]}).json["results"][0]["status"] == "acked"


def test_the_alarm_is_in_stats_summary_metrics_and_log(server, name):
    server.ask("PUT", f"/v1/queues/{name}", {"dead_letter_alarm": {"count": 2}})
    give_up(server, name, 1, 2)
    stats = server.ask("GET", f"/v1/stats?queue={name}").json
    path = stats["queue"]
    assert stats["dead_letter_alarm"]["why"] == ["count"]
    assert path in server.ask("GET", "/v1/stats/summary").json["dead_letter_alarms"]
    metrics = server.ask("GET", "/metrics").body.decode()
    assert f'penstock_dead_letter_alarm{{namespace="dlq",queue="{path}"}} 1.0' in metrics
    assert '"dead_letter_alarm"' in server.log() and path in server.log()


# -- the SDK ----------------------------------------------------------------------------------------------------------


def test_the_sdk_brings_them_back(server, name):
    give_up(server, name, {"n": 1}, {"n": 2}, {"n": 3})

    async def main():
        async with Client(server.url) as client:
            queue = client.queue(name)
            page = await queue.dead_letters(filter="payload.n >= 2", limit=1)
            assert (page.messages[0].payload, page.total) == ({"n": 2}, 2)
            assert (await queue.redrive(filter="payload.n >= 2")).count == 2
            started = await queue.redrive(filter="payload.n >= 2", dry_run=False, rate=1000)
            while (await queue.redrives(started.redrive_id))[0].status == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            back = [message.value["n"] async for message in queue.consume(wait=0.1)]
            assert back == [2, 3]
            with pytest.raises(Conflict) as caught:
                await queue.delete_dead_letters(filter="")
            token = caught.value.details["confirm"]
            assert (await queue.delete_dead_letters(filter="", confirm=token)).deleted == 1

    asyncio.run(main())


def test_consume_transform_produce(server, name):
    async def main():
        async with Client(server.url) as client:
            source, out = client.queue(name), client.queue(f"{name}-out")
            await source.publish_many([1, 2, 3])
            async for message in source.consume(wait=0.2):
                async with message.transaction() as tx:
                    tx.publish(f"{name}-out", message.value * 10, key="k")
                    tx.publish(f"{name}-log", b"\x00raw", headers={"of": message.id})
                assert tx.result is not None and len(tx.result.messages) == 2 and message.settled
            assert [m.value async for m in out.consume(wait=0.1)] == [10, 20, 30]
            assert (await source.stats()).depth == 0
            log = await client.queue(f"{name}-log").peek()
            assert [each.payload for each in log] == [b"\x00raw"] * 3

    asyncio.run(main())


def test_a_transaction_that_fails_publishes_nothing_and_nacks(server, name):
    async def main():
        async with Client(server.url) as client:
            source = await client.create_queue(name, backoff={"kind": "none"})
            await source.publish(1)
            seen = []
            async for message in source.consume(wait=0.3):
                seen.append(message.attempt)
                if message.attempt == 1:
                    with pytest.raises(ZeroDivisionError):
                        async with message.transaction() as tx:
                            tx.publish(f"{name}-out", 1)
                            tx.publish(f"{name}-out", 1 // 0)
                    continue
                # Settled behind the transaction's back: its receipt is stale, and it says so.
                server.ask("POST", "/v1/ack", {"receipts": [message.receipt]})
                with pytest.raises(StaleReceipt):
                    async with message.transaction() as tx:
                        tx.publish(f"{name}-out", 2)
            assert seen == [1, 2]
            assert server.ask("GET", f"/v1/stats?queue={name}-out").status == 404

    asyncio.run(main())


def test_the_blocking_twin(server, name):
    give_up(server, name, {"n": 1})
    with penstock.sync.Client(server.url) as client:
        queue = client.queue(name)
        assert queue.dead_letters(filter="payload.n = 1").total == 1
        started = queue.redrive(filter="", dry_run=False)
        while queue.redrives(started.redrive_id)[0].status == "running":
            time.sleep(0.01)
        for message in queue.consume(wait=0.2):
            with message.transaction() as tx:
                tx.publish(f"{name}-out", message.value)
        queue.publish_many([7, 8])
        for batch in queue.consume_batches(wait=0.2):
            done = client.transact(ack=[batch], publish=[(f"{name}-out", value.value, {"key": "k"}) for value in batch])
            assert batch.settled and len(done.messages) == len(batch)
        done = client.transact(publish=[(f"{name}-out", 9), (f"{name}-more", 10)])
        assert [each.duplicate for each in done.messages] == [False, False]
        assert [m.value for m in client.queue(f"{name}-out").consume(wait=0.1)] == [{"n": 1}, 7, 8, 9]


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def penstock_command(server):
    def run(*arguments, input=None, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "dlq", *arguments], input=input, capture_output=True, timeout=60,
            env={**os.environ, "PENSTOCK_URL": server.url, "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode() if code == 0 else done.stderr.decode()

    return run


def test_the_command(server, name, penstock_command):
    ids = give_up(server, name, {"n": 1}, {"n": 2}, {"n": 3}, error="no such customer")
    assert ids[0] in penstock_command(name) and "no such customer" in penstock_command("list", name)
    listed = json.loads(penstock_command("list", name, "--filter", "payload.n > 1", "-o", "json"))
    assert [each["id"] for each in listed["messages"]] == ids[1:]
    assert "dead_at " in penstock_command("show", name, ids[0])
    assert "not among" in penstock_command("show", name, "0" * 26, code=1)
    assert "position 8" in penstock_command("list", name, "-f", "payload ?", code=1)
    assert "2 dead letters would be redriven" in penstock_command("redrive", name, "-f", "payload.n > 1")
    assert server.lease(name) == []
    done = json.loads(penstock_command("redrive", name, "-f", "payload.n > 1", "--run", "-o", "json"))
    assert (done["status"], done["redriven"]) == ("finished", 2)
    assert "give one of" in penstock_command("delete", name, code=2)
    assert "nothing was changed" in penstock_command("delete", name, "--all", input=b"n\n", code=1)
    assert json.loads(penstock_command("delete", name, "--id", ids[0], "--yes", "-o", "json"))["deleted"] == 1


def test_redrives_are_listed_and_stopped_by_hand(server, name, penstock_command):
    assert penstock_command("redrives", name.replace("q", "none"), code=1).startswith("penstock: there is no queue")
    give_up(server, name, *range(100))
    assert penstock_command("redrives", name) == "no redrives\n"
    started = json.loads(
        penstock_command(
            "redrive", name, "--all", "--redrive-id", "slow", "--rate", "1", "--run", "--detach", "-o", "json"
        )
    )
    assert started["status"] == "running"
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], capture_output=True, text=True, timeout=60,
        env={
            **os.environ, "PENSTOCK_URL": server.url, "_PENSTOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": f"penstock dlq stop {name} sl", "COMP_CWORD": "4",
        },
    )  # fmt: skip
    assert done.stdout.split() == ["slow"]
    stopped = json.loads(penstock_command("stop", name, "slow", "-o", "json"))
    assert stopped["status"] == "stopped" and stopped["redriven"] < 100
    header, row = penstock_command("redrives", name).splitlines()
    assert header.split()[:6] == ["redrive_id", "status", "redriven", "skipped", "started_at", "ended_at"]
    assert row.split()[:4] == ["slow", "stopped", str(stopped["redriven"]), "0"] and "Z " in row
    assert json.loads(penstock_command("redrives", name, "-o", "json"))["redrives"] == [stopped]
    again = penstock_command("stop", name, "slow")
    assert ["status", "stopped"] in [line.split() for line in again.splitlines()]
    assert "nowhen" in penstock_command("stop", name, "nowhen", code=1)
