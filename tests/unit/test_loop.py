"""Decide on arrival, answer when durable: the shard's loop over a journal whose disk obeys the test."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import commands
from penstock.core.config import DEFAULT
from penstock.core.state import Shard
from penstock.eager import Finished, begin
from penstock.engines.memory import MemoryEngine
from penstock.errors import Conflict, QueueNotFound, Unavailable
from penstock.journal.codec import decode
from penstock.journal.frame import FrameWriter
from penstock.journal.port import Failed, Fenced
from penstock.runtime.log import MessageLog
from penstock.runtime.loop import ShardLoop
from penstock.testing.clock import ManualClock


class GatedJournal:
    """A journal in memory whose appends wait for `open`, and fail with `error` once it is set."""

    def __init__(self, journal) -> None:
        self._journal = journal
        self._gate = asyncio.Event()
        self.begun = 0
        self.at_work = False
        """A frame is written and not durable yet."""
        self.error: Exception | None = None
        self.late_error: Exception | None = None
        """Raised behind `durable`, where a journal has nothing left to do: if it fails there all the same."""

    def __getattr__(self, name: str):
        return getattr(self._journal, name)

    def open(self) -> None:
        self._gate.set()

    def shut(self) -> None:
        self._gate.clear()

    async def append(self, index: int, parts, *, may_block: bool = False, meanwhile=None) -> int:
        self.begun += 1
        await self._gate.wait()
        if may_block and meanwhile is not None:
            self.at_work = True
            meanwhile.written()
            self.at_work = False
        if self.error is not None:
            raise self.error
        locator = await self._journal.append(index, parts, may_block=may_block)
        if may_block and meanwhile is not None:
            meanwhile.durable()
        if self.late_error is not None:
            raise self.late_error
        return locator


class Bench:
    """A loop with one queue, number 1."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.clock = ManualClock()

    async def start(self) -> Bench:
        self.journal = GatedJournal(await MemoryEngine().acquire(0, bytes(16)))
        log = MessageLog(self.journal)
        writer = FrameWriter(bytes(16), 1)
        self.loop = ShardLoop(Shard(), self.journal, log, writer, self.clock, self.failures.append)
        self.journal.open()
        await self.loop.submit(commands.ConfigureQueue("a/b/c", DEFAULT))
        self.journal.shut()
        return self

    def publish(self, *payloads: bytes) -> asyncio.Future:
        batch = Batch.open(build(payloads or [b"x"], kind=layout.KIND_BYTES))
        return self.loop.submit(commands.Publish([commands.Part(1, batch)], 0))

    def lease(self, wait_ms: int = 0) -> asyncio.Future:
        return self.loop.lease(commands.Lease(1, "default", 10, 7), wait_ms)

    async def frames(self) -> list[list[str]]:
        """The kinds of the records of each frame behind the first."""
        found = []
        async for _, frame in self.journal.replay(1):
            found.append([type(record).__name__ for _, record in decode(frame.body)])
        return found


def with_bench(test):
    def wrapped() -> None:
        async def run() -> None:
            bench = await Bench().start()
            await test(bench)
            if bench.loop.failed is None:
                bench.journal.open()
                await bench.loop.drain()

        asyncio.run(run())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@with_bench
async def test_a_reply_leaves_when_its_facts_are_durable_and_not_before(bench):
    published = bench.publish(b"1")
    await turns()
    assert (bench.journal.begun, published.done()) == (2, False)
    bench.journal.open()
    (run,) = await published
    assert (run.offset, run.count) == (0, 1)


@with_bench
async def test_whoever_comes_while_the_disk_works_shares_the_next_frame(bench):
    first = bench.publish()
    await turns()
    rest = [bench.publish() for _ in range(50)]
    bench.journal.open()
    await asyncio.gather(first, *rest)
    assert await bench.frames() == [["Published"], ["Published"] * 50]


