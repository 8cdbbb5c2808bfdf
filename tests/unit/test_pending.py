"""A pending reply is prepared, sent or failed by the shard, and awaited or delivered to a callback."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import Unavailable
from penstock.pending import PendingReply


def test_steps_run_when_the_reply_is_prepared_and_the_callback_when_it_is_sent():
    pending: PendingReply[int] = PendingReply()
    seen = []
    shown = pending.then(lambda value: seen.append("step") or value + 1).then(str)
    shown.deliver(lambda done: seen.append(done.result()))
    assert seen == []
    pending.prepare(1)
    assert (seen, pending.done()) == (["step"], False)
    pending.complete(1)
    assert (seen, pending.done()) == (["step", "2"], True)


def test_a_failed_commit_drops_the_prepared_value():
    pending: PendingReply[int] = PendingReply()
    pending.then(str, lambda _: "recovered")
    pending.prepare(1)
    pending.fail(Unavailable("the disk failed"))
    with pytest.raises(Unavailable, match="the disk failed"):
        pending.result()
    pending.complete(1)
    assert pending.failed, "a reply is completed once"


def test_an_error_handler_turns_a_refusal_into_a_value():
    pending: PendingReply[int] = PendingReply()
    shown = pending.then(str, lambda error: f"no: {error}").then(str.upper)
    pending.fail(Unavailable("busy"))
    assert shown.result() == "NO: BUSY"


def test_a_step_that_raises_fails_the_reply_when_it_is_sent():
    pending: PendingReply[int] = PendingReply()
    pending.then(lambda value: 1 // value)
    pending.prepare(0)
    assert not pending.done()
    pending.complete(0)
    with pytest.raises(ZeroDivisionError):
        pending.result()


def test_steps_added_to_a_completed_reply_run_at_once():
    pending: PendingReply[int] = PendingReply()
    pending.complete(1)
    seen = []
    pending.then(str).deliver(lambda done: seen.append(done.result()))
    assert seen == ["1"]


def test_a_coroutine_awaits_the_outcome():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for outcome in (1, Unavailable("no")):
            pending: PendingReply[int] = PendingReply()
            if isinstance(outcome, int):
                loop.call_soon(pending.complete, outcome)
                assert await pending == outcome
                assert await pending == outcome, "also when it is done"
            else:
                loop.call_soon(pending.fail, outcome)
                with pytest.raises(Unavailable):
                    await pending

    asyncio.run(run())


def test_a_cancelled_coroutine_gives_the_reply_up():
    async def run() -> None:
        pending: PendingReply[int] = PendingReply()
        returned = []
        pending.on_cancel = lambda: returned.append(True)
        task = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pending.cancelled() and returned == [True]
        pending.prepare(1)
        pending.complete(1)
        assert pending.cancelled(), "completing it later changes nothing"

    asyncio.run(run())


def test_a_coroutine_cancelled_between_the_reply_and_its_resumption_gives_the_reply_up():
    async def run() -> None:
        pending: PendingReply[int] = PendingReply()
        returned = []
        task = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        pending.on_cancel = lambda: returned.append(True)
        pending.complete(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert returned == [True]

    asyncio.run(run())


def test_an_error_of_the_callback_does_not_reach_the_commit():
    async def run() -> None:
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        pending: PendingReply[int] = PendingReply()

        def fail(_: PendingReply[int]) -> None:
            raise ValueError("no such status")

        pending.deliver(fail)
        pending.complete(1)
        assert [str(error) for error in reported] == ["no such status"]

    asyncio.run(run())
