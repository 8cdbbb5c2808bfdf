"""A broker for users' own tests: the server's broker, in memory, with a manual clock.

    with MemoryBroker() as broker, broker.sync_client() as client:
        client.queue("mail").publish("remind", delay=3600)
        broker.advance(3600)
        (message,) = client.queue("mail").consume(wait=0.0)

The broker runs in its own thread, so asyncio clients of any event loop and blocking clients can share it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from penstock.client import Client
from penstock.client.lowlevel import (
    InProcessTransport,
    LoopThread,
    OtherLoopTransport,
    blocking_client_in_process,
    client_over,
)
from penstock.engines.memory import MemoryEngine
from penstock.errors import InvalidRequest, PenstockError
from penstock.sync import Client as SyncClient
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import InProcess
from penstock.transports.http.answer import Answer
from penstock.transports.http.app import HttpApp
from penstock.transports.http.in_process import InProcessHttp


class MemoryBroker:
    """A context manager. The clock stands at `start` until `advance`."""

    def __init__(self, *, start: datetime | None = None, auto_create: bool = True, seed: int = 1):
        """`start` is the initial time (default: now). The same `seed` gives the same message ids."""
        at_ms = round((time.time() if start is None else _aware(start).timestamp()) * 1000)
        engine = MemoryEngine()
        self._box = InProcess(lambda: engine, ManualClock(at_ms), seed, {"auto_create": auto_create})
        self._home: LoopThread | None = None
        self._edge: InProcessHttp | None = None

    def __enter__(self) -> Self:
        self._home = LoopThread("penstock test broker")
        self._home.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        home, self._home = self._running(), None
        try:
            home.run(self._stop())
        finally:
            home.stop()

    # -- clients ----------------------------------------------------------------------------------------------

    def client(self) -> Client:
        """A new `penstock.Client` of this broker, for one event loop. It does not retry, so that errors are visible."""
        return client_over(OtherLoopTransport(InProcessTransport(self._ask), self._running()), retry_for=0.0)

    def sync_client(self) -> SyncClient:
        """A new `penstock.sync.Client` of this broker."""
        return blocking_client_in_process(self._ask, self._running(), retry_for=0.0)

    # -- time -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time of the broker's clock, in UTC."""
        return datetime.fromtimestamp(self._box.clock.now_ms() / 1000, UTC)

    def advance(self, seconds: float) -> None:
        """Advance the clock and run the timers of the broker: delays end, leases expire, schedules fire."""
        if seconds < 0:
            raise InvalidRequest("time cannot go back", details={"field": "seconds"})
        self._running().run(self._box.advance(round(seconds * 1000)))

    def restart(self) -> None:
        """Stop the broker and start it again on its store. Clients stay usable; waiting calls get an empty reply."""
        self._running().run(self._restart())

    # -- in the thread of the broker --------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._box.start()
        self._edge = InProcessHttp(HttpApp(self._box.broker, self._box.clock))

    async def _stop(self) -> None:
        self._edge = None
        self._box.broker.stop_waiting()
        await self._box.stop()

    async def _restart(self) -> None:
        await self._stop()
        await self._start()

    async def _ask(self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> Answer:
        if self._edge is None:
            raise PenstockError("this broker is stopped")
        return await self._edge.ask(method, target, headers, body)

    def _running(self) -> LoopThread:
        if self._home is None:
            raise PenstockError("this broker is not running: use it with `with`")
        return self._home


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidRequest("start: the datetime needs a time zone", details={"field": "start"})
    return moment