@with_bench
async def test_an_answer_without_facts_waits_for_the_facts_it_has_seen(bench):
    published = bench.publish()
    await turns()
    nothing = bench.loop.submit(commands.Ack([commands.Claim(9, 9, 0, 1)]))
    await turns()
    assert not nothing.done(), "the state it was decided on is not durable yet"
    bench.journal.open()
    await published
    assert (await nothing)[0][0].status == "stale"
    bench.journal.shut()
    assert (await bench.loop.submit(commands.Ack([commands.Claim(9, 9, 0, 1)])))[0][0].status == "stale"


@with_bench
async def test_replies_leave_in_the_order_of_the_decisions(bench):
    left: list[int] = []
    for number in range(20):
        bench.publish().add_done_callback(lambda _, number=number: left.append(number))
        if number % 3 == 0:
            await turns(2)
    bench.journal.open()
    await turns(50)
    assert left == list(range(20))


@with_bench
async def test_a_message_can_be_leased_before_it_is_durable_and_both_become_so_together(bench):
    published, leased = bench.publish(b"1"), bench.lease()
    await turns()
    assert not leased.done()
    bench.journal.open()
    await published
    (run,) = await leased
    assert (run.first, run.count) == (0, 1)
    assert await bench.frames() == [["Published", "GroupCreated", "Leased"]]


@with_bench
async def test_a_refusal_is_raised_there_and_then(bench):
    with pytest.raises(QueueNotFound):
        bench.loop.submit(commands.PurgeQueue(99))
    assert bench.journal.begun == 1


@pytest.mark.parametrize("error", [Failed("the disk failed"), Fenced("term 1 ended"), RuntimeError("whatever")])
def test_after_a_commit_of_unknown_outcome_no_reply_ever_leaves(error):
    async def run() -> None:
        bench = await Bench().start()
        bench.journal.error = error
        waiting = bench.lease(wait_ms=60_000)
        first = bench.publish()
        await turns()
        second = bench.publish()
        bench.journal.open()
        for future in (first, second):
            with pytest.raises(Unavailable, match=str(error)):
                await future
        with pytest.raises(Unavailable):
            await waiting
        assert len(bench.failures) == 1
        with pytest.raises(Unavailable):
            bench.publish()
        with pytest.raises(Unavailable):
            bench.lease()
        with pytest.raises(Failed):
            bench.loop.cut(lambda *_: None)
        assert bench.journal.begun == 2, "nothing was tried again"

    asyncio.run(run())


@with_bench
async def test_a_cut_is_made_behind_everything_decided_before_it(bench):
    seen = []
    bench.publish(b"1")
    cut = bench.loop.cut(lambda index, chain, locator: seen.append((index, chain, locator)))
    bench.publish(b"2")
    bench.journal.open()
    await cut
    await turns()
    assert await bench.frames() == [["Published"], ["Published"]]
    frames = [frame async for _, frame in bench.journal.replay(0)]
    assert seen == [(2, frames[1].chain, 2)]


@with_bench
async def test_a_cut_with_nothing_new_is_behind_the_last_frame(bench):
    seen = []
    bench.journal.open()
    await bench.loop.cut(lambda index, chain, locator: seen.append((index, locator)))
    assert seen == [(1, 1)]


@with_bench
async def test_more_publishes_than_the_disk_takes_are_refused_while_consumers_go_on(bench):
    (run,) = await finished(bench, bench.publish(b"1"))
    assert run.offset == 0
    (leased,) = await finished(bench, bench.lease())
    large = bytes(limits.PAYLOAD_BYTES_MAX)
    futures = []
    with pytest.raises(Unavailable, match="does not keep up") as caught:
        for _ in range(100):
            futures.append(bench.publish(large))
    assert caught.value.retry_after_ms
    assert limits.PENDING_BYTES_MAX <= len(futures) * len(large) <= limits.PENDING_BYTES_MAX + 2 * len(large)
    acked = bench.loop.submit(commands.Ack([commands.Claim(leased.lease, leased.nonce, 0, 1)]))
    bench.journal.open()
    await asyncio.gather(*futures)
    assert (await acked)[0][0].status == "acked"
    bench.publish()


