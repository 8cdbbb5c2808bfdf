"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.client.transport.base import client_is_closed

T = TypeVar("T")


class LoopThread:
    """Runs from the first `submit` to `stop`. The thread does not keep the process alive."""

    def __init__(self, name: str):
        self._name = name
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._stopped = False

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        thread.start()
        return loop, thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin it there. Cancelling the future cancels it. Raises PenstockError after `stop`."""
        with self._lock:
            if not self._stopped:
                self._running = self._running or self._start()
                return asyncio.run_coroutine_threadsafe(coroutine, self._running[0])
        coroutine.close()
        raise client_is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for its result. An interrupt of the wait also cancels the coroutine."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel the tasks that still run there, then end the thread."""
        with self._lock:
            running = None if self._stopped else self._running
            self._stopped = True
        if running is not None:
            loop, thread = running
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
