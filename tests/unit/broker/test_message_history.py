"""The history of a message from the journal, compared with the replies of its clients."""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any

import pytest

from penstock import limits
from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import QueueNotFound, Unavailable
from penstock.ids import parse_queue, ulid_text
from penstock.runtime import history as runtime
from penstock.testing.inprocess import InProcess, in_process

ORDERS = parse_queue("orders")


def engines(path):
    memory = MemoryEngine()
    return {"memory": lambda: memory, "local": lambda: LocalEngine(str(path), fsync="never", segment_bytes=3000)}


def with_broker(test=None, **options):
    if test is None:
        return functools.partial(with_broker, **options)

    @pytest.mark.parametrize("engine", ["memory", "local"])
    def wrapped(engine, tmp_path):
        async def run() -> None:
            async with in_process(engines(tmp_path)[engine], **options) as box:
                await test(box)

        asyncio.run(run())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


async def published(box: InProcess, *payloads: bytes, **columns: Any) -> list[str]:
    found = [""] * len(payloads)
    for run in (await box.publish("orders", *payloads, **columns)).runs:
        for row, position in enumerate(run.rows or range(run.count)):
            found[position] = ulid_text(run.id + row)
    return found


async def told(box: InProcess, message_id: str) -> list[dict[str, Any]]:
    answer = await box.broker.events.history(ORDERS, id=message_id)
    assert (answer["queue"], answer["id"], answer["complete"]) == (ORDERS, message_id, True)
    return answer["events"]


async def kinds(box: InProcess, message_id: str) -> list[str]:
    return [event["kind"] for event in await told(box, message_id)]


async def confirmed(call) -> None:
    with pytest.raises(Exception) as refused:
        await call(ORDERS)
    await call(ORDERS, confirm=refused.value.details["confirm"])


@with_broker
async def test_history_with_all_kinds_of_events(box):
    await box.broker.queues.put(ORDERS, {"max_retries": 2, "backoff": {"kind": "fixed", "base_ms": 500, "jitter": 0}})
    start = box.clock.now_ms()
    message, _ = await published(box, b"secret", b"other", delay_ms=[1000, 0])
    await box.advance(100)
    await box.broker.scheduled.reschedule(ORDERS, ids=[message], delay_ms=400)
    await box.advance(400)
    leased, _ = await box.lease("orders", max=2, consumer="a", lease_ms=1000)
    await box.broker.messages.extend([leased.receipt], lease_ms=2000)
    await box.broker.messages.release([leased.receipt])
    await box.lease("orders", consumer="b", lease_ms=700)
    await box.advance(700)
    await box.advance(500)
    (leased,) = [each for each in await box.lease("orders", max=9, consumer="c") if each.id == message]
    await box.broker.messages.nack([leased.receipt], error="it broke")
    await box.advance(500)
    (leased,) = [each for each in await box.lease("orders", max=9, consumer="d") if each.id == message]
    await box.broker.messages.reject([leased.receipt], error="hopeless")
    events = await told(box, message)
    of_group = {"group": "default"}
    assert events == [
        {"kind": "published", "at_ms": start, "due_at_ms": start + 1000},
        {"kind": "rescheduled", "at_ms": start + 100, "due_at_ms": start + 500},
        {"kind": "leased", "at_ms": start + 500, **of_group, "consumer": "a", "lease": 1, "attempt": 1,
         "deadline_at_ms": start + 1500},
        {"kind": "extended", "at_ms": start + 500, **of_group, "consumer": "a", "lease": 1, "attempt": 1,
         "deadline_at_ms": start + 2500},
        {"kind": "released", "at_ms": start + 500, **of_group, "consumer": "a", "lease": 1, "attempt": 1},
        {"kind": "leased", "at_ms": start + 500, **of_group, "consumer": "b", "lease": 2, "attempt": 1,
         "deadline_at_ms": start + 1200},
        {"kind": "retried", "at_ms": start + 1200, **of_group, "consumer": "b", "lease": 2, "attempt": 1,
         "reason": "lease_expired", "due_at_ms": start + 1700},
        {"kind": "leased", "at_ms": start + 1700, **of_group, "consumer": "c", "lease": 3, "attempt": 2,
         "deadline_at_ms": start + 31_700},
        {"kind": "retried", "at_ms": start + 1700, **of_group, "consumer": "c", "lease": 3, "attempt": 2,
         "reason": "nack", "error": "it broke", "due_at_ms": start + 2200},
        {"kind": "leased", "at_ms": start + 2200, **of_group, "consumer": "d", "lease": 4, "attempt": 3,
         "deadline_at_ms": start + 32_200},
        {"kind": "dead_lettered", "at_ms": start + 2200, **of_group, "consumer": "d", "lease": 4, "attempt": 3,
         "reason": "rejected", "error": "hopeless"},
    ]  # fmt: skip
    assert "secret" not in repr(await box.broker.events.history(ORDERS, id=message))


