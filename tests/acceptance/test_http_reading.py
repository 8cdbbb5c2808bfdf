"""Scopes, windows and kept offsets over the wire: HTTP, both shells of the SDK, the command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from http_server import running

import penstock
import penstock.sync


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("reading") / "data") as running_server:
        yield running_server


def test_a_scope_drains_what_is_more_important_first(server):
    for name, priority in (("low", -5), ("high", 5)):
        server.ask("PUT", f"/v1/queues/mail/news/{name}", {"queue_priority": priority})
        server.publish(f"mail/news/{name}", *[f"{name}-{number}" for number in range(3)])
    answer = server.ask("POST", "/v1/lease", {"scope": "mail", "max": 5})
    found = [(message["queue"], message["payload"]) for message in answer.json["messages"]]
    assert found == [("mail/news/high", f"high-{number}") for number in range(3)] + [
        ("mail/news/low", f"low-{number}") for number in range(2)
    ]
    receipts = [message["receipt"] for message in answer.json["messages"]]
    answer = server.ask("POST", "/v1/lease", {"scope": "mail/news", "max": 5, "ack": receipts})
    assert [result["status"] for result in answer.json["results"]] == ["acked"] * 5
    assert [message["payload"] for message in answer.json["messages"]] == ["low-2"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"scope": ""}, "scope"), ({"scope": "a/b/c"}, "scope"), ({"scope": "a", "queue": "b"}, "queue"), ({}, "queue")],
)
def test_a_scope_is_named_and_no_queue_beside_it(server, body, field):
    refused = server.ask("POST", "/v1/lease", body)
    assert refused.status == 400 and refused.json["error"]["details"]["field"] == field


def test_waiting_scope_lease_gets_messages_of_a_new_queue(server):
    async def story():
        async with penstock.Client(server.url) as client:
            consumer = client.scope("fresh").consume(prefetch=1, wait=30)
            first = asyncio.ensure_future(anext(consumer))
            while not (await client.summary()).waiting_consumers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await client.queue("fresh/a/b").publish({"n": 1})
            async with await first as message:
                assert (message.queue, message.value) == ("fresh/a/b", {"n": 1})
            await consumer.aclose()

    asyncio.run(story())


def test_the_blocking_shell_and_the_command_line_consume_a_scope(server):
    with penstock.sync.Client(server.url) as client:
        client.create_queue("shop/orders/urgent", queue_priority=9)
        client.queue("shop/orders/plain").publish(1)
        client.queue("shop/orders/urgent").publish(2)
        for batch in client.scope("shop/orders").consume_batches(wait=5):
            assert batch.values() == [2, 1]
            batch.ack()
            break
        client.queue("shop/orders/plain").publish(3)
    command = [sys.executable, "-m", "penstock", "consume", "--scope", "shop", "--max", "1", "--url", server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    for wrong in (["consume"], ["consume", "q", "--scope", "s"]):
        command = [sys.executable, "-m", "penstock", *wrong, "--url", server.url]
        assert subprocess.run(command, capture_output=True, timeout=60, env=os.environ).returncode == 2


def test_a_window_collects(server):
    server.ask("PUT", "/v1/queues/buffered", {"window_ms": 700})
    first = server.publish("buffered", 1)
    assert server.lease("buffered") == []
    server.publish("buffered", 2)
    messages = server.lease("buffered", wait_ms=20_000)
    assert [message["payload"] for message in messages] == [1, 2]
    newest = messages[-1]["published_at_ms"]
    # Of the lease: when it was given, by the server's own clock.
    assert messages[0]["deadline_at_ms"] - 30_000 >= newest + 700
    assert first[0]["queue"] == "default/default/buffered"


def test_reader_gets_its_stored_offset(server):
    server.ask("PUT", "/v1/queues/log", {"retention": {"mode": "keep"}})
    stored = server.publish("log", *range(10))
    answer = server.ask("GET", f"/v1/read?queue=log&offset=after:{stored[6]['id']}").json
    assert [message["payload"] for message in answer["messages"]] == [7, 8, 9] and answer["skipped"] == 0
    kept = server.ask("POST", "/v1/offsets", {"queue": "log", "client_id": "ada", "offsets": {"0": 8}})
    assert kept.status == 200 and kept.json["offsets"] == {"0": 8}
    assert server.ask("GET", "/v1/offsets?queue=log&client_id=ada").json == kept.json
    answer = server.ask("GET", "/v1/read?queue=log&offset=kept&client_id=ada").json
    assert [message["payload"] for message in answer["messages"]] == [8, 9]
    for target, field in [
        ("/v1/read?queue=log&offset=kept", "client_id"),
        ("/v1/read?queue=log&offset=id:short", "offset"),
        ("/v1/read?queue=log&client_id=-x", "client_id"),
    ]:
        refused = server.ask("GET", target)
        assert refused.status == 400 and refused.json["error"]["details"]["field"] == field
    for body, field in [
        ({"offsets": {"0": 99}}, "offsets"),
        ({"offsets": {"7": 0}}, "offsets"),
        ({"offsets": {"x": 0}}, "offsets"),
        ({"offsets": {"0": -1}}, "offsets"),
        ({"offsets": {"0": 1, "00": 2}}, "offsets"),
        ({"offsets": {"0": 1}, "client_id": ""}, "client_id"),
    ]:
        refused = server.ask("POST", "/v1/offsets", {"queue": "log", "client_id": "ada", **body})
        assert refused.status == 400 and refused.json["error"]["details"]["field"] == field, refused.body
    assert server.ask("DELETE", "/v1/offsets?queue=log&client_id=ada").json["offsets"] == {}


def test_following_resumes_at_the_stored_offset(server):
    async def story():
        async with penstock.Client(server.url) as client:
            queue = await client.create_queue("followed", retention={"mode": "keep"})
            await queue.publish_many(range(10))
            async for batch in queue.follow(client_id="ada", max=4, wait=0):
                if batch.values()[0] == 4:
                    break  # in the middle of it: it comes again
            assert await queue.offsets("ada") == {0: 4}
            seen = []
            async for batch in queue.follow(client_id="ada", max=4, wait=0):
                seen += batch.values()
                assert batch.skipped == 0
            assert seen == [4, 5, 6, 7, 8, 9]
            assert await queue.offsets("ada") == {0: 10}
            assert (await queue.read(offset="earliest", client_id="ada")).values()[0] == 0

    asyncio.run(story())
    with penstock.sync.Client(server.url) as client:
        queue = client.queue("followed")
        assert queue.offsets("ada") == {0: 10}
        assert queue.keep_offsets("ada", {0: 9}) == {0: 9}
        assert [batch.values() for batch in queue.follow(client_id="ada", wait=0)] == [[9]]
        assert queue.forget_offsets("ada") == {}
        assert len(queue.read(client_id="ada")) == 10
