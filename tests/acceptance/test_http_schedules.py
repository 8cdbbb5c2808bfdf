"""Recurring schedules over the wire: HTTP, both shells of the SDK, the command line; and a broker that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from http_server import running

import penstock
import penstock.sync

SECONDS = {"queue": "ticks", "cron": "* * * * * *", "message": {"payload": {"tick": True}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("schedules") / "data") as running_server:
        yield running_server


def fire_times(messages) -> list[int]:
    return [int(message["headers"]["penstock-fire-at-ms"]) for message in messages]


def collect(server, count: int) -> list[int]:
    """Fire times of the next messages, acked as they come."""
    times: list[int] = []
    while len(times) < count:
        messages = server.lease("ticks", wait_ms=20_000)
        assert messages, "nothing came for twenty seconds"
        times += fire_times(messages)
        server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in messages]})
    return times


def test_killed_broker_fires_every_schedule_time_once(tmp_path):
    with running(tmp_path / "data") as server:
        assert server.ask("PUT", "/v1/schedules/ticks", {**SECONDS, "catch_up": "all"}).status == 201
        times = collect(server, 2)
        server.kill()
    with running(tmp_path / "data") as server:
        times += collect(server, 3)
        shown = server.ask("GET", "/v1/schedules/ticks").json
        assert shown["state"] == "active" and shown["fired"] >= len(times)
    assert times == [times[0] + 1000 * number for number in range(len(times))]


def test_schedule_lifecycle_over_http(server):
    body = {"queue": "reports", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "message": {"payload_b64": "AAE="}}
    created = server.ask("PUT", "/v1/schedules/nightly", body)
    assert created.status == 201 and len(created.json["next"]) == 5
    assert server.ask("PUT", "/v1/schedules/nightly", body).status == 200
    assert created.json["message"]["payload_b64"] == "AAE="
    assert server.ask("POST", "/v1/schedules/nightly/pause").json["state"] == "paused"
    assert server.ask("POST", "/v1/schedules/nightly/resume").json["state"] == "active"
    listed = server.ask("GET", "/v1/schedules?prefix=night").json
    assert [each["name"] for each in listed["schedules"]] == ["nightly"] and listed["total"] == 1
    assert server.ask("DELETE", "/v1/schedules/nightly").json == {"name": "nightly", "deleted": True}
    assert server.ask("GET", "/v1/schedules/nightly").status == 404
    assert server.ask("POST", "/v1/schedules/nightly/pause").status == 404
    assert server.ask("PATCH", "/v1/schedules/nightly", {}).status == 405


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cron": "every day"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"colour": "red"}, "colour"),
        ({"message": {"payload": 1, "colour": "red"}}, "colour"),
        ({"message": {}}, "payload"),
        ({"message": {"payload": 1, "priority": "high"}}, "priority"),
        ({"catch_up": "some"}, "catch_up"),
        ({"queue": "No Queue"}, "queue"),
        ({"starts_at_ms": 2, "ends_at_ms": 1}, "ends_at_ms"),
    ],
)
def test_what_is_wrong_is_named(server, change, field):
    refused = server.ask("PUT", "/v1/schedules/wrong", {**SECONDS, **change})
    assert refused.status == 400, refused.body
    assert refused.json["error"]["details"]["field"] == field
    assert server.ask("GET", "/v1/schedules/wrong").status == 404


def test_both_shells_of_the_sdk(server):
    async def story():
        async with penstock.Client(server.url) as client:
            shown = await client.schedules.set("often", "sdk", "* * * * * *", {"n": 1}, key="k", headers={"h": "v"})
            assert shown.state == "active"
            async for message in client.queue("sdk").consume(wait=20):
                async with message:
                    assert message.json() == {"n": 1} and message.key == "k"
                    assert message.headers["penstock-schedule"] == "often" and message.headers["h"] == "v"
                break
            assert (await client.schedules.pause("often")).state == "paused"
            assert [each.name for each in (await client.schedules.list("often")).schedules] == ["often"]
            with pytest.raises(penstock.NotFound):
                await client.schedules.get("never-set")

    asyncio.run(story())
    with penstock.sync.Client(server.url) as client:
        assert client.schedules.get("often").fired >= 1
        assert client.schedules.resume("often").state == "active"
        client.schedules.set("bytes", "sdk", "0 0 * * *", b"\0\1", timezone="Asia/Tokyo", ttl=60)
        assert client.schedules.list("b").schedules[0].message.payload_b64 == "AAE="
        assert client.schedules.delete("often").deleted
        with pytest.raises(penstock.InvalidRequest):
            client.schedules.set("bad", "sdk", "99 * * * *", 1)


def test_the_command_line(server):
    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "penstock", "schedule", *arguments, "--url", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"COLUMNS": "200"})
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "active" in run("set", "by-hand", "cli", "0 3 * * *", '{"a": 1}', "--timezone", "Europe/Berlin")
    assert "by-hand" in run("list")
    assert json.loads(run("show", "by-hand", "-o", "json"))["message"]["payload"] == {"a": 1}
    assert "paused" in run("pause", "by-hand")
    assert "active" in run("resume", "by-hand")
    run("delete", "by-hand")
    assert "there is no schedule" in run("show", "by-hand", code=1)
