"""Durations, moments and positions as users pass them, and the default name of a consumer."""

from __future__ import annotations

import math
import os
import socket
from datetime import UTC, datetime, timedelta

import pytest
from both_clients import both_clients

from penstock import Assigned, InvalidRequest, Retry, sync
from penstock.client.units import milliseconds, moment, position, seconds

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
NOON_MS = 1_795_003_200_000


@pytest.mark.parametrize("half_a_minute", [30, 30.0, timedelta(seconds=30)])
def test_a_duration_is_seconds_or_a_timedelta(half_a_minute):
    assert milliseconds("delay", half_a_minute, 60_000) == 30_000
    assert seconds("timeout", half_a_minute) == 30.0
    with pytest.raises(InvalidRequest, match=r"outside 0\.0 to"):
        milliseconds("delay", half_a_minute, 29_000)


@pytest.mark.parametrize("value", ["30", None, True, math.nan, -1, timedelta(seconds=-1)])
def test_other_values_are_no_durations(value):
    for convert in (seconds, lambda name, each: milliseconds(name, each, 60_000)):
        with pytest.raises(InvalidRequest) as refused:
            convert("delay", value)
        assert refused.value.details == {"field": "delay"}


def test_only_seconds_may_be_endless():
    assert seconds("retry_for", math.inf) == math.inf
    with pytest.raises(InvalidRequest):
        milliseconds("delay", math.inf, 60_000)


def test_a_moment_and_a_position_may_be_datetimes():
    assert moment("deliver_at", NOON) == moment("deliver_at", NOON.timestamp()) == NOON_MS
    assert position("offset", NOON) == f"at:{NOON_MS}"
    assert [position("offset", where) for where in (7, "latest")] == [7, "latest"]
    with pytest.raises(InvalidRequest, match="offset: a datetime needs a time zone"):
        position("offset", NOON.replace(tzinfo=None))


def test_every_duration_of_a_client_may_be_a_timedelta():
    second = timedelta(seconds=1)
    with sync.Client("http://127.0.0.1:1", timeout=second, connect_timeout=second, retry_for=second) as client:
        client.queue("q").consume(lease=second, wait=second, assigned=Assigned(session=10 * second, drain=second))
        client.worker("q", timeout=second, lease=second)(print_value)
    assert Retry(delay=second).delay == second
    with pytest.raises(InvalidRequest, match="timeout"):
        sync.Client("http://127.0.0.1:1", timeout=-1)


def print_value(value: str) -> None:
    print(value)


@both_clients
async def test_the_log_is_read_from_a_time_on(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    await ask(log.publish("before"))
    broker.advance(60)
    placed = await ask(log.publish("after"))
    (message,) = await ask(log.read(offset=placed.offset))
    since = message.published_at
    assert (await ask(log.read(offset=since))).values() == ["after"]
    assert (await ask(log.read(offset=since - timedelta(seconds=90)))).values() == ["before", "after"]
    await ask(log.create_group("late", start=since))
    assert (await ask(log.seek_group("late", since - timedelta(seconds=90)))).again == 1


@both_clients
async def test_messages_are_delayed_by_a_timedelta_or_until_a_datetime(broker, client, ask):
    queue = await ask(client.create_queue("q"))
    placed = await ask(queue.publish("now"))
    (message,) = await ask(queue.read(offset=placed.offset))
    await ask(queue.publish("in a minute", delay=timedelta(minutes=1)))
    await ask(queue.publish("then", deliver_at=message.published_at + timedelta(minutes=2)))
    assert (await ask(queue.stats())).scheduled == 2
    broker.advance(61)
    assert (await ask(queue.stats())).scheduled == 1
    broker.advance(60)
    assert (await ask(queue.stats())).scheduled == 0


@both_clients
async def test_a_consumer_is_named_after_its_host_and_process(broker, client, ask):
    queue = client.queue("q")
    placed = await ask(queue.publish(1))
    consumer = queue.consume(wait=0)
    message = await ask(anext(consumer)) if hasattr(consumer, "__anext__") else next(consumer)
    leases = [event for event in (await ask(queue.history(placed.id))).events if event.kind == "leased"]
    assert [event.consumer for event in leases] == [f"{socket.gethostname()}-{os.getpid()}"]
    await ask(message.ack())
