"""The transports of the blocking client."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.client.blocking.runtime import BlockingRuntime
from penstock.client.blocking.socket_pool import SocketPool
from penstock.client.calls.call import Call, Response
from penstock.client.transport.base import SeparateCalls, Transport
from penstock.client.transport.endpoint import HTTP, ServerEndpoint
from penstock.client.transport.loop_thread import LoopThread
from penstock.client.transport.open import open_transport
from penstock.errors import PenstockError


def open_blocking_transport(endpoint: ServerEndpoint, runtime: BlockingRuntime) -> Transport:
    """Connects to nothing yet."""
    if endpoint.scheme == HTTP:
        return SocketPool(endpoint, runtime)
    return LoopThreadTransport(open_transport(endpoint), LoopThread("penstock client"), runtime, stops_thread=True)


class LoopThreadTransport(SeparateCalls):
    """A transport of asyncio in the event loop of another thread. Its coroutines block until that answers."""

    def __init__(self, inner: Transport, thread: LoopThread, runtime: BlockingRuntime, *, stops_thread: bool = False):
        self._inner = inner
        self._thread = thread
        self._runtime = runtime
        self._stops_thread = stops_thread

    @property
    def reached(self) -> bool:
        return self._inner.reached

    async def exchange(self, call: Call[Any]) -> Response:
        return self._runtime.unlocked(self._thread.run, self._inner.exchange(call))

    async def close(self) -> None:
        with suppress(PenstockError):  # closed before, or its broker is gone
            self._runtime.unlocked(self._thread.run, self._inner.close())
        if self._stops_thread:
            self._thread.stop()
