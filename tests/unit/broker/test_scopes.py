"""Leases of a scope: priority first, then age; waiting leases are woken; cost with many queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from patience import until

from penstock import limits
from penstock.core import commands
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide, scopes
from penstock.core.decide.scopes import Scopes, scopes_over
from penstock.core.records import Published
from penstock.core.state import Shard
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue, parse_scope
from penstock.testing.inprocess import InProcess, in_process, messages


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


async def lease(box: InProcess, scope: str = "email", **options: Any) -> list[str]:
    reply = await box.broker.messages.lease_scope(scope, **options)
    return [message.payload.decode() for message in messages(reply.runs)]


async def ready_boxes(box: InProcess) -> None:
    for name, priority in (("email/news/low", -1), ("email/news/high", 5), ("email/bills/mid", 0), ("sms/x/y", 9)):
        await box.broker.queues.put(parse_queue(name), {"queue_priority": priority})


@pytest.mark.parametrize("order", ["fifo", "heap"])
def test_what_is_too_much_for_one_reply_stays_for_the_next(order):
    """The room of a reply is that of all queues together."""

    async def story():
        async with in_process() as box:
            for name, priority, count in (("email/a/x", 5, 4), ("email/b/y", 0, 20)):
                await box.broker.queues.put(parse_queue(name), {"queue_priority": priority, "order": order})
                for _ in range(count):
                    await box.publish(name, bytes(900_000), priority=[0])
            first = await box.broker.messages.lease_scope("email", max=1_000)
            assert [run.queue for run in first.runs][:1] == ["email/a/x"]
            given = sum(len(message.payload) for message in messages(first.runs))
            assert limits.LEASE_REPLY_BYTES_MAX // 2 < given <= limits.LEASE_REPLY_BYTES_MAX + 900_000
            rest = 0
            while found := messages((await box.broker.messages.lease_scope("email", max=1_000)).runs):
                rest += len(found)
            assert rest + given // 900_000 == 24

    run(story)


def test_higher_priority_first_then_the_oldest_message():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            await box.broker.queues.put(parse_queue("email/bills/other"), {})
            for queue, payload in [
                ("email/news/low", b"low"),
                ("email/bills/other", b"mid-1"),
                ("email/bills/mid", b"mid-2"),
                ("email/bills/other", b"mid-3"),
                ("sms/x/y", b"not ours"),
                ("email/news/high", b"high"),
            ]:
                await box.publish(queue, payload)
                await box.advance(1)
            assert await lease(box, max=1) == ["high"]
            assert await lease(box, "email/bills", max=10) == ["mid-1", "mid-3", "mid-2"]
            assert await lease(box, max=10) == ["low"]
            assert await lease(box, max=10) == []

    run(story)


def test_a_reply_spans_queues_and_each_message_names_its_own():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            for queue in ("email/news/low", "email/news/high", "email/bills/mid"):
                await box.publish(queue, b"1", b"2")
            reply = await box.broker.messages.lease_scope("email", max=5)
            found = messages(reply.runs)
            assert [message.queue for message in found] == (
                ["email/news/high"] * 2 + ["email/bills/mid"] * 2 + ["email/news/low"]
            )
            more = await box.broker.messages.lease_scope("email", max=5, ack=[message.receipt for message in found])
            assert [result.status for result in more.results] == ["acked"] * 5
            assert [message.queue for message in messages(more.runs)] == ["email/news/low"]

    run(story)


def test_message_wakes_one_waiting_scope_lease():
    async def story():
        async with in_process() as box:
            waiting = [asyncio.ensure_future(lease(box, wait_ms=60_000, max=10)) for _ in range(3)]
            await until(lambda: box.broker.waiting >= 3)
            await box.publish("email/brand/new", b"1", b"2")
            done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result() for task in done] == [["1", "2"]]
            assert box.broker.waiting == 2
            await box.publish("email/brand/new", b"3", delay_ms=[5_000])
            await box.publish("email/other/new", b"4")
            await box.advance(5_000)
            results = await asyncio.gather(*others)
            assert sorted(results) == [["3"], ["4"]]
            assert box.broker.waiting == 0

    run(story)


def test_what_becomes_ready_at_one_moment_goes_by_priority():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            for queue in ("email/news/low", "email/bills/mid", "email/news/high"):
                await box.publish(queue, queue.encode(), delay_ms=[1_000])
            waiting = asyncio.ensure_future(lease(box, wait_ms=60_000))
            await until(lambda: box.broker.waiting)
            await box.advance(1_000)
            assert await waiting == ["email/news/high"]

    run(story)


def test_what_comes_back_is_found_again():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            await box.publish("email/news/high", b"a")
            (message,) = messages((await box.broker.messages.lease_scope("email", lease_ms=1_000)).runs)
            assert await lease(box) == []
            await box.advance(1_000)
            await box.advance(2_000)
            (message,) = messages((await box.broker.messages.lease_scope("email")).runs)
            assert message.attempt == 2
            await box.broker.messages.nack([message.receipt], delay_ms=500)
            assert await lease(box) == []
            await box.advance(500)
            (message,) = messages((await box.broker.messages.lease_scope("email")).runs)
            await box.broker.messages.release([message.receipt])
            assert await lease(box) == ["a"]

    run(story)


def test_priorities_that_change_count_from_then_on():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            await box.publish("email/news/low", b"low")
            await box.publish("email/news/high", b"high")
            assert await lease(box, group="peek") == ["high"]
            await box.broker.queues.patch(parse_queue("email/news/low"), {"queue_priority": 99})
            assert await lease(box) == ["low"]

    run(story)


def test_a_priority_that_rises_while_nothing_is_ready_counts_for_what_comes():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            assert await lease(box) == []
            await box.publish("email/news/low", b"taken by another consumer")
            await box.lease("email/news/low")
            await box.broker.queues.put(parse_queue("email/news/low"), {"queue_priority": 7})
            await box.publish("email/bills/mid", b"mid")
            await box.publish("email/news/low", b"low no more")
            assert await lease(box, max=10) == ["low no more", "mid"]

    run(story)


def test_queues_that_are_deleted_or_emptied_and_a_restart():
    async def story():
        async with in_process() as box:
            await ready_boxes(box)
            for queue in ("email/news/low", "email/news/high", "email/bills/mid"):
                await box.publish(queue, queue.encode())
            assert await lease(box, group="other") == ["email/news/high"]
            for method, queue in (("delete", "email/news/high"), ("purge", "email/bills/mid")):
                path = parse_queue(queue)
                with pytest.raises(Exception, match="cannot be undone") as first:
                    await getattr(box.broker.queues, method)(path)
                await getattr(box.broker.queues, method)(path, confirm=first.value.details["confirm"])
            await box.restart()
            assert await lease(box, max=10) == ["email/news/low"]
            assert await lease(box, max=10, group="other") == ["email/news/low"]

    run(story)


def test_a_reply_has_a_size(monkeypatch):
    async def story():
        async with in_process() as box:
            for number in range(30):
                await box.publish(f"email/big/q{number}", b"x" * 1_000_000)
            reply = await box.broker.messages.lease_scope("email", max=1000)
            assert 1 <= sum(len(run.batch.frame) for run in reply.runs) <= 9_500_000

    run(story)


@pytest.mark.parametrize("text", ["", "/", "a/b/c", "a/", "-a", "a b", "x" * 65])
def test_what_is_no_scope_is_refused(text):
    with pytest.raises(InvalidRequest) as refused:
        parse_scope(text)
    assert refused.value.details == {"field": "scope"}


# -- what it costs --------------------------------------------------------------------------------------------------


def test_a_lease_does_not_look_at_every_queue(monkeypatch):
    async def story():
        async with in_process() as box:
            for number in range(500):
                await box.publish(f"email/many/q{number}", b"x")
            assert await lease(box) == ["x"]
            looks = 0
            oldest_ready = scopes.oldest_ready

            def counted(*arguments):
                nonlocal looks
                looks += 1
                return oldest_ready(*arguments)

            monkeypatch.setattr(scopes, "oldest_ready", counted)
            for _ in range(50):
                assert await lease(box) == ["x"]
            assert looks < 50 * 20

    run(story)


# -- against a model that looks at everything -----------------------------------------------------------------------


BACKOFF = {"kind": "fixed", "base_ms": 7}


class AgainstTheNaive(RuleBasedStateMachine):
    """The core alone: publishes, leases, settlements, time, changes of priority. Each choice is compared."""

    QUEUES = ("email/a/one", "email/a/two", "email/b/three", "other/a/four")

    def __init__(self):
        super().__init__()
        self.shard = Shard()
        self.now = 1_000
        self.times: dict[tuple[int, int, int], int] = {}
        self.scopes = Scopes(self.shard, lambda *place: self.times.get(place))
        self.leases: list[commands.LeasedRun] = []
        self.nonce = 0
        for path in self.QUEUES[:2]:
            self.submit(commands.ConfigureQueue(path, parse_config({"partitions": 2, "backoff": BACKOFF})))

    def submit(self, command):
        while self.shard.next_deadline_ms() <= self.now:
            woken = advance(self.shard, self.now)
            if self.shard.needs_tick():
                self.applied(decide(self.shard, commands.Tick(), self.now).records)
            for queue in woken:
                self.scopes.stir(queue)
        decision = decide(self.shard, command, self.now)
        self.applied(decision.records)
        return decision.reply

    def applied(self, made):
        for record in made:
            apply(self.shard, record)
            if type(record) is Published:
                for row in range(record.batch.count):
                    self.times[record.queue, record.partition, record.offset + row] = record.at
            if self.scopes:
                self.scopes.note(record)

    def naive(self, scope, group):
        """The best (priority, age) and its queue, by a scan of all messages of all queues."""
        best = []
        for number, queue in self.shard.queues.items():
            if scope not in scopes_over(queue.path):
                continue
            for place, partition in enumerate(queue.partitions):
                progress = partition.progress.get(queue.groups.get(group, -1))
                for offset in range(partition.start, partition.end):
                    if offset in partition.scheduled or offset in partition.gone:
                        continue
                    if progress is not None:
                        retry = progress.retries.get(offset)
                        waits = retry is not None and retry.due > self.now
                        if progress.is_done(offset) or offset in progress.leased or waits:
                            continue
                    elif any(offset in piece for piece in map(range_of, partition.finished(offset, offset + 1))):
                        continue
                    best.append((-queue.config.queue_priority, self.times[number, place, offset], number))
        return min(best, default=None)

    @rule(path=st.sampled_from(QUEUES), priority=st.integers(-1, 1))
    def configure(self, path, priority):
        number = self.shard.paths.get(path)
        partitions = len(self.shard.queues[number].partitions) if number else 1
        config = parse_config({"partitions": partitions, "queue_priority": priority, "backoff": BACKOFF})
        self.submit(commands.ConfigureQueue(path, config))

    @rule(path=st.sampled_from(QUEUES), delay=st.sampled_from([0, 0, 0, 5]), count=st.integers(1, 3))
    def publish(self, path, delay, count):
        number = self.shard.paths.get(path)
        if number is not None:
            self.nonce += 1
            batch = batch_of(count, delay)
            self.submit(commands.Publish([commands.Part(number, batch)], self.nonce << 20))

    @rule(ms=st.integers(1, 12))
    def wait(self, ms):
        self.now += ms
        self.submit(commands.Tick())

    @rule(scope=st.sampled_from(["email", "email/a", "email/b", "nothing"]), group=st.sampled_from(["g", "h"]),
          wanted=st.integers(1, 3))  # fmt: skip
    def lease(self, scope, group, wanted):
        self.submit(commands.Tick())
        expected = self.naive(scope, group)
        chosen = self.scopes.next_queue(scope, group, self.now)
        assert (chosen is None) == (expected is None)
        if chosen is None:
            return
        # Which of two queues that are equal in both is a matter of taste; that they are equal is not.
        turn = self.scopes._turn(chosen, group, self.now)
        assert turn[:2] == expected[:2]
        self.nonce += 1
        command = commands.Lease(chosen, group, wanted, self.nonce, 20)
        reply = self.submit(command)
        if reply is None:
            reply = self.submit(command)
        assert reply
        self.leases += reply

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), kind=st.sampled_from([commands.Ack, commands.Nack, commands.Release]))
    def settle(self, data, kind):
        run = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        self.submit(kind([commands.Claim(run.lease, run.nonce, run.first, run.first + run.count)]))

    @rule(path=st.sampled_from(QUEUES))
    def delete(self, path):
        number = self.shard.paths.get(path)
        if number is not None:
            self.submit(commands.DeleteQueue(number))

    @invariant()
    def no_heap_outgrows_what_is_in_it(self):
        for opened in self.scopes._open.values():
            assert len(opened.heap) <= 2 * len(opened.turns) + scopes.STALE_MAX + 1


def range_of(pair):
    return range(*pair)


def batch_of(count, delay):
    from penstock.batch import Batch, build, layout

    columns = {layout.DELAY_MS: [delay] * count} if delay else {}
    return Batch.open(build([b"x"] * count, kind=layout.KIND_BYTES, columns=columns))


TestAgainstTheNaive = AgainstTheNaive.TestCase
TestAgainstTheNaive.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
