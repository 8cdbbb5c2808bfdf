"""Events of a journal and what keeps them there, through the facade."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, InvalidRequest, NotFound
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process
from penstock.wire.events import EventRangesQuery, EventsQuery, decode_events, encode_events
from penstock.wire.holds import HoldRequest

JOBS = parse_queue("jobs")
SMALL = 4_000


async def all_events(broker, **query):
    found, after = [], "earliest"
    while True:
        reply = await broker.events.read(EventsQuery(after=after, **query))
        found += reply.events
        if reply.next == after:
            return found
        after = reply.next


def small_engine(tmp_path):
    return lambda: LocalEngine(str(tmp_path / "data"), segment_bytes=SMALL)


def run(coroutine):
    asyncio.run(coroutine)


def test_every_transition_of_every_message_is_an_event():
    async def story():
        async with in_process() as box:
            sent = await box.publish("jobs", b"1", b"2", b"3")
            first = await box.lease("jobs", max=2, consumer="ada")
            await box.broker.messages.extend([first[0].receipt], lease_ms=60_000)
            await box.broker.messages.ack([first[0].receipt])
            await box.broker.messages.nack([first[1].receipt], error="it broke", delay_ms=5)
            await box.advance(5)
            again = await box.lease("jobs", max=1, consumer="bob")
            await box.broker.messages.reject([again[0].receipt], error="hopeless")
            events = await all_events(box.broker)
            kinds = [event.kind for event in events]
            assert kinds == [
                "queue_configured", "published", "group_created", "leased", "extended", "acked", "retried", "leased",
                "dead_lettered",
            ]  # fmt: skip
            by_kind = {event.kind: event for event in reversed(events)}
            published = by_kind["published"]
            assert (published.offset, published.count, published.id) == (0, 3, ulid_text(sent.runs[0].id))
            leased = by_kind["leased"]
            assert (leased.offset, leased.count, leased.attempt, leased.consumer) == (0, 2, 1, "ada")
            assert {event.queue for event in events} == {"default/default/jobs"}
            assert {by_kind[kind].group for kind in ("leased", "extended", "acked", "retried")} == {"default"}
            assert (by_kind["extended"].partition, by_kind["extended"].offset) == (0, 0)
            assert (by_kind["retried"].reason, by_kind["retried"].error) == ("nack", "it broke")
            assert (by_kind["dead_lettered"].offset, by_kind["dead_lettered"].error) == (1, "hopeless")
            assert events[-2].attempt == 2

    run(story())


def test_pages_join_without_gap_or_overlap():
    async def story():
        async with in_process() as box:
            for number in range(20):
                await box.publish("jobs", b"%d" % number, b"x")
            whole = [event.position for event in await all_events(box.broker)]
            assert whole == [event.position for event in await all_events(box.broker, max=3)]
            bulk, after = [], "earliest"
            while True:
                reply = await box.broker.events.read_bulk(EventsQuery(after=after, max_bytes=200))
                meta, records = decode_events(encode_events(reply.meta, reply.records))
                bulk += [f"{record.frame}.{record.number}" for record in records]
                if meta.next == after:
                    break
                after = meta.next
            assert bulk == whole

    run(story())


def test_ranges_cover_everything_and_weigh_it():
    async def story():
        async with in_process() as box:
            for _ in range(30):
                await box.publish("jobs", *[b"x"] * 10)
            reply = await box.broker.events.ranges(EventRangesQuery(each=50))
            assert [r.until for r in reply.ranges[:-1]] == [r.after for r in reply.ranges[1:]]
            assert (reply.ranges[0].after, reply.ranges[-1].until) == (reply.start, reply.end)
            assert sum(r.rows for r in reply.ranges) == 301
            assert max(r.rows for r in reply.ranges) <= 51
            bounded = await box.broker.events.ranges(EventRangesQuery(each=50, max=100))
            assert 90 <= sum(r.rows for r in bounded.ranges) <= 100
            assert bounded.next == bounded.ranges[-1].until

    run(story())


def test_names_of_deleted_queues_are_known(tmp_path):
    async def story():
        async with in_process(small_engine(tmp_path)) as box:
            await box.publish("gone", b"1")
            with pytest.raises(Conflict) as asked:
                await box.broker.queues.delete(parse_queue("gone"))
            await box.broker.queues.delete(parse_queue("gone"), confirm=asked.value.details["confirm"])
            for _ in range(2):
                events = await all_events(box.broker)
                assert [(e.kind, e.queue) for e in events if e.kind in ("published", "queue_deleted")] == [
                    ("published", "default/default/gone"), ("queue_deleted", "default/default/gone"),
                ]  # fmt: skip
                await box.restart()

    run(story())


async def fill(box, rounds=30):
    """Enough for the journal to be left behind; everything is acked."""
    for _ in range(rounds):
        await box.publish("jobs", b"x" * 1_000)
        for message in await box.lease("jobs", max=10):
            await box.broker.messages.ack([message.receipt])
        await box.host.upkeep.round()


def test_what_the_journal_no_longer_has_is_accounted_for(tmp_path):
    async def story():
        async with in_process(small_engine(tmp_path), segments_kept=1) as box:
            await fill(box)
            reply = await box.broker.events.read(EventsQuery(after="0"))
            assert reply.start > 0
            assert (reply.missing.first, reply.missing.last, reply.missing.frames) == (1, reply.start, reply.start)
            assert reply.events[0].position.startswith(str(reply.start + 1))
            assert (await box.broker.events.read(EventsQuery(after=str(reply.start)))).missing is None
            with pytest.raises(InvalidRequest):
                await box.broker.events.read(EventsQuery(after=str(reply.end + 1)))

    run(story())


@pytest.mark.parametrize("final_snapshot", [True, False])
def test_a_hold_keeps_events_and_messages_over_restarts(tmp_path, final_snapshot):
    async def story():
        async with in_process(small_engine(tmp_path), segments_kept=1) as box:
            await box.publish("jobs", b"first")
            set_ = await box.broker.holds.set("lake", HoldRequest(events=0, queues={"jobs": {"0": 0}}), {"jobs": JOBS})
            assert set_.events == 0 and set_.queues == {JOBS: {"0": 0}}
            await fill(box)
            for _ in range(2):
                reply = await box.broker.events.read(EventsQuery(after="0"))
                assert (reply.start, reply.missing) == (0, None)
                read = await box.broker.log.read(JOBS, offset="0", max=None)
                assert (read.skipped, sum(run.count for run in read.runs)) == (0, 31)
                assert box.broker.holds.get("lake").spanned_bytes > 30_000
                assert (await box.broker.stats.summary())["held_bytes"] > 30_000
                await box.restart(final_snapshot=final_snapshot)
            # It moves on, and what is behind it goes.
            end = reply.end
            await box.broker.holds.set("lake", HoldRequest(events=end, queues={"jobs": {"0": 20}}), {"jobs": JOBS})
            read = await box.broker.log.read(JOBS, offset="0", max=None)
            assert (read.skipped, sum(run.count for run in read.runs)) == (20, 11)
            await fill(box, 3)
            assert (await box.broker.events.read(EventsQuery(after="earliest"))).start > 0
            assert (await box.broker.events.read(EventsQuery(after=str(end)))).missing is None
            assert (await box.broker.holds.remove("lake")).removed
            assert not (await box.broker.holds.remove("lake")).removed
            with pytest.raises(NotFound):
                box.broker.holds.get("lake")
            read = await box.broker.log.read(JOBS, offset="0", max=None)
            assert (read.start_offset, read.runs) == (34, [])

    run(story())


def test_hold_that_spans_too_much_is_dropped_and_reported(tmp_path):
    async def story():
        async with in_process(small_engine(tmp_path), segments_kept=1) as box:
            await box.publish("jobs", b"first")
            await box.broker.holds.set("lake", HoldRequest(events=0, max_bytes=10_000), {})
            await fill(box)
            assert box.broker.holds.get("lake").lost_at_ms is not None
            assert (await box.broker.stats.summary())["holds_lost"] == 1
            assert (await box.broker.events.read(EventsQuery(after="0"))).missing is not None
            with pytest.raises(Conflict, match="was let go"):
                await box.broker.holds.set("lake", HoldRequest(events=3), {})
            await box.restart()
            assert box.broker.holds.get("lake").lost_at_ms is not None
            await box.broker.holds.remove("lake")
            end = (await box.broker.events.read(EventsQuery(after="latest"))).end
            assert (await box.broker.holds.set("lake", HoldRequest(events=end), {})).lost_at_ms is None

    run(story())


def test_retention_waits_for_a_hold(tmp_path):
    async def story():
        async with in_process(small_engine(tmp_path), segments_kept=1) as box:
            await box.broker.queues.put(JOBS, {"retention": {"mode": "keep", "ms": 1000}})
            await box.publish("jobs", *[b"x"] * 10)
            await box.broker.holds.set("lake", HoldRequest(queues={"jobs": {"0": 4}}), {"jobs": JOBS})
            await box.advance(10_000)
            await box.host.upkeep.round()
            assert box.broker.log.extent(JOBS).partitions[0].start_offset == 4
            await box.broker.holds.remove("lake")
            await box.host.upkeep.round()
            assert box.broker.log.extent(JOBS).partitions[0].start_offset == 10

    run(story())


def test_a_held_queue_does_not_begin_to_keep_before_what_is_finished_was_copied():
    """Such a hold would remove messages: those that all groups have finished do not return for later readers."""

    async def story():
        async with in_process() as box:
            await box.publish("jobs", b"0", b"1", b"2")
            await box.broker.holds.set("lake", HoldRequest(queues={"jobs": {"0": 0}}), {"jobs": JOBS})
            first, _, third = await box.lease("jobs", max=3)
            await box.broker.messages.release([third.receipt])
            await box.broker.messages.ack([first.receipt])
            with pytest.raises(Conflict, match="not copied") as refused:
                await box.broker.queues.patch(JOBS, {"retention": {"mode": "keep"}})
            assert refused.value.details == {"field": "retention"}
            assert [run.offset for run in (await box.broker.log.read(JOBS, max=9)).runs] == [0]
            await box.broker.holds.set("lake", HoldRequest(queues={"jobs": {"0": 1}}), {"jobs": JOBS})
            await box.broker.scheduled.cancel(JOBS, ids=[third.id])  # is gone for the archive as well
            await box.broker.queues.patch(JOBS, {"retention": {"mode": "keep"}})

    run(story())


def test_bad_holds_change_nothing():
    async def story():
        async with in_process() as box:
            await box.publish("jobs", b"1")
            for asked in (
                HoldRequest(events=10_000),
                HoldRequest(queues={"jobs": {"0": 2}}),
                HoldRequest(queues={"jobs": {"1": 0}}),
            ):
                with pytest.raises(InvalidRequest):
                    await box.broker.holds.set("lake", asked, {"jobs": JOBS} if asked.queues else {})
            assert box.broker.holds.list().holds == []

    run(story())
