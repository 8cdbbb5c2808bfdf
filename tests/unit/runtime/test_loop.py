"""Decide on arrival, answer when durable: the shard's loop over a journal whose disk obeys the test."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import commands
from penstock.core.config import DEFAULT
from penstock.core.state import Shard
from penstock.engines.memory import MemoryEngine
from penstock.errors import Conflict, QueueNotFound, Unavailable
from penstock.journal.codec import decode
from penstock.journal.frame import FrameWriter
from penstock.journal.port import Failed, Fenced
from penstock.pending import PendingReply
from penstock.runtime.log import MessageLog
from penstock.runtime.loop import ShardLoop
from penstock.testing.clock import ManualClock


class GatedJournal:
    """A journal in memory whose appends wait for `open`, and fail with `error` once it is set."""

    def __init__(self, journal) -> None:
        self._journal = journal
        self._gate = asyncio.Event()
        self.begun = 0
        self.writing = False
        """True while a frame is written and not durable yet."""
        self.error: Exception | None = None

    def __getattr__(self, name: str):
        return getattr(self._journal, name)

    def open(self) -> None:
        self._gate.set()

    def shut(self) -> None:
        self._gate.clear()

    async def append(self, index: int, parts) -> int:
        self.begun += 1
        self.writing = True
        await self._gate.wait()
        self.writing = False
        if self.error is not None:
            raise self.error
        return await self._journal.append(index, parts)

    def can_write_inline(self) -> bool:
        return self._gate.is_set()

    def write(self, index: int, parts) -> int:
        self.begun += 1
        self.writing = True
        return self._journal.write(index, parts)

    def sync(self) -> None:
        self.writing = False
        if self.error is not None:
            raise self.error


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

    def publish(self, *payloads: bytes) -> PendingReply:
        batch = Batch.open(build(payloads or [b"x"], kind=layout.KIND_BYTES))
        return self.loop.submit(commands.Publish([commands.Part(1, batch)], 0))

    def lease(self, wait_ms: int = 0) -> PendingReply:
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
async def test_a_reply_is_sent_when_its_records_are_durable(bench):
    published = bench.publish(b"1")
    await turns()
    assert (bench.journal.begun, published.done()) == (2, False)
    bench.journal.open()
    (run,) = await published
    assert (run.offset, run.count) == (0, 1)


@with_bench
async def test_commands_that_arrive_during_a_commit_share_the_next_frame(bench):
    first = bench.publish()
    await turns()
    rest = [bench.publish() for _ in range(50)]
    bench.journal.open()
    await asyncio.gather(first, *rest)
    assert await bench.frames() == [["Published"], ["Published"] * 50]


@with_bench
async def test_a_reply_without_records_waits_for_the_records_it_has_seen(bench):
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
async def test_replies_are_sent_in_the_order_of_the_decisions(bench):
    left: list[int] = []
    for number in range(20):
        bench.publish().deliver(lambda _, number=number: left.append(number))
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
async def test_a_refused_command_raises_at_once(bench):
    with pytest.raises(QueueNotFound):
        bench.loop.submit(commands.PurgeQueue(99))
    assert bench.journal.begun == 1


@pytest.mark.parametrize("error", [Failed("the disk failed"), Fenced("term 1 ended"), RuntimeError("whatever")])
def test_no_reply_is_sent_after_a_commit_of_unknown_outcome(error):
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


async def finished(bench: Bench, future: PendingReply) -> object:
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


# -- inline commits -------------------------------------------------------------------------------------------------


@with_bench
async def test_an_inline_commit_sends_the_reply_before_the_event_loop_turns(bench):
    bench.journal.open()
    published = bench.publish(b"1")
    bench.loop.commits.commit_now()
    assert published.done(), "no command arrived during the commit that created the queue"
    acked, leased = bench.loop.submit(commands.Ack([])), bench.lease()
    bench.loop.commits.commit_now()
    assert acked.done() and leased.done()
    assert await bench.frames() == [["Published"], ["GroupCreated", "Leased"]]
    await turns()
    assert bench.journal.begun == 3


@with_bench
async def test_no_inline_commit_where_other_commands_arrive(bench):
    first = bench.publish()
    await turns()
    second = bench.publish()
    bench.loop.commits.commit_now()
    bench.journal.open()
    await asyncio.gather(first, second)
    third = bench.publish()
    bench.loop.commits.commit_now()
    assert not third.done(), "a command arrived during the last commit: others may share this one"
    await third


@with_bench
async def test_no_inline_commit_while_the_journal_has_other_work(bench):
    published = bench.publish(b"1")
    bench.loop.commits.commit_now()
    assert bench.journal.begun == 1
    await turns()
    assert (bench.journal.begun, published.done()) == (2, False)
    bench.journal.open()
    await published


@pytest.mark.parametrize("inline", [True, False])
def test_replies_are_prepared_while_the_disk_works_and_sent_when_it_is_done(inline):
    async def run() -> None:
        bench = await Bench().start()
        seen: list[tuple[str, bool]] = []
        if inline:
            bench.journal.open()
        first, second = bench.publish(b"1"), bench.publish(b"2")
        for name, pending in (("first", first), ("second", second)):
            pending.then(lambda _, name=name: seen.append((f"prepare {name}", bench.journal.writing)))
            pending.deliver(lambda _, name=name: seen.append((f"send {name}", bench.journal.writing)))
        bench.loop.commits.commit_now()
        await turns()
        bench.journal.open()
        await asyncio.gather(first, second)
        assert seen == [
            ("prepare first", True),
            ("prepare second", True),
            ("send first", False),
            ("send second", False),
        ]
        await bench.loop.drain()

    asyncio.run(run())


@with_bench
async def test_a_lease_of_messages_of_the_same_frame_is_prepared_when_they_are_in_the_log(bench):
    bench.journal.open()
    bench.publish(b"1")
    leased = bench.lease().then(lambda runs: bench.loop.log.finder(1, 0)(runs[0].first) is not None)
    bench.loop.commits.commit_now()
    assert leased.done() and leased.result() is True


@with_bench
async def test_a_callback_may_submit_the_next_command(bench):
    bench.journal.open()
    replies = []

    def publish_next(_) -> None:
        replies.append(bench.publish(b"2"))

    bench.publish(b"1").deliver(publish_next)
    bench.loop.commits.commit_now()
    (run,) = await replies[0]
    assert run.offset == 1
    assert await bench.frames() == [["Published"], ["Published"]]


@pytest.mark.parametrize("inline", [True, False])
def test_a_prepared_reply_is_not_sent_if_the_commit_fails(inline):
    async def run() -> None:
        bench = await Bench().start()
        if inline:
            bench.journal.open()
        bench.journal.error = Failed("the disk failed")
        prepared = []
        published = bench.publish().then(prepared.append)
        bench.loop.commits.commit_now()
        await turns()
        assert prepared, "the reply was prepared"
        bench.journal.open()
        with pytest.raises(Unavailable, match="the disk failed"):
            await published
        assert bench.failures == ["the disk failed"]
        with pytest.raises(Unavailable):
            bench.publish()

    asyncio.run(run())


@with_bench
async def test_the_wait_of_a_lease_that_acks_ends_behind_its_acks(bench):
    """The disk takes longer than the lease waits: the empty lease contains the results of acks, and waits for them."""
    published = bench.publish(b"1")
    waited = bench.loop.lease(commands.Lease(1, "other", 10, 7), 0)
    bench.loop.waiters.park(commands.Lease(1, "default", 10, 7), 1, pending := PendingReply())
    await asyncio.sleep(0.01)
    assert not pending.done() and not waited.done()
    bench.journal.open()
    await published
    assert await pending == []
