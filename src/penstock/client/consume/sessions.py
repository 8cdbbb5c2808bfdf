"""The consumers of a client that are in use."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from penstock.client.consume.options import ConsumeOptions
from penstock.client.consume.session import MessageKinds, Session
from penstock.client.transport.carrier import Carrier


class Sessions:
    """Opens sessions, and closes those that are still in use: by a loop, by a message, by an ack on its way."""

    def __init__(self, carrier: Carrier, kinds: MessageKinds[Any, Any]):
        self._carrier = carrier
        self._kinds = kinds
        self._open: WeakSet[Session[Any, Any]] = WeakSet()

    def open(self, options: ConsumeOptions, *, low_water: int) -> Session[Any, Any]:
        session = Session(self._carrier, options, self._kinds, low_water=low_water)
        self._open.add(session)
        return session

    async def aclose(self) -> None:
        """Give back what was leased ahead and send every ack, of all of them at the same time."""
        closing = self._carrier.runtime().jobs()
        for session in list(self._open):
            closing.start(session.aclose(), "penstock close")
        await closing.drain()

    def stop(self) -> None:
        """After `aclose`: there are no more calls."""
        for session in list(self._open):
            session.stop()
