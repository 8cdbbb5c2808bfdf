"""Dead letters through the facade: looked at, brought back, copied elsewhere, deleted, kept within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest
from patience import until

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.types import PublishPart
from penstock.core.invariants import check as check_invariants
from penstock.errors import Conflict, InvalidRequest, NotFound
from penstock.ids import parse_queue, ulid_text
from penstock.journal.port import OutOfSpace
from penstock.testing.inprocess import messages
from tests.unit.broker.test_broker import with_broker

ORDERS, FIXED = parse_queue("orders"), parse_queue("fixed")
FAST = limits.REDRIVE_RATE_MAX


async def give_up(box, count: int, queue: str = "orders", *, error: str = "no {n}", group: str = "default", **columns):
    """Publish so many JSON messages and have them rejected, one by one, a millisecond apart."""
    payloads = [json.dumps({"n": n, "order": {"total": n * 10}}).encode() for n in range(count)]
    named = {getattr(layout, name.upper()): values for name, values in columns.items()}
    await box.broker.messages.publish([PublishPart(parse_queue(queue), Batch.open(build(payloads, columns=named)))])
    for message in await box.lease(queue, max=count, group=group):
        await box.broker.messages.reject([message.receipt], error=error.format(n=json.loads(message.payload)["n"]))
        await box.advance(1)


async def numbers(box, queue=ORDERS, **options) -> list[int]:
    page = await box.broker.dead_letters.page(queue, **options)
    return [json.loads(found.run.batch.payload(0))["n"] for found in page["dead_letters"]]


async def ended(box, redrive_id: str, queue=ORDERS) -> dict:
    for _ in range(10_000):
        (redrive,) = box.broker.redrives.list(queue, redrive_id)["redrives"]
        if redrive["status"] != "running":
            return redrive
        await asyncio.sleep(0)
    raise AssertionError(f"still under way: {redrive}")


async def redrive(box, redrive_id: str = "r", **options) -> dict:
    options = {"rate_per_s": FAST, "dry_run": False, **options}
    await box.broker.redrives.start(ORDERS, redrive_id=redrive_id, **options)
    return await ended(box, redrive_id)


# -- looking ----------------------------------------------------------------------------------------------------------


@with_broker
async def test_filters_find_what_they_name(box):
    headers = [b'{"tenant":"acme"}', b'{"tenant":"umbrella"}', b"", b""]
    await give_up(box, 4, key=[b"a", b"b", b"", b"a"], headers=headers)
    await box.lease("orders", group="other")
    await box.advance(60_000)
    await give_up(box, 1, error="Read timeout", queue="orders")
    assert await numbers(box, filter="age > 30s") == [0, 1, 2, 3]
    assert await numbers(box, filter='error ~ "TIMEOUT"') == [0]
    assert await numbers(box, filter='key = "a"') == [0, 3]
    assert await numbers(box, filter='header.tenant = "umbrella"') == [1]
    assert await numbers(box, filter="payload.order.total >= 20") == [2, 3]
    assert await numbers(box, filter='reason = "rejected" and attempts = 1 and redriven = 0', limit=2) == [0, 1]
    assert await numbers(box, group="other") == []
    assert await numbers(box, group="default", limit=500) == [0, 1, 2, 3, 0]
    (found,) = (await box.broker.dead_letters.page(ORDERS, filter='error ~ "timeout"'))["dead_letters"]
    assert await numbers(box, filter=f'id = "{messages([found.run])[0].id}"') == [0]


@with_broker
async def test_bytes_that_are_not_json_have_no_payload_to_filter_by(box):
    await box.publish("orders", b"\xff\xfe")
    (message,) = await box.lease("orders")
    await box.broker.messages.reject([message.receipt])
    assert (await box.broker.dead_letters.page(ORDERS, filter="payload = null"))["total"] == 1
    assert (await box.broker.dead_letters.page(ORDERS, filter="payload.a = 1"))["total"] == 0


@with_broker
async def test_pages_follow_each_other_and_stay_while_letters_come_and_go(box):
    await box.broker.queues.put(ORDERS, {"partitions": 3})
    await give_up(box, 9, key=[b"%d" % n for n in range(9)])
    everything = await numbers(box, limit=9)
    assert sorted(everything) == list(range(9))
    assert [n for page in (1, 2, 3) for n in await numbers(box, page=page, limit=4)] == everything
    first = await box.broker.dead_letters.page(ORDERS, limit=4)
    assert first["total"] == 9
    await box.broker.dead_letters.delete(
        ORDERS, filter="payload.n = 2", confirm=await token(box, filter="payload.n = 2")
    )
    seen, after = everything[:4], first["next"]
    while after is not None:
        page = await box.broker.dead_letters.page(ORDERS, limit=3, after=after)
        seen += [json.loads(found.run.batch.payload(0))["n"] for found in page["dead_letters"]]
        after = page["next"]
    assert [n for n in seen if n != 2] == [n for n in everything if n != 2]
    assert (await box.broker.dead_letters.page(ORDERS, page=4, limit=4))["dead_letters"] == []
    for wrong in ({"after": "x"}, {"after": "1.2.3"}, {"after": "0.0.0.0", "page": 2}):
        with pytest.raises(InvalidRequest):
            await box.broker.dead_letters.page(ORDERS, **wrong)


@with_broker
async def test_filtered_page_is_bounded_and_has_a_cursor(box, monkeypatch=None):
    await give_up(box, 12)
    before, limits.SCAN_LETTERS_MAX = limits.SCAN_LETTERS_MAX, 5
    from penstock.broker import deadletters

    step, deadletters.STEP_COST = deadletters.STEP_COST, 2
    try:
        found, after, pages = [], None, 0
        while pages == 0 or after is not None:
            page = await box.broker.dead_letters.page(ORDERS, filter="payload.n >= 7", after=after)
            found += [json.loads(each.run.batch.payload(0))["n"] for each in page["dead_letters"]]
            after, pages = page["next"], pages + 1
            assert page["total"] is None
        assert found == [7, 8, 9, 10, 11] and pages >= 2
    finally:
        limits.SCAN_LETTERS_MAX, deadletters.STEP_COST = before, step


# -- bringing back ----------------------------------------------------------------------------------------------------


@with_broker
async def test_a_dry_run_counts_and_shows_and_moves_nothing(box):
    await give_up(box, 15)
    reply = await box.broker.redrives.start(ORDERS, filter="payload.n < 12")
    assert (reply["dry_run"], reply["count"], len(reply["sample"])) == (True, 12, 10)
    assert box.broker.redrives.list(ORDERS) == {"redrives": []}
    assert (await box.broker.dead_letters.page(ORDERS))["total"] == 15


@with_broker
async def test_redriven_messages_return_to_their_group_only(box):
    await box.publish("orders", b"1", b"2")
    await box.lease("orders", group="audit", max=2)
    taken = await box.lease("orders", max=2)
    await box.broker.messages.reject([message.receipt for message in taken], error="no")
    assert (await redrive(box, filter=""))["redriven"] == 2
    back = await box.lease("orders", max=5)
    assert [(m.id, m.offset, m.payload, m.attempt) for m in back] == [(m.id, m.offset, m.payload, 1) for m in taken]
    assert await box.lease("orders", group="audit", max=5) == []
    stats = await box.broker.stats.queue(ORDERS)
    assert (stats["dead"], stats["totals"]["redriven"]) == (0, 2)
    check_invariants(box.host.loop.shard)


@with_broker
async def test_redrive_continues_without_its_caller(box):
    await give_up(box, 3)
    asking = asyncio.ensure_future(
        box.broker.redrives.start(ORDERS, filter="", rate_per_s=FAST, dry_run=False, redrive_id="left alone")
    )
    await asyncio.sleep(0)
    asking.cancel()
    done = await ended(box, "left alone")
    assert (done["status"], done["redriven"]) == ("finished", 3)


@with_broker
async def test_an_id_makes_a_redrive_happen_once(box):
    await give_up(box, 3)
    first = await redrive(box, "once", filter="")
    assert (first["status"], first["redriven"]) == ("finished", 3)
    for message in await box.lease("orders", max=3):
        await box.broker.messages.reject([message.receipt], error="again")
    again = await box.broker.redrives.start(ORDERS, filter="", rate_per_s=FAST, dry_run=False, redrive_id="once")
    assert again == {**first, "dry_run": False}
    assert (await box.broker.dead_letters.page(ORDERS))["total"] == 3
    with pytest.raises(Conflict):
        await box.broker.redrives.start(ORDERS, filter="age > 1h", dry_run=False, redrive_id="once")
    await box.restart()
    assert await redrive(box, "once", filter="") == first
    assert (await redrive(box, "twice", filter=""))["redriven"] == 3
    (found,) = await box.lease("orders", max=1)
    await box.broker.messages.reject([found.receipt])
    (letter,) = (await box.broker.dead_letters.page(ORDERS))["dead_letters"]
    assert letter.letter.redriven == 2


@with_broker
async def test_an_id_stands_for_the_messages_it_was_given(box):
    await give_up(box, 3)
    ids = [ulid_text(found.run.id) for found in (await box.broker.dead_letters.page(ORDERS))["dead_letters"]]
    first = await redrive(box, "fix", ids=ids[:2])
    assert (first["status"], first["redriven"]) == ("finished", 2)
    for _ in range(2):
        assert await redrive(box, "fix", ids=[ids[1], ids[0]]) == first
        for others in (ids[2:], ids[:1], ids):
            with pytest.raises(Conflict, match="other terms"):
                await redrive(box, "fix", ids=others)
        await box.restart()
    assert (await box.broker.dead_letters.page(ORDERS))["total"] == 1


@with_broker
async def test_by_ids_and_by_group(box):
    await box.publish("orders", b"1", b"2", b"3")
    taken = [message for group in ("a", "b") for message in await box.lease("orders", group=group, max=3)]
    await box.broker.messages.reject([message.receipt for message in taken])
    ids = [message.id for message in taken[:3]]
    assert (await redrive(box, "one", ids=ids[:1], group="a"))["redriven"] == 1
    assert (await redrive(box, "two", ids=[ids[0], ids[2], ids[2], "0" * 26]))["redriven"] == 3
    assert [m.payload for m in await box.lease("orders", group="a", max=9)] == [b"1", b"3"]
    assert [m.payload for m in await box.lease("orders", group="b", max=9)] == [b"1", b"3"]
    with pytest.raises(NotFound, match="has no group 'nobody'") as caught:
        await redrive(box, "nobody", filter="", group="nobody")
    assert caught.value.details == {"field": "group"}
    for wrong in ({}, {"filter": "", "ids": ids}, {"ids": ["x"]}, {"filter": "("}):
        with pytest.raises(InvalidRequest):
            await box.broker.redrives.start(ORDERS, **wrong)


@with_broker
async def test_a_redrive_with_a_delay_waits(box):
    await give_up(box, 1)
    await redrive(box, filter="", delay_ms=5_000)
    assert await box.lease("orders") == []
    await box.advance(5_000)
    assert len(await box.lease("orders")) == 1


@with_broker
async def test_redriven_copies_have_no_delivery_state(box):
    columns = {
        "priority": [7, 0], "ttl_ms": [60_000, 0], "max_retries": [2, -1], "key": [b"user-42", b""],
        "id": [b"order-1", b""], "headers": [b'{"trace":"abc"}', b""], "tenant": [b"acme", b""],
        "deliver_at_ms": [box.clock.now_ms() - 1, 0],
    }  # fmt: skip
    await give_up(box, 2, **columns)
    letters = (await box.broker.dead_letters.page(ORDERS))["dead_letters"]
    await box.publish("fixed", b"there already", id=[b"order-1"])
    done = await redrive(box, filter="", target=FIXED, delay_ms=10)
    assert (done["redriven"], done["target"]) == (2, FIXED)
    assert (await box.broker.dead_letters.page(ORDERS))["total"] == 0
    assert [message.payload for message in await box.lease("fixed", max=9)] == [b"there already"]
    await box.advance(10)
    (run,) = (await box.broker.messages.lease(FIXED, max=9)).runs
    batch = run.batch
    assert batch.payloads() == [found.run.batch.payload(0) for found in letters] and batch.is_json(0)
    assert list(batch.integers(layout.PRIORITY)) == [7, 0]
    assert list(batch.integers(layout.TTL_MS)) == [60_000, 0]
    assert list(batch.integers(layout.MAX_RETRIES)) == [2, -1]
    assert batch.strings(layout.KEY) == [b"user-42", b""] and batch.strings(layout.TENANT) == [b"acme", b""]
    assert not batch.has(layout.ID) and not batch.has(layout.DELIVER_AT_MS)
    came_from = {
        "penstock-dead-queue": ORDERS, "penstock-dead-id": messages([letters[0].run])[0].id,
        "penstock-dead-group": "default", "penstock-dead-reason": "rejected", "penstock-redrive": "r",
    }  # fmt: skip
    assert json.loads(batch.string(layout.HEADERS, 0)) == {"trace": "abc", **came_from}


@with_broker
async def test_only_redriven_copies_may_change_priority(box):
    await give_up(box, 1)
    with pytest.raises(InvalidRequest) as caught:
        await box.broker.redrives.start(ORDERS, filter="", priority=5)
    assert caught.value.details == {"field": "priority"}
    with pytest.raises(InvalidRequest):
        await box.broker.redrives.start(ORDERS, filter="", priority=5, target=ORDERS)
    await redrive(box, filter="", priority=5, target=FIXED)
    (run,) = (await box.broker.messages.lease(FIXED)).runs
    assert list(run.batch.integers(layout.PRIORITY)) == [5]


@with_broker
async def test_a_priority_that_the_target_has_no_lane_for_is_refused(box):
    await give_up(box, 1)
    await box.broker.queues.put(FIXED, {"order": "lanes"})
    for wrong in (5, 99, -1):
        for dry_run in (True, False):
            with pytest.raises(InvalidRequest, match=f"{wrong} is not a lane of the queue") as caught:
                await box.broker.redrives.start(ORDERS, filter="", priority=wrong, target=FIXED, dry_run=dry_run)
            assert caught.value.details == {"field": "priority"}
    assert box.broker.redrives.list(ORDERS)["redrives"] == []
    assert (await redrive(box, filter="", priority=4, target=FIXED))["redriven"] == 1


@with_broker
async def test_headers_without_room_stay_as_they_are(box):
    full = json.dumps({f"h{n}": "v" for n in range(limits.HEADERS_COUNT_MAX)}).encode()
    await give_up(box, 1, headers=[full])
    await redrive(box, filter="", target=FIXED)
    (run,) = (await box.broker.messages.lease(FIXED)).runs
    assert run.batch.string(layout.HEADERS, 0) == full


@with_broker
async def test_what_the_target_would_refuse_is_passed_over_and_stays(box):
    await box.broker.queues.put(FIXED, {"max_payload_bytes": 30})
    await box.publish("orders", b"x" * 20, b"y" * 40, b"z" * 20)
    await box.broker.messages.reject([message.receipt for message in await box.lease("orders", max=3)])
    done = await redrive(box, filter="", target=FIXED)
    assert (done["status"], done["redriven"], done["skipped"]) == ("finished", 2, 1)
    (left,) = (await box.broker.dead_letters.page(ORDERS))["dead_letters"]
    assert left.run.batch.payloads() == [b"y" * 40]


@with_broker
async def test_a_target_that_is_gone_ends_the_redrive(box):
    await give_up(box, 2)
    await box.broker.redrives.start(ORDERS, filter="", target=FIXED, dry_run=False, redrive_id="r", rate_per_s=1)
    with pytest.raises(Conflict) as caught:
        await box.broker.queues.delete(FIXED)
    await box.broker.queues.delete(FIXED, confirm=caught.value.details["confirm"])
    box.broker.redrives._tasks[box.host.loop.shard.paths[ORDERS], "r"].cancel()
    await asyncio.sleep(0)
    box.broker.redrives.go_on(box.host.loop.shard.paths[ORDERS], "r")
    done = await ended(box, "r")
    assert done["status"] == "failed" and "fixed" in done["error"]


@with_broker
async def test_a_redrive_can_be_stopped(box):
    await give_up(box, 20)
    await box.broker.redrives.start(ORDERS, filter="", rate_per_s=10, dry_run=False, redrive_id="slow")
    await begun(box, "slow")
    assert (await box.broker.redrives.stop(ORDERS, "slow"))["status"] == "stopped"
    left = (await box.broker.dead_letters.page(ORDERS))["total"]
    assert 0 < left < 20
    assert box.broker.redrives.list(ORDERS)["redrives"][0]["redriven"] == 20 - left
    with pytest.raises(NotFound):
        await box.broker.redrives.stop(ORDERS, "unheard of")


@pytest.mark.slow  # real time passes
@with_broker
async def test_redrive_resumes_after_a_restart(box):
    await give_up(box, 20)
    await box.broker.redrives.start(ORDERS, filter="payload.n != 3", rate_per_s=10, dry_run=False, redrive_id="slow")
    await begun(box, "slow")
    await box.restart()
    (redrive,) = box.broker.redrives.list(ORDERS, "slow")["redrives"]
    assert (redrive["status"], 0 < redrive["redriven"] < 19) == ("running", True)
    # The alarm needs no request, and a request does not change it.
    await box.broker.redrives.start(ORDERS, filter="payload.n != 3", rate_per_s=10, dry_run=False, redrive_id="slow")
    assert (await ended_soon(box, "slow"))["redriven"] == 19
    assert await numbers(box) == [3]
    back = await box.lease("orders", max=50)
    assert len(back) == len({message.id for message in back}) == 19


async def begun(box, redrive_id: str) -> None:
    for _ in range(10_000):
        if box.broker.redrives.list(ORDERS, redrive_id)["redrives"][0]["redriven"]:
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not begin")


async def ended_soon(box, redrive_id: str) -> dict:
    """Of a slow one: real time passes."""
    async with asyncio.timeout(60):
        await asyncio.gather(*box.broker.redrives._tasks.values())
    return box.broker.redrives.list(ORDERS, redrive_id)["redrives"][0]


@with_broker
async def test_a_redrive_whose_end_finds_no_room_on_the_disk_goes_on(box):
    """The task of a redrive sees the decided end, and stops, before the shard is read again without it."""
    await give_up(box, 3)
    loop = box.host.loop
    append, reread = loop.journal.append, loop._reload
    refused: list[int] = []

    async def append_no_end(index, parts, **options):
        if any(b"redrive_ended" in bytes(part) for part in parts) and not refused:
            refused.append(index)
            raise OutOfSpace("the disk is full")
        return await append(index, parts, **options)

    async def reread_when_nobody_is_left():
        await until(lambda: not box.broker.redrives._tasks)
        return await reread()

    loop.journal.append, loop._reload = append_no_end, reread_when_nobody_is_left
    await box.broker.redrives.start(ORDERS, redrive_id="r", filter="", dry_run=False, rate_per_s=FAST)
    await until(lambda: refused and not loop.without_room)
    await until(lambda: box.broker.redrives.list(ORDERS, "r")["redrives"][0]["status"] == "finished")
    assert sorted(json.loads(m.payload)["n"] for m in await box.lease("orders", max=10)) == [0, 1, 2]


@with_broker
async def test_redrives_are_bounded_and_the_latest_are_kept(box):
    await give_up(box, 1)
    for number in range(limits.REDRIVES_RUNNING_MAX):
        await box.broker.redrives.start(
            ORDERS, filter="key = null", rate_per_s=1, dry_run=False, redrive_id=f"r{number}", target=None
        )
    running = [each for each in box.broker.redrives.list(ORDERS)["redrives"] if each["status"] == "running"]
    if len(running) == limits.REDRIVES_RUNNING_MAX:
        with pytest.raises(Conflict):
            await box.broker.redrives.start(ORDERS, filter="", dry_run=False)
    for number in range(limits.REDRIVES_RUNNING_MAX):
        await box.broker.redrives.stop(ORDERS, f"r{number}")
    for number in range(limits.REDRIVES_KEPT + 5):
        await redrive(box, f"s{number}", filter='reason = "none"')
    remembered = [each["redrive_id"] for each in box.broker.redrives.list(ORDERS)["redrives"]]
    assert len(remembered) == limits.REDRIVES_KEPT and remembered[0] == f"s{limits.REDRIVES_KEPT + 4}"


@with_broker
async def test_a_full_target_takes_what_it_can_and_the_rest_waits(box):
    await box.broker.queues.put(FIXED, {"max_messages": 3})
    await give_up(box, 5)
    await box.broker.redrives.start(ORDERS, filter="", target=FIXED, rate_per_s=FAST, dry_run=False, redrive_id="r")
    taken = 0
    while taken < 5:
        leased = await box.lease("fixed", max=9)
        await box.broker.messages.ack([message.receipt for message in leased])
        taken += len(leased)
        await asyncio.sleep(0.02)
    assert (await ended_soon(box, "r"))["redriven"] == 5


@with_broker(segments_kept=1)
async def test_the_bytes_of_a_dead_letter_stay_and_go_with_it(box):
    await give_up(box, 3)
    for _ in range(10):
        await box.publish("orders", b"x" * 2_000)
        await box.broker.messages.ack([message.receipt for message in await box.lease("orders", max=9)])
        await box.host.upkeep.round()
    assert await numbers(box) == [0, 1, 2]
    await redrive(box, filter="payload.n = 1")
    for _ in range(10):
        await box.publish("orders", b"x" * 2_000)
        (first, *more) = await box.lease("orders", max=1, lease_ms=100)
        assert json.loads(first.payload)["n"] == 1 and not more
        await box.broker.messages.release([first.receipt])
        await box.host.upkeep.round()
    await box.restart()
    (first,) = await box.lease("orders", max=1)
    assert json.loads(first.payload)["n"] == 1


# -- deleting, bounds -------------------------------------------------------------------------------------------------


async def token(box, queue=ORDERS, **which) -> str:
    with pytest.raises(Conflict) as caught:
        await box.broker.dead_letters.delete(queue, **which)
    return caught.value.details["confirm"]


@with_broker
async def test_deleting_is_asked_twice_and_means_what_was_asked(box):
    await give_up(box, 5)
    with pytest.raises(Conflict) as caught:
        await box.broker.dead_letters.delete(ORDERS, filter="payload.n > 2")
    assert caught.value.details["would_lose"] == {"dead_letters": 2}
    good = caught.value.details["confirm"]
    for other in ({"filter": ""}, {"filter": "payload.n > 1"}, {"filter": "payload.n > 2", "group": "default"}):
        with pytest.raises(Conflict):
            await box.broker.dead_letters.delete(ORDERS, **other, confirm=good)
    reply = await box.broker.dead_letters.delete(ORDERS, filter="payload.n > 2", confirm=good)
    assert reply == {"queue": ORDERS, "deleted": 2}
    assert await numbers(box) == [0, 1, 2]
    ids = [messages([found.run])[0].id for found in (await box.broker.dead_letters.page(ORDERS))["dead_letters"]]
    reply = await box.broker.dead_letters.delete(ORDERS, ids=ids[:2], confirm=await token(box, ids=ids[:2]))
    assert reply["deleted"] == 2
    await box.restart()
    assert await numbers(box) == [2]


@with_broker
async def test_dead_letters_are_bounded_by_count_and_age(box):
    await box.broker.queues.put(ORDERS, {"dead_letter_max": 3, "dead_letter_ttl_ms": 60_000})
    await give_up(box, 5)
    await box.host.upkeep._retain()
    assert await numbers(box) == [2, 3, 4]
    await box.advance(60_000 - 3)
    await box.host.upkeep._retain()
    assert await numbers(box) == [3, 4]
    await box.advance(10)
    await box.host.upkeep._retain()
    assert await numbers(box) == []


# -- the alarm --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def logged(name):
    """The records that a logger is given inside the block, from information up."""
    logger, records = logging.getLogger(name), []
    handler = logging.Handler()
    handler.emit = records.append
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@with_broker
async def test_dead_letter_alarm_is_raised_and_cleared(box):
    await box.broker.queues.put(ORDERS, {"dead_letter_alarm": {"count": 3}})
    with logged("penstock.alarms") as logs:
        await give_up(box, 2)
        assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
        assert (await box.broker.stats.summary())["dead_letter_alarms"] == []
        await give_up(box, 1)
        since = box.clock.now_ms()
        assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] == {"since_at_ms": since, "why": ["count"]}
        await box.advance(100)
        assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"]["since_at_ms"] == since
        assert (await box.broker.stats.summary())["dead_letter_alarms"] == [ORDERS]
        await redrive(box, filter="")
        assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
    told = [(entry.getMessage(), entry.queue) for entry in logs]
    assert told == [("dead_letter_alarm", ORDERS), ("dead_letter_alarm_over", ORDERS)]


@with_broker
async def test_dead_letter_rate_alarm(box):
    await box.broker.queues.put(ORDERS, {"dead_letter_alarm": {"per_minute": 3}})
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
    await give_up(box, 2)
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
    await give_up(box, 2)
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"]["why"] == ["per_minute"]
    await box.advance(61_000)
    (await box.broker.stats.queue(ORDERS))
    await box.advance(61_000)
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
    await box.broker.queues.patch(ORDERS, {"dead_letter_alarm": {"count": 1}})
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"]["why"] == ["count"]
    await box.broker.queues.patch(ORDERS, {"dead_letter_alarm": None})
    assert (await box.broker.stats.queue(ORDERS))["dead_letter_alarm"] is None
