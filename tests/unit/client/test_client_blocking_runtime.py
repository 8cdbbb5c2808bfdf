"""Coroutines in the calling thread: the lock, waiting for other threads, timers."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from penstock.client.blocking.runtime import BlockingRuntime, run_to_end

PATIENCE_S = 30.0


@pytest.fixture
def runtime() -> BlockingRuntime:
    return BlockingRuntime()


@pytest.fixture
def timers(runtime):
    timers = runtime.timers("penstock test")
    yield timers
    runtime.call(timers.stop)


def in_thread(function, *args) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def test_result_of_a_coroutine_is_returned_and_its_error_raised():
    async def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    assert run_to_end(double(4)) == 8
    with pytest.raises(ValueError, match="negative"):
        run_to_end(double(-1))


def test_coroutine_that_needs_an_event_loop_is_refused():
    async def suspends() -> None:
        await asyncio.sleep(0)

    work = suspends()
    with pytest.raises(RuntimeError, match="event loop"):
        run_to_end(work)
    work.close()


# -- the lock -------------------------------------------------------------------------------------------------------


def test_code_between_two_waits_is_not_interrupted_by_another_thread(runtime):
    trace: list[tuple[str, str]] = []

    async def work(name: str) -> None:
        for _ in range(50):
            trace.append((name, "begin"))
            trace.append((name, "end"))
            await runtime.sleep(0)

    threads = [in_thread(runtime.run, work(name)) for name in "abc"]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(trace) == 300
    assert all(first[0] == second[0] for first, second in zip(trace[::2], trace[1::2], strict=True))


def test_lock_is_released_while_a_call_blocks_and_taken_again_after_an_error(runtime):
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert leave.wait(PATIENCE_S)
        raise OSError("broken")

    def outer() -> None:
        with pytest.raises(OSError, match="broken"):
            runtime.unlocked(block)
        assert runtime.is_inside

    thread = in_thread(runtime.call, outer)
    assert entered.wait(PATIENCE_S)
    assert runtime.call(lambda: runtime.is_inside), "another thread may enter meanwhile"
    leave.set()
    thread.join(PATIENCE_S)
    assert not runtime.is_inside and runtime.call(lambda: "free") == "free"


def test_thread_that_is_inside_may_enter_again(runtime):
    assert runtime.call(lambda: runtime.call(lambda: runtime.is_inside))
    assert not runtime.is_inside


def test_hook_may_wait_for_another_thread_that_uses_the_client(runtime):
    def hook(partitions: list[int]) -> None:
        other = in_thread(runtime.call, lambda: partitions.append(7))
        other.join(PATIENCE_S)
        assert not other.is_alive()

    seen: list[int] = []
    runtime.run(runtime.call_hook(hook, seen))
    assert seen == [7]


# -- waiting for other threads --------------------------------------------------------------------------------------


def test_future_is_awaited_across_threads(runtime):
    future, failed = runtime.future(), runtime.future()
    got: list[object] = []

    async def wait() -> None:
        got.append(await future)
        with pytest.raises(ValueError, match="no"):
            await failed
        got.append("failed")

    thread = in_thread(runtime.run, wait())
    runtime.call(future.set_result, 5)
    runtime.call(failed.set_exception, ValueError("no"))
    thread.join(PATIENCE_S)
    assert got == [5, "failed"]


def test_wait_ends_with_its_timeout_or_with_the_first_future(runtime):
    done, never = runtime.future(), runtime.future()
    runtime.call(done.set_result, None)
    runtime.run(runtime.wait([done, never], until_first=True))
    runtime.run(runtime.wait([never], 0.001))
    assert not never.done()


def test_drain_waits_for_a_job_of_another_thread(runtime):
    jobs, begun, leave = runtime.jobs(), threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        runtime.unlocked(leave.wait, PATIENCE_S)

    thread = in_thread(runtime.call, jobs.start, work(), "job")
    assert begun.wait(PATIENCE_S) and jobs
    drained = threading.Event()
    waiting = in_thread(lambda: (runtime.run(jobs.drain()), drained.set()))
    assert not drained.is_set()
    leave.set()
    assert drained.wait(PATIENCE_S) and not jobs
    thread.join(PATIENCE_S)
    waiting.join(PATIENCE_S)


def test_mutex_is_held_across_waits(runtime):
    lock, order = runtime.lock(), []
    begun, leave = threading.Event(), threading.Event()

    async def hold(name: str) -> None:
        async with lock:
            order.append(name)
            begun.set()
            runtime.unlocked(leave.wait, PATIENCE_S)
            order.append(name)

    threads = [in_thread(runtime.run, hold("first"))]
    assert begun.wait(PATIENCE_S)
    threads.append(in_thread(runtime.run, hold("second")))
    leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["first", "first", "second", "second"]


# -- timers ---------------------------------------------------------------------------------------------------------


def test_timers_are_called_in_order_and_not_if_cancelled(runtime, timers):
    called: list[str] = []
    over = threading.Event()

    def set_all() -> None:
        now = runtime.time()
        timers.call_at(now + 0.02, lambda: called.append("second"))
        timers.call_at(now + 0.01, lambda: called.append("first"))
        timers.call_at(now + 0.015, lambda: called.append("cancelled")).cancel()
        timers.call_at(now + 0.03, over.set)

    runtime.call(set_all)
    assert over.wait(PATIENCE_S)
    assert called == ["first", "second"]


def test_timer_that_fails_is_logged_and_the_next_one_is_called(runtime, timers, caplog):
    over = threading.Event()
    with caplog.at_level(logging.ERROR, "penstock.client"):
        runtime.call(timers.call_at, 0.0, lambda: 1 // 0)
        runtime.call(timers.call_at, 0.1, over.set)
        assert over.wait(PATIENCE_S)
    assert "a timer failed" in caplog.text and "ZeroDivisionError" in caplog.text


def test_thread_of_timers_ends_when_it_is_closed_and_no_timer_is_left(runtime, timers):
    over = threading.Event()
    runtime.call(timers.call_at, runtime.time() + 0.02, over.set)
    runtime.call(timers.call_at, runtime.time() + 3600, over.set).cancel()
    thread = timers._thread
    runtime.call(timers.close)
    assert over.wait(PATIENCE_S), "a timer that was set is called"
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and timers._thread is None


def test_finalizer_inside_the_client_leaves_its_work_to_the_thread_of_timers(runtime, timers):
    threads: list[int] = []
    over = threading.Event()

    def note() -> None:
        threads.append(threading.get_ident())
        over.set()

    timers.call_soon_threadsafe(note)
    assert threads == [threading.get_ident()], "outside the client it is done at once"
    over.clear()
    runtime.call(timers.call_soon_threadsafe, note)
    assert over.wait(PATIENCE_S)
    assert threads[1] != threading.get_ident()
