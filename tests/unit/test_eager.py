"""A coroutine that is started without a task does what it would have done in a task."""

from __future__ import annotations

import asyncio

import pytest

from penstock.eager import Finished, Suspended, begin


def test_a_coroutine_that_never_waits_is_finished_at_once():
    async def work():
        return 1

    assert begin(work()) == Finished(1)


def test_an_error_before_the_first_wait_is_raised_by_begin():
    async def work():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(work())


def test_a_suspended_coroutine_can_be_awaited():
    async def run():
        first, second = asyncio.Event(), asyncio.Event()

        async def work():
            await first.wait()
            await asyncio.sleep(0)
            await second.wait()
            return asyncio.current_task()

        rest = begin(work())
        assert isinstance(rest, Suspended)

        async def others():
            return await rest

        task = asyncio.create_task(others())
        first.set()
        await asyncio.sleep(0)
        second.set()
        assert await task is task

    asyncio.run(run())


def test_go_on_runs_while_the_awaited_future_is_done():
    async def run():
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]

        async def work():
            return [await future for future in futures]

        rest = begin(work())
        assert isinstance(rest, Suspended)
        assert rest.go_on() is rest
        futures[0].set_result(0)
        futures[1].set_result(1)
        assert rest.go_on() is rest
        futures[2].set_result(2)
        assert rest.go_on() == Finished([0, 1, 2])

    asyncio.run(run())


def test_a_coroutine_that_went_on_can_be_awaited():
    async def run():
        loop = asyncio.get_running_loop()
        one, two = loop.create_future(), loop.create_future()

        async def work():
            return await one + await two

        rest = begin(work())
        assert isinstance(rest, Suspended)
        one.set_result(1)
        rest = rest.go_on()
        loop.call_soon(two.set_result, 2)
        assert isinstance(rest, Suspended)
        assert await rest == 3

    asyncio.run(run())


def test_the_error_of_a_future_reaches_the_coroutine():
    async def run(awaited: bool):
        future = asyncio.get_running_loop().create_future()

        async def work():
            with pytest.raises(KeyError):
                await future
            return "told"

        rest = begin(work())
        assert isinstance(rest, Suspended)
        future.set_exception(KeyError())
        assert (await rest if awaited else rest.go_on().result) == "told"

    asyncio.run(run(True))
    asyncio.run(run(False))


def test_cancelling_the_task_cancels_the_coroutine():
    async def run():
        never = asyncio.get_running_loop().create_future()
        seen = []

        async def work():
            try:
                await never
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        rest = begin(work())

        async def wait():
            await rest

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"] and never.cancelled()

    asyncio.run(run())


class _Turn:
    """As `asyncio.sleep(0)` waits, without a loop."""

    def __await__(self):
        yield


def test_destroying_the_awaiting_coroutine_closes_it():
    closed = []

    async def work():
        try:
            await _Turn()
        finally:
            closed.append("closed")

    rest = begin(work())

    async def others():
        return await rest

    task = others()
    task.send(None)
    task.close()
    assert closed == ["closed"]


def test_the_coroutine_may_be_closed_before_the_one_that_awaits_it():
    """The garbage collector closes them in any order."""

    async def work():
        await _Turn()

    coroutine = work()
    rest = begin(coroutine)

    async def others():
        return await rest

    task = others()
    task.send(None)
    coroutine.close()
    task.close()


def test_abandon_closes_a_coroutine_whose_task_never_began():
    closed = []

    async def work():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("closed")

    async def test():
        rest = begin(work())

        async def others():
            await rest

        task = asyncio.create_task(others())
        task.add_done_callback(lambda _: rest.abandon())
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert closed == ["closed"]
        rest.abandon()  # a second call does nothing

    asyncio.run(test())
