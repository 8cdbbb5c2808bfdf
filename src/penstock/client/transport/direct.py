"""Calls without a network: handed to a function of this process, which answers as a server would.

The function may live in an event loop of another thread, which is a `LoopThread`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import Transport, client_is_closed

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class DirectReply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...


Ask: TypeAlias = Callable[[str, str, Headers, bytes], Awaitable[DirectReply]]
"""(method, target, headers, body) -> the reply. Cancelling it withdraws the request."""


class InProcessTransport(Transport):
    """The transport of a client in the event loop of its broker."""

    reached = True

    def __init__(self, ask: Ask):
        self._ask = ask
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Response:
        if self._closed:
            raise client_is_closed()
        headers = ((b"content-type", call.content_type.encode()), (b"accept", call.accept.encode()))
        reply = await self._ask(call.method, call.target, headers, call.body)
        return Response(reply.status, dict(reply.headers), reply.body)

    async def close(self) -> None:
        self._closed = True


class OtherLoopTransport(Transport):
    """The transport of a client whose broker lives in the event loop of another thread."""

    reached = True

    def __init__(self, inner: InProcessTransport, thread: LoopThread):
        self._inner = inner
        self._thread = thread

    async def exchange(self, call: Call[Any]) -> Response:
        return await asyncio.wrap_future(self._thread.submit(self._inner.exchange(call)))

    async def close(self) -> None:
        await self._inner.close()


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