@with_broker
async def test_other_ends(box):
    await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep", "ms": 5000}})
    acked, cancelled, expired, kept = await published(box, *[b"x"] * 4, ttl_ms=[0, 0, 700, 0])
    (leased,) = await box.lease("orders", group="g")
    await box.broker.messages.ack([leased.receipt])
    await box.broker.scheduled.cancel(ORDERS, ids=[cancelled])
    await box.advance(700)
    assert await kinds(box, acked) == ["published", "leased", "acked"]
    assert await kinds(box, cancelled) == ["published", "cancelled"]
    assert await kinds(box, expired) == ["published", "expired"]
    await box.advance(6000)
    (young,) = await published(box, b"y")
    await box.host.upkeep._retain()
    assert await kinds(box, kept) == ["published", "trimmed"]
    await confirmed(box.broker.queues.purge)
    assert await kinds(box, kept) == ["published", "trimmed", "purged"]
    assert await kinds(box, young) == ["published", "purged"]
    (later,) = await published(box, b"z")
    assert await kinds(box, later) == ["published"]


@with_broker
async def test_history_separates_groups_and_restarts(box):
    (message,) = await published(box, b"x")
    await box.lease("orders", group="one", consumer="w", lease_ms=5000)
    await box.lease("orders", group="two")
    await box.advance(1000)
    await box.restart()
    now = box.clock.now_ms()
    events = await told(box, message)
    assert [event["kind"] for event in events] == ["published", *["leased"] * 2, *["lease_restarted"] * 2]
    assert [event.get("group") for event in events] == [None, "one", "two", "one", "two"]
    assert (events[3]["consumer"], events[3]["deadline_at_ms"]) == ("w", now + 5000)


@with_broker
async def test_at_most_once_ends_with_its_delivery(box):
    await box.broker.queues.put(ORDERS, {"delivery": "at_most_once"})
    (message,) = await published(box, b"x")
    await box.lease("orders", consumer="w")
    (_, event) = await told(box, message)
    assert (event["kind"], event["reason"], event["consumer"]) == ("leased", "at_most_once", "w")
    assert "deadline_at_ms" not in event


@with_broker
async def test_unknown(box):
    await published(box, b"x")
    with pytest.raises(QueueNotFound):
        await box.broker.events.history(parse_queue("nowhere"), id=ulid_text(1))
    nothing = {"queue": ORDERS, "partition": None, "offset": None, "events": [], "complete": True}
    now = box.clock.now_ms()
    for value in (0, (now - 1) << 80, (now << 80) + 5, (now + 10**9) << 80):
        assert await box.broker.events.history(ORDERS, id=ulid_text(value)) == {**nothing, "id": ulid_text(value)}


# -- trimming ----------------------------------------------------------------------------------------------------------


@with_broker(segments_kept=1, hot_bytes=2000)
async def test_trimmed_beginning_of_a_history_is_reported(box):
    (message,) = await published(box, b"x")
    (leased,) = await box.lease("orders", consumer="w", lease_ms=60_000)
    for _ in range(3):
        await published(box, *[bytes(300)] * 10)
        await box.host.upkeep.round()
    assert await box.host.journal.first_kept() > 3
    await box.broker.messages.extend([leased.receipt], lease_ms=90_000)
    answer = await box.broker.events.history(ORDERS, id=message)
    assert not answer["complete"]
    assert [event["kind"] for event in answer["events"]] == ["published", "extended"]
    assert answer["events"][1]["consumer"] == "w", "the lease is still known"
    await box.broker.messages.ack([leased.receipt])
    answer = await box.broker.events.history(ORDERS, id=message)
    assert [event["kind"] for event in answer["events"]] == ["published", "acked"]
    assert not answer["complete"], "whose lease was extended is no longer known"
    gone = ulid_text(5)
    assert not (await box.broker.events.history(ORDERS, id=gone))["complete"], "events before the journal are unknown"