async def finished(bench: Bench, future: asyncio.Future) -> object:
    bench.journal.open()
    result = await future
    bench.journal.shut()
    return result


@with_bench
async def test_commands_of_any_kind_are_bounded(bench):
    with pytest.raises(Unavailable, match="does not keep up"):
        for _ in range(limits.PENDING_COMMANDS_MAX + 10):
            bench.loop.submit(commands.ConfigureQueue("a/b/c", DEFAULT))
            bench.publish()
    bench.journal.open()


@with_bench
async def test_a_reader_is_woken_by_what_is_durable(bench):
    reader = asyncio.ensure_future(bench.loop.grown(1, 0, 60_000))
    published = bench.publish()
    await turns()
    assert not reader.done()
    bench.journal.open()
    await published
    await asyncio.wait_for(reader, 5)
    await bench.loop.grown(1, 0, 1)  # nothing came: the time is over
    assert not bench.loop._readers


@with_bench
async def test_a_refused_group_answers_the_caller(bench):
    await finished(bench, bench.publish())
    queue = bench.loop.shard.queues[1]
    queue.groups |= {f"g{number}": number for number in range(limits.GROUPS_PER_QUEUE_MAX)}
    with pytest.raises(Conflict, match="groups already"):
        await bench.lease()
    queue.groups.clear()


# -- in a hurry -----------------------------------------------------------------------------------------------------


@with_bench
async def test_a_lone_caller_in_a_hurry_is_answered_before_the_loop_turns(bench):
    bench.journal.open()
    published = bench.publish(b"1")
    bench.loop.hurry()
    assert published.done(), "the commit that set up the queue had the loop to itself"
    acked, leased = bench.loop.submit(commands.Ack([])), bench.lease()
    bench.loop.hurry()
    assert acked.done() and leased.done()
    assert await bench.frames() == [["Published"], ["GroupCreated", "Leased"]]
    await turns()
    assert bench.journal.begun == 3


@with_bench
async def test_where_others_come_there_is_no_hurry(bench):
    first = bench.publish()
    await turns()
    second = bench.publish()
    bench.loop.hurry()
    bench.journal.open()
    await asyncio.gather(first, second)
    third = bench.publish()
    bench.loop.hurry()
    assert not third.done(), "somebody came while the disk was working: others may share this one"
    await third


@with_bench
async def test_a_hurried_commit_that_has_to_wait_holds_back_the_next(bench):
    first = bench.publish(b"1")
    bench.loop.hurry()
    await turns()
    second = bench.publish(b"2")
    bench.loop.hurry()
    await turns()
    assert (bench.journal.begun, first.done(), second.done()) == (2, False, False)
    bench.journal.open()
    await asyncio.gather(first, second)
    assert await bench.frames() == [["Published"], ["Published"]]


@with_bench
async def test_the_answer_of_a_lone_caller_is_prepared_while_the_disk_is_at_work(bench):
    bench.journal.open()
    seen = []

    async def call():
        (published,) = await bench.publish(b"1")
        seen.append(bench.journal.at_work)
        acked, leased = bench.loop.submit(commands.Ack([])), bench.lease()
        await acked
        await leased
        return published.offset

    caller = begin(call())
    bench.loop.hurry(caller)
    assert seen == [True]
    assert bench.loop.log.finder(1, 0)(0) is not None, "the message is found when it is durable"
    assert caller.go_on() is caller, "what came of the answer waits for a commit of its own"
    bench.loop.hurry(caller)
    assert caller.go_on() == Finished(0)


