"""A coroutine that is begun on the spot does what it would have done in a task."""

from __future__ import annotations

import asyncio

import pytest

from penstock.eager import Finished, Rest, begin


def test_what_never_waits_is_finished_at_once():
    async def work():
        return 1

    assert begin(work()) == Finished(1)


def test_what_it_raises_before_it_waits_is_raised_at_once():
    async def work():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(work())


def test_the_rest_is_awaited_like_the_whole():
    async def run():
        first, second = asyncio.Event(), asyncio.Event()

        async def work():
            await first.wait()
            await asyncio.sleep(0)
            await second.wait()
            return asyncio.current_task()

        rest = begin(work())
        assert isinstance(rest, Rest)

        async def others():
            return await rest

        task = asyncio.create_task(others())
        first.set()
        await asyncio.sleep(0)
        second.set()
        assert await task is task

    asyncio.run(run())


def test_it_goes_on_as_long_as_what_it_waits_for_has_happened():
    async def run():
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]

        async def work():
            return [await future for future in futures]

        rest = begin(work())
        assert isinstance(rest, Rest)
        assert rest.go_on() is rest
        futures[0].set_result(0)
        futures[1].set_result(1)
        assert rest.go_on() is rest
        futures[2].set_result(2)
        assert rest.go_on() == Finished([0, 1, 2])

    asyncio.run(run())


def test_an_error_of_whoever_takes_the_result_is_told_afterwards():
    async def run():
        said = asyncio.get_running_loop().create_future()

        async def work():
            return await said

        def leave(_):
            raise ValueError("no such status")

        rest = begin(work())
        rest.leave = leave
        rest.go_ahead({said: 1})
        rest.come_true()
        assert not rest.has_left
        with pytest.raises(ValueError, match="no such status"):
            rest.go_on()

    asyncio.run(run())


def test_what_went_on_can_still_be_awaited():
    async def run():
        loop = asyncio.get_running_loop()
        one, two = loop.create_future(), loop.create_future()

        async def work():
            return await one + await two

        rest = begin(work())
        assert isinstance(rest, Rest)
        one.set_result(1)
        rest = rest.go_on()
        loop.call_soon(two.set_result, 2)
        assert isinstance(rest, Rest)
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
        assert isinstance(rest, Rest)
        future.set_exception(KeyError())
        assert (await rest if awaited else rest.go_on().result) == "told"

    asyncio.run(run(True))
    asyncio.run(run(False))


def test_it_goes_ahead_with_what_it_is_told_and_no_further():
    async def run():
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]

        async def work():
            return [await future for future in futures]

        rest = begin(work())
        rest.go_ahead({futures[2]: 2})
        assert not any(future.done() for future in futures), "it does not wait for that one yet"
        rest.go_ahead({futures[0]: 0, futures[1]: 1})
        assert rest.go_on() is rest
        rest.go_ahead({futures[2]: 2})
        assert rest.go_on() == rest.go_on() == Finished([0, 1, 2])
        assert await rest == [0, 1, 2]

    asyncio.run(run())


def test_what_it_raises_while_it_is_ahead_is_raised_when_it_goes_on():
    async def run():
        future = asyncio.get_running_loop().create_future()

        async def work():
            raise ValueError(await future)

        rest = begin(work())
        rest.go_ahead({future: "no"})
        with pytest.raises(ValueError, match="no"):
            rest.go_on()
        with pytest.raises(ValueError, match="no"):
            await rest

    asyncio.run(run())


def test_what_did_not_come_true_is_taken_back_from_who_has_made_something_of_it():
    async def run():
        future = asyncio.get_running_loop().create_future()

        async def work():
            return await future

        rest = begin(work())
        rest.go_ahead({future: 1})
        rest.take_back(KeyError("not true"))
        with pytest.raises(KeyError, match="not true"):
            rest.go_on()

    asyncio.run(run())


@pytest.mark.parametrize("tidies_up", [False, True])
def test_what_did_not_come_true_is_taken_back_from_who_waits_for_more(tidies_up):
    """Also if it knows what to do about the error: what it was told would be in its answer."""

    async def run():
        first, second, third = (asyncio.get_running_loop().create_future() for _ in range(3))
        seen = []

        async def work():
            told = [await first]
            try:
                await second
            except KeyError as error:
                seen.append(str(error))
                if tidies_up:
                    seen.append(await third)
            return told

        rest = begin(work())
        rest.go_ahead({first: 1})
        second.set_exception(KeyError("its own"))
        rest.take_back(KeyError("not true"))
        with pytest.raises(KeyError, match="not true"):
            rest.go_on()
        assert seen == ["'not true'"]
        third.set_result("tidied up")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == ["'not true'", "tidied up"][: 1 + tidies_up]

    asyncio.run(run())


def test_who_was_told_nothing_has_nothing_to_take_back():
    async def run():
        future = asyncio.get_running_loop().create_future()

        async def work():
            return await future

        rest = begin(work())
        rest.go_ahead({})
        rest.take_back(KeyError("not true"))
        future.set_result(1)
        assert rest.go_on() == Finished(1)

    asyncio.run(run())


def test_cancelling_the_task_cancels_the_rest():
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


def test_what_nobody_awaits_any_more_is_closed():
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


def test_it_may_have_been_closed_before_the_one_who_awaits_it():
    """As when both are rubbish, which is swept up in any order."""

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


def test_a_task_that_is_cancelled_before_it_begins_leaves_nothing_open():
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
        rest.abandon()  # once is enough

    asyncio.run(test())