@with_broker(segments_kept=1, segment_bytes=3000, hot_bytes=2000)
async def test_searching_while_everything_goes_on(box):
    """Commits, trimming, and searches that take turns with them: whatever is told is true, and told once."""
    chance = random.Random(7)
    lives: dict[str, list[str]] = {}
    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            for message in await published(box, *[bytes(chance.randint(1, 200)) for _ in range(3)]):
                lives[message] = ["published"]
            for each in await box.lease("orders", max=3):
                lives[each.id].append("leased")
                if chance.random() < 0.7:
                    await box.broker.messages.ack([each.receipt])
                    lives[each.id].append("acked")
                else:
                    await box.broker.messages.release([each.receipt])
                    lives[each.id].append("released")

    async def search() -> None:
        complete = 0
        while complete < 10 or not box.host.upkeep.rounds:
            await asyncio.sleep(0)
            if not lives:
                continue
            message = chance.choice(list(lives)[-6:])
            before = list(lives[message])
            answer = await box.broker.events.history(ORDERS, id=message)
            events = [event["kind"] for event in answer["events"]]
            if answer["complete"]:
                complete += 1
                assert events[: len(before)] == before
                assert lives[message][: len(events)] == events[: len(lives[message])]
            elif events:
                assert events[0] == "published"

    worker = asyncio.ensure_future(work())
    await asyncio.gather(*[search() for _ in range(3)])
    stop.set()
    await worker


# -- bounds ------------------------------------------------------------------------------------------------------------


@with_broker
async def test_others_have_their_turn_and_too_many_are_refused(box):
    (message,) = await published(box, b"x")
    for _ in range(200):
        await published(box, b"y")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(other())
    searches = [
        asyncio.ensure_future(box.broker.events.history(ORDERS, id=message)) for _ in range(limits.HISTORY_SEARCHES_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await box.broker.events.history(ORDERS, id=message)
    answers = await asyncio.gather(*searches)
    ticking.cancel()
    assert all(answer == answers[0] for answer in answers)
    assert turns > 4 * len(searches), "a search gives way several times"
    assert await kinds(box, message) == ["published"]


@with_broker
async def test_long_history_drops_its_oldest_events(box):
    (message,) = await published(box, b"x")
    lives = limits.HISTORY_EVENTS_MAX // 2 + 5
    for _ in range(lives):
        (leased,) = await box.lease("orders")
        await box.broker.messages.release([leased.receipt])
    answer = await box.broker.events.history(ORDERS, id=message)
    assert not answer["complete"] and len(answer["events"]) == limits.HISTORY_EVENTS_MAX
    assert answer["events"][-1]["kind"] == "released"


@with_broker
async def test_a_search_ends_when_the_broker_does(box):
    (message,) = await published(box, b"x")
    for _ in range(200):
        await published(box, b"y")
    search = asyncio.ensure_future(box.broker.events.history(ORDERS, id=message))
    await asyncio.sleep(0)
    box.broker.stop_waiting()
    with pytest.raises(Unavailable):
        await search


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_what_cannot_matter_is_passed_over(tmp_path, engine, monkeypatch):
    """Files that ended before the message was published are not read."""

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine]) as box:
            for _ in range(100):
                await published(box, bytes(200))
            await box.advance(runtime.CLOCK_SLACK_MS + 1000)
            (message,) = await published(box, b"x")
            looked = 0
            follow = runtime.Trail.follow

            def counted(self, record):
                nonlocal looked
                looked += 1
                follow(self, record)

            monkeypatch.setattr(runtime.Trail, "follow", counted)
            assert await kinds(box, message) == ["published"]
            assert looked < 30

    asyncio.run(run())
