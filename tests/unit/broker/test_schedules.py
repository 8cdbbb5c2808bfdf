"""Recurring schedules through the broker: one message per fire time, whatever happens around it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from patience import until

from penstock import limits
from penstock.batch import layout
from penstock.errors import Conflict, InvalidRequest, NotFound, QueueNotFound, TooLarge
from penstock.ids import parse_queue
from penstock.testing.inprocess import InProcess, in_process
from penstock.wire.schedules import ScheduleRequest

_decode = msgspec.json.Decoder(ScheduleRequest).decode
TENS = {"queue": "reports", "cron": "*/10 * * * * *", "message": {"payload": {"report": 1}}}


def asked(**values: object) -> ScheduleRequest:
    return _decode(msgspec.json.encode({**TENS, **values}))


async def fire_times(box: InProcess, queue: str = "reports") -> list[int]:
    """Of every message that is stored, in order."""
    reply = await box.broker.log.read(parse_queue(queue), max=10_000)
    return [
        int(msgspec.json.decode(headers)["penstock-fire-at-ms"])
        for run in reply.runs
        for headers in run.batch.strings(1 << 18)
    ]


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_message_says_where_it_comes_from():
    async def story():
        async with in_process() as box:
            message = {"payload": {"n": 1}, "key": "k", "priority": 7, "headers": {"h": "v"}, "ttl_ms": 60_000,
                       "max_retries": 1, "tenant": "acme"}  # fmt: skip
            shown, created = await box.broker.schedules.put("tens", asked(message=message))
            assert created and shown.state == "active" and len(shown.next) == limits.SCHEDULE_NEXT_SHOWN
            assert shown.message.headers == {"h": "v"}
            await box.advance(10_000)
            (run,) = (await box.broker.messages.lease(parse_queue("reports"))).runs
            assert run.batch.payloads() == [b'{"n":1}']
            headers = msgspec.json.decode(run.batch.strings(1 << 18)[0])
            assert headers == {"h": "v", "penstock-schedule": "tens", "penstock-fire-at-ms": str(shown.next[0])}
            assert (run.batch.strings(1 << 16), run.batch.strings(1 << 19)) == ([b"k"], [b"acme"])
            assert box.broker.schedules.get("tens").fired == 1

    run(story)


def test_a_priority_that_the_queue_has_no_lane_for_is_refused():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("reports"), {"order": "lanes"})
            for wrong in (5, 77, -1):
                with pytest.raises(InvalidRequest, match=f"{wrong} is not a lane") as caught:
                    await box.broker.schedules.put("tens", asked(message={"payload": 1, "priority": wrong}))
                assert caught.value.details == {"field": "priority"}
            assert box.broker.schedules.list(prefix="", page=1, limit=10).total == 0
            for right in (4, 0):
                await box.broker.schedules.put("tens", asked(message={"payload": 1, "priority": right}))
            assert (await box.broker.schedules.put("tens", asked()))[0].message.priority == 2, "normal"

    run(story)


def test_a_payload_that_the_queue_would_refuse_is_refused_before_it_is_due():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("reports"), {"max_payload_bytes": 100})
            with pytest.raises(TooLarge, match="100"):
                await box.broker.schedules.put("tens", asked(message={"payload": "x" * 99}))
            assert box.broker.schedules.list(prefix="", page=1, limit=10).total == 0
            await box.broker.schedules.put("tens", asked(message={"payload": "x" * 98}))

    run(story)


@pytest.mark.parametrize("final_snapshot", [True, False])
def test_each_fire_time_has_one_message_over_restarts(final_snapshot):
    async def story():
        async with in_process() as box:
            first = (await box.broker.schedules.put("tens", asked()))[0].next[0]
            for step in (3_000, 7_000, 1, 25_000, 9_999, 55_000):
                await box.advance(step)
                await box.restart(final_snapshot=final_snapshot)
            times = await fire_times(box)
            assert times == [first + 10_000 * number for number in range(len(times))]
            assert len(times) == 10

    run(story)


def test_waiting_lease_is_woken_by_a_fire_time():
    async def story():
        async with in_process() as box:
            await box.broker.schedules.put("tens", asked())
            waiting = asyncio.ensure_future(box.lease("reports", wait_ms=60_000))
            await until(lambda: box.broker.waiting)
            await box.advance(10_000)
            assert len(await waiting) == 1

    run(story)


def test_many_at_the_same_moment_all_fire():
    async def story():
        async with in_process() as box:
            for number in range(300):
                await box.broker.schedules.put(f"s{number}", asked(queue=f"q{number % 3}"))
            await box.advance(10_000)
            assert sum([len(await fire_times(box, f"q{number}")) for number in range(3)]) == 300

    run(story)


def test_schedules_that_fire_together_keep_their_messages_and_their_refusals():
    """Those of one moment are one publish; a refusal of some of them is theirs alone."""

    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("full"), {"max_messages": 1})
            messages = [
                {"payload": {"n": 1}},
                {"payload": {"n": 2}, "key": "k", "priority": 3, "ttl_ms": 60_000},
                {"payload_b64": "AP8=", "max_retries": 1, "tenant": "acme"},
            ]
            for number in range(40):
                await box.broker.schedules.put(f"s{number:02}", asked(message=messages[number % 3]))
                if number % 8 == 0:
                    await box.broker.schedules.put(f"full{number}", asked(queue="full"))
                    await box.broker.schedules.put(f"gone{number}", asked(queue="gone"))
            path = parse_queue("gone")
            with pytest.raises(Conflict) as first:
                await box.broker.queues.delete(path)
            await box.broker.queues.delete(path, confirm=first.value.details["confirm"])
            await box.advance(10_000)
            sent = {}
            for each in (await box.broker.log.read(parse_queue("reports"), max=100)).runs:
                batch = each.batch
                for row, headers in enumerate(batch.strings(layout.HEADERS)):
                    name = msgspec.json.decode(headers)["penstock-schedule"]
                    priority = batch.integers(layout.PRIORITY)[row] if batch.has(layout.PRIORITY) else 0
                    sent[name] = (batch.payload(row), batch.is_json(row), batch.string(layout.KEY, row), priority)
            kinds = [(b'{"n":1}', True, b"", 0), (b'{"n":2}', True, b"k", 3), (b"\x00\xff", False, b"", 0)]
            assert sent == {f"s{number:02}": kinds[number % 3] for number in range(40)}
            states = {each.name: each for each in box.broker.schedules.list(prefix="", page=1, limit=100).schedules}
            assert {state.fired for name, state in states.items() if name.startswith("s")} == {1}
            assert sorted(state.fired for name, state in states.items() if name.startswith("full")) == [0, 0, 0, 0, 1]
            assert {state.error.code for name, state in states.items() if name.startswith("gone")} == {
                "queue_not_found"
            }
            assert {state.error.code for state in states.values() if state.error} == {"queue_not_found", "queue_full"}

    run(story)


def test_a_night_is_made_up_for_in_steps():
    async def story():
        async with in_process() as box:
            first = (await box.broker.schedules.put("tens", asked(catch_up="all")))[0].next[0]
            await box.advance(3_600_000)
            assert len(await fire_times(box)) == limits.SCHEDULE_FIRES_MAX
            for _ in range(5):
                await box.advance(100)
            times = await fire_times(box)
            assert times == [first + 10_000 * number for number in range(360)]

    run(story)


def test_setting_the_same_again_changes_nothing_and_other_words_keep_the_place():
    async def story():
        async with in_process() as box:
            await box.broker.schedules.put("tens", asked())
            await box.broker.schedules.pause("tens", paused=True)
            await box.advance(25_000)
            before = box.broker.schedules.get("tens")
            assert before.state == "paused"
            assert await box.broker.schedules.put("tens", asked()) == (before, False)
            changed, _ = await box.broker.schedules.put("tens", asked(message={"payload": 2}))
            assert (changed.next, changed.state) == (before.next, "paused")
            moved, _ = await box.broker.schedules.put("tens", asked(cron="0 0 * * *"))
            assert moved.next[0] > box.clock.now_ms()

    run(story)


def test_a_full_queue_holds_it_up_in_plain_sight():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("reports"), {"max_messages": 1, "retention": {"mode": "keep"}})
            await box.broker.schedules.put("tens", asked())
            await box.advance(10_000)
            await box.advance(10_000)
            shown = box.broker.schedules.get("tens")
            assert shown.state == "failing" and shown.error.code == "queue_full" and shown.fired == 1
            assert shown.next[0] <= box.clock.now_ms()
            await box.restart()
            assert box.broker.schedules.get("tens") == shown
            (message,) = await box.lease("reports")
            await box.broker.messages.ack([message.receipt])
            await box.advance(60_000)
            shown = box.broker.schedules.get("tens")
            assert shown.error is None or shown.fired == 2
            assert shown.fired == 2

    run(story)


def test_a_deleted_queue_is_not_made_again_behind_the_operator_s_back():
    async def story():
        async with in_process() as box:
            await box.broker.schedules.put("tens", asked())
            path = parse_queue("reports")
            with pytest.raises(Conflict) as first:
                await box.broker.queues.delete(path)
            await box.broker.queues.delete(path, confirm=first.value.details["confirm"])
            await box.advance(10_000)
            shown = box.broker.schedules.get("tens")
            assert (shown.state, shown.error.code, shown.fired) == ("failing", "queue_not_found", 0)
            await box.broker.queues.put(path, {})
            await box.advance(1_000)
            assert len(await fire_times(box)) == 1
            assert box.broker.schedules.get("tens").state == "active"

    run(story)


def test_what_is_refused_leaves_nothing_behind():
    async def story():
        async with in_process(auto_create=False) as box:
            with pytest.raises(QueueNotFound):
                await box.broker.schedules.put("tens", asked())
        async with in_process() as box:
            for field, values in [
                ("cron", {"cron": "* * */20 * 1L"}),
                ("timezone", {"timezone": "Mars/Olympus"}),
                ("ends_at_ms", {"ends_at_ms": 1}),
                ("headers", {"message": {"payload": 1, "headers": {"penstock-schedule": "me"}}}),
                ("payload", {"message": {"payload": 1, "payload_b64": "AA=="}}),
            ]:
                with pytest.raises(InvalidRequest) as refused:
                    await box.broker.schedules.put("tens", asked(**values))
                assert refused.value.details["field"] == field
            assert (await box.broker.queues.list())["total"] == 0
            for call in (box.broker.schedules.remove("tens"), box.broker.schedules.pause("tens", paused=True)):
                with pytest.raises(NotFound):
                    await call

    run(story)


def test_there_is_a_limit(monkeypatch):
    async def story():
        monkeypatch.setattr(limits, "SCHEDULES_MAX", 2)
        async with in_process() as box:
            await box.broker.schedules.put("a", asked())
            await box.broker.schedules.put("b", asked())
            with pytest.raises(Conflict, match="2 schedules"):
                await box.broker.schedules.put("c", asked())
            await box.broker.schedules.put("b", asked(cron="* * * * *"))
            await box.broker.schedules.remove("a")
            await box.broker.schedules.put("c", asked())
            page = box.broker.schedules.list(prefix="", page=1, limit=1)
            assert ([each.name for each in page.schedules], page.total) == (["b"], 2)

    run(story)
