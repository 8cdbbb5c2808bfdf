"""Window buffers: no early delivery, no starvation, and waiting leases are woken when the window opens."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.state import Shard
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


def test_waiting_lease_is_woken_when_the_window_opens():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("mail"), {"window_ms": 1_000})
            waiting = asyncio.ensure_future(box.lease("mail", wait_ms=60_000, max=10))
            await box.publish("mail", b"a")
            await box.advance(999)
            await box.publish("mail", b"b")
            opens_at = box.clock.now_ms() + 1_000
            assert (await box.broker.stats.queue(parse_queue("mail")))["window_opens_at_ms"] == opens_at
            await box.advance(999)
            assert not waiting.done()
            assert box.host.loop.shard.next_deadline_ms() == opens_at
            await box.advance(1)
            assert [message.payload for message in await waiting] == [b"a", b"b"]
            assert (await box.broker.stats.queue(parse_queue("mail")))["window_opens_at_ms"] is None

    run(story)


def test_window_survives_a_restart_and_wakes_waiting_leases():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("mail"), {"window_ms": 1_000, "window_max_wait_ms": 1_500})
            await box.publish("mail", b"a")
            await box.advance(900)
            await box.publish("mail", b"b")
            for final_snapshot in (True, False):
                await box.restart(final_snapshot=final_snapshot)
                assert await box.lease("mail") == []
            waiting = asyncio.ensure_future(box.lease("mail", wait_ms=60_000, max=10))
            await asyncio.sleep(0)
            await box.advance(599)
            assert not waiting.done()
            await box.advance(1)
            assert [message.payload for message in await waiting] == [b"a", b"b"]

    run(story)


def test_a_scope_is_served_when_a_window_in_it_opens():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("email/a/buffered"), {"window_ms": 1_000, "queue_priority": 9})
            await box.publish("email/a/buffered", b"later")
            await box.publish("email/a/plain", b"now")
            first = await box.broker.messages.lease_scope("email", max=10)
            assert [run.queue for run in first.runs] == ["email/a/plain"]
            waiting = asyncio.ensure_future(box.broker.messages.lease_scope("email", max=10, wait_ms=60_000))
            await asyncio.sleep(0)
            await box.advance(1_000)
            assert [run.queue for run in (await waiting).runs] == ["email/a/buffered"]

    run(story)


def test_window_of_a_busy_queue_keeps_few_times():
    async def story():
        async with in_process() as box:
            await box.broker.queues.put(parse_queue("busy"), {"window_ms": 1_000})
            for _ in range(3_000):
                await box.publish("busy", b"x")
                await box.advance(13)
            (partition,) = box.host.loop.shard.queues[1].partitions
            assert len(partition.window.marks) <= 1_100

    run(story)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("lease"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, 60)),
        st.tuples(st.just("nack"), st.integers(0, 40)),
        st.just(("restart", 0)),
    ),
    min_size=30,
    max_size=60,
)


def test_open_exactly_when_the_words_say_over_ten_thousand_steps():
    done = 0

    @example([("publish", 1), ("wait", 50), ("nack", 10), ("publish", 1), ("wait", 12)], 50, 70)
    @given(steps, st.sampled_from([20, 50]), st.sampled_from([None, 0, 70, 120]))
    @settings(max_examples=4 * settings.default.max_examples, deadline=None)
    def tell(steps, window_ms, max_wait_ms):
        nonlocal done
        done += len(steps)
        open_exactly_when_the_words_say(steps, window_ms, max_wait_ms)

    tell()
    assert done >= 10_000 * min(1, settings.default.max_examples / 100)


def open_exactly_when_the_words_say(steps, window_ms, max_wait_ms):
    """Against a list of messages that is looked through from the beginning each time."""
    now, shard = 1_000, Shard()
    longest = 1_000 if max_wait_ms is None else max_wait_ms

    def let_time_work():
        while shard.next_deadline_ms() <= now:
            advance(shard, now)
            if shard.needs_tick():
                for record in decide(shard, commands.Tick(), now).records:
                    apply(shard, record)

    def submit(command):
        let_time_work()
        decision = decide(shard, command, now)
        for record in decision.records:
            apply(shard, record)
        invariants.check(shard)
        return decision.reply

    config = parse_config({"window_ms": window_ms, "window_max_wait_ms": max_wait_ms, "max_retries": 1_000})
    submit(commands.ConfigureQueue("a/b/c", config))
    submit(commands.Lease(1, "g", 1, 1))
    times: list[int] = []
    due: dict[int, int] = {}
    """Offset -> when it is ready; taken ones are gone."""
    flushed = 0
    for number, (step, value) in enumerate(steps):
        if step == "publish":
            batch = Batch.open(build([b"x"] * value, kind=layout.KIND_BYTES))
            submit(commands.Publish([commands.Part(1, batch)], number << 20))
            for _ in range(value):
                due[len(times)] = now
                times.append(now)
        elif step == "wait":
            now += value
        elif step == "restart":
            submit(commands.Tick())
            values = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.dump(shard)))
            shard = snapshot.load(values)
        else:
            ready = [offset for offset in sorted(due) if due[offset] <= now]
            quiet = not times or now >= times[-1] + window_ms
            waited = bool(ready) and bool(longest) and (now >= times[ready[0]] + longest or ready[0] < flushed)
            reply = submit(commands.Lease(1, "g", 2 if step == "nack" else value, 1, 100_000))
            given_ = [run.first + at for run in reply for at in range(run.count)]
            assert given_ == (ready[: 2 if step == "nack" else value] if quiet or waited else [])
            if given_ and not quiet and given_[0] >= flushed:
                flushed = len(times)
            claims = [commands.Claim(run.lease, 1, run.first, run.first + run.count) for run in reply]
            if claims:
                submit(commands.Nack(claims, value) if step == "nack" else commands.Ack(claims))
            for offset in given_:
                if step == "nack":
                    due[offset] = now + value
                else:
                    del due[offset]
        let_time_work()
        ready = [offset for offset in sorted(due) if due[offset] <= now]
        if ready and now < times[-1] + window_ms:
            opens = [times[-1] + window_ms] + ([times[ready[0]] + longest] if longest else [])
            assert min(opens) <= now or shard.next_deadline_ms() <= min(opens), "no timer would wake a lease"