@with_bench
async def test_whoever_else_shares_the_commit_hears_of_it_when_it_is_durable(bench):
    bench.journal.open()
    other = bench.publish(b"1")
    heard = []
    other.add_done_callback(lambda _: heard.append(bench.journal.at_work))

    async def call():
        answer = await bench.publish(b"2")
        return answer, other.done()

    caller = begin(call())
    bench.loop.hurry(caller)
    assert caller.go_on().result[1] is False and other.done()
    await turns()
    assert heard == [False]


@with_bench
async def test_who_does_more_than_answer_is_told_when_it_is_true(bench):
    bench.journal.open()

    async def call():
        await bench.loop.submit(commands.ConfigureQueue("a/b/d", DEFAULT))
        return bench.journal.at_work

    caller = begin(call())
    bench.loop.hurry(caller)
    assert caller.go_on() == Finished(False)


@with_bench
async def test_what_is_published_and_leased_by_one_commit_is_not_looked_for_before_it_is_durable(bench):
    bench.journal.open()

    async def call():
        bench.publish(b"1")
        (run,) = await bench.lease()
        assert bench.loop.log.finder(1, 0)(run.first) is not None
        return bench.journal.at_work

    caller = begin(call())
    bench.loop.hurry(caller)
    assert caller.go_on() == Finished(False)


@with_bench
async def test_an_answer_leaves_before_anything_else_is_done_about_its_commit(bench):
    bench.journal.open()
    noted = []

    async def call():
        (published,) = await bench.publish(b"1")
        return published.offset

    def leave(offset):
        noted.append((offset, bench.journal.at_work, bench.loop.log.ends.get((1, 0))))

    caller = begin(call())
    caller.leave = leave
    bench.loop.hurry(caller)
    assert noted == [(0, False, None)], "durable, and not noted down yet"
    assert bench.loop.log.ends[1, 0] == 1
    assert caller.has_left and caller.go_on() == Finished(0)


@with_bench
async def test_what_waits_for_more_does_not_leave_with_the_first_commit(bench):
    bench.journal.open()

    async def call():
        await bench.publish(b"1")
        await bench.publish(b"2")
        return 2

    left = []
    caller = begin(call())
    caller.leave = left.append
    bench.loop.hurry(caller)
    assert (left, caller.has_left) == ([], False) and caller.go_on() is caller
    bench.loop.hurry(caller)
    assert left == [2] and caller.go_on() == Finished(2)


@with_bench
async def test_an_answer_that_has_left_stays_true_when_the_journal_fails_behind_it(bench):
    bench.journal.open()
    bench.journal.late_error = Failed("the disk failed")

    async def call():
        await bench.publish(b"1")
        return "published"

    left = []
    caller = begin(call())
    caller.leave = left.append
    bench.loop.hurry(caller)
    assert left == ["published"] and caller.go_on() == Finished("published")
    assert bench.failures == ["the disk failed"]


@pytest.mark.parametrize("waits_again", [False, True])
def test_an_answer_that_was_ready_before_the_disk_failed_never_leaves(waits_again):
    async def run() -> None:
        bench = await Bench().start()
        bench.journal.open()
        bench.journal.error = Failed("the disk failed")
        told = []

        async def call():
            told.append(await bench.publish())
            if waits_again:
                await asyncio.Event().wait()
            return "published"

        caller = begin(call())
        bench.loop.hurry(caller)
        assert told, "it was prepared"
        with pytest.raises(Unavailable, match="the disk failed"):
            caller.go_on()
        assert bench.failures == ["the disk failed"]

    asyncio.run(run())


def test_a_hurried_commit_of_unknown_outcome_stops_the_shard():
    async def run() -> None:
        bench = await Bench().start()
        bench.journal.open()
        bench.journal.error = Failed("the disk failed")
        published = bench.publish()
        bench.loop.hurry()
        with pytest.raises(Unavailable):
            await published
        assert bench.failures == ["the disk failed"]
        with pytest.raises(Unavailable):
            bench.publish()

    asyncio.run(run())
