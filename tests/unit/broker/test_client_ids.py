"""Ids that clients choose: handles of their messages, free again after a cancel, duplicates for a day and no longer."""

from __future__ import annotations

import pytest
from boxed import boxed

from penstock import limits
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import messages

LATER = parse_queue("later")
DAY_MS = limits.DEDUP_WINDOW_MS
YEAR_MS = 365 * DAY_MS


async def stored(box, payload: bytes, own: bytes, *, delay_ms: int = 0, **options) -> tuple[str, bool]:
    """(message id, whether it is a duplicate)"""
    reply = await box.publish("later", payload, id=[own], delay_ms=[delay_ms], **options)
    (run,) = reply.runs
    return ulid_text(run.id), run.duplicate


@boxed
async def test_own_id_cancels_and_reschedules(box):
    await stored(box, b"1", b"reminder-1", delay_ms=DAY_MS)
    await stored(box, b"2", b"reminder-2", delay_ms=DAY_MS)
    assert await box.broker.scheduled.reschedule(LATER, ids=["reminder-1"], delay_ms=0) == (
        1,
        [("reminder-1", "rescheduled")],
    )
    assert [message.payload for message in await box.lease("later", max=9)] == [b"1"]
    assert await box.broker.scheduled.cancel(LATER, ids=["reminder-2", "reminder-3"]) == (
        1,
        [("reminder-2", "cancelled"), ("reminder-3", "not_found")],
    )


@boxed
async def test_own_id_and_message_id_name_one_message(box):
    own = await stored(box, b"1", b"mine", delay_ms=DAY_MS)
    count, results = await box.broker.scheduled.cancel(LATER, ids=["mine", own[0]])
    assert (count, results) == (1, [("mine", "cancelled"), (own[0], "cancelled")])


@boxed
async def test_own_id_that_looks_like_a_message_id_is_a_handle(box):
    await stored(box, b"1", b"01ARZ3NDEKTSV4RRFFQ69G5FAV", delay_ms=DAY_MS)
    assert (await box.broker.scheduled.cancel(LATER, ids=["01ARZ3NDEKTSV4RRFFQ69G5FAV"]))[0] == 1


@boxed
async def test_own_id_is_explained_and_has_a_history(box):
    message_id, _ = await stored(box, b"1", b"mine", delay_ms=1_000)
    (explained,) = (await box.broker.explanations.explain(LATER, id="mine"))["messages"]
    assert (explained["id"], explained["state"]) == (message_id, "scheduled")
    history = await box.broker.events.history(LATER, id="mine")
    assert (history["id"], [event["kind"] for event in history["events"]]) == (message_id, ["published"])
    (unknown,) = (await box.broker.explanations.explain(LATER, id="nobody's"))["messages"]
    assert unknown["state"] == "not_found"
    nothing = await box.broker.events.history(LATER, id="nobody's")
    assert (nothing["id"], nothing["partition"], nothing["complete"], nothing["events"]) == (
        "nobody's",
        None,
        False,
        [],
    )


@pytest.mark.parametrize("by", ["own id", "message id", "key"])
@boxed
async def test_cancelled_message_frees_its_own_id(box, by):
    message_id, _ = await stored(box, b"1", b"mine", delay_ms=DAY_MS, key=[b"k"])
    which = {"own id": {"ids": ["mine"]}, "message id": {"ids": [message_id]}, "key": {"key": "k"}}[by]
    assert (await box.broker.scheduled.cancel(LATER, **which))[0] == 1
    await box.restart()
    again, duplicate = await stored(box, b"2", b"mine", delay_ms=DAY_MS)
    assert not duplicate and again != message_id
    assert await stored(box, b"3", b"mine") == (again, True)
    await box.broker.scheduled.reschedule(LATER, ids=["mine"], delay_ms=0)
    assert [message.payload for message in await box.lease("later", max=9)] == [b"2"]


@boxed
async def test_message_that_was_not_cancelled_keeps_its_own_id(box):
    message_id, _ = await stored(box, b"1", b"mine")
    (leased,) = await box.lease("later")
    assert (await box.broker.scheduled.cancel(LATER, ids=["mine"]))[1] == [("mine", "in_flight")]
    assert await stored(box, b"1", b"mine") == (message_id, True)
    await box.broker.messages.ack([leased.receipt])
    assert await stored(box, b"1", b"mine") == (message_id, True)


@pytest.mark.parametrize("idle", [True, False])
@boxed
async def test_own_id_is_no_duplicate_after_the_window(box, idle):
    first, _ = await stored(box, b"1", b"mine")
    await box.advance(DAY_MS - 1)
    assert await stored(box, b"1", b"mine") == (first, True)
    await box.advance(YEAR_MS)
    if not idle:
        await stored(box, b"0", b"another")
    again, duplicate = await stored(box, b"2", b"mine")
    assert not duplicate and again != first
    await box.restart()
    assert await stored(box, b"2", b"mine") == (again, True)
    await box.advance(DAY_MS - 1)
    await stored(box, b"0", b"a third")
    assert await stored(box, b"2", b"mine") == (again, True), "its window began with the second message"


@boxed
async def test_number_of_a_producer_is_no_duplicate_after_the_window(box):
    await box.publish("later", b"1", producer=("till", 1, 0))
    await box.advance(DAY_MS + 1)
    (run,) = (await box.publish("later", b"2", producer=("till", 1, 0))).runs
    assert not run.duplicate
    (run,) = (await box.publish("later", b"2", producer=("till", 1, 0))).runs
    assert run.duplicate


@boxed
async def test_own_id_stays_a_handle_while_the_message_waits(box):
    for number in range(5):
        await stored(box, b"%d" % number, b"far-%d" % number, delay_ms=YEAR_MS)
    await stored(box, b"done", b"done")
    (leased,) = await box.lease("later")
    await box.broker.messages.ack([leased.receipt])
    await box.advance(30 * DAY_MS)
    for number in range(20):
        await stored(box, b"%d" % number, b"near-%d" % number, delay_ms=DAY_MS)
    await box.restart()
    assert (await box.broker.scheduled.cancel(LATER, ids=["far-3", "done"]))[1] == [
        ("far-3", "cancelled"),
        ("done", "not_found"),
    ]
    assert (await stored(box, b"again", b"far-4"))[1] is False, "the window is over, so it is another message"
    (explained,) = (await box.broker.explanations.explain(LATER, id="far-4"))["messages"]
    assert explained["state"] == "ready", "the latest message of an id is the one that the id names"


@boxed
async def test_client_ids_of_finished_messages_are_removed(box):
    await box.broker.queues.put(LATER, {})
    for number in range(50):
        await stored(box, b"%d" % number, b"far-%d" % number, delay_ms=2 * DAY_MS)
    await box.advance(DAY_MS + 1)
    await stored(box, b"x", b"x")
    dedup = box.host.loop.shard.queues[1].dedup
    far = [b"far-%d" % number for number in range(50)]
    assert all(map(dedup.place_of, far))
    await box.advance(2 * DAY_MS)
    while leased := await box.lease("later", max=100):
        await box.broker.messages.ack([message.receipt for message in leased])
    for number in range(60):
        await stored(box, b"%d" % number, b"new-%d" % number)
    assert not any(map(dedup.place_of, far))


@boxed
async def test_long_own_id_is_taken_wherever_a_message_id_is(box):
    own = "x" * limits.CLIENT_ID_BYTES_MAX
    await stored(box, b"1", own.encode(), delay_ms=DAY_MS)
    assert (await box.broker.scheduled.cancel(LATER, ids=[own]))[0] == 1
    assert messages((await box.broker.log.read(LATER)).runs) == []
