"""Consuming from all queues of a namespace, or of a task of it, without asyncio."""

from __future__ import annotations

from weakref import WeakSet

from penstock.client.blocking.carrier import Carrier
from penstock.client.blocking.session import BatchConsumer, Consumer, Session
from penstock.client.consume.options import Terms, make_terms


class Scope:
    """The blocking twin of `penstock.Scope`."""

    def __init__(self, path: str, carrier: Carrier, sessions: WeakSet[Session]):
        self._carrier = carrier
        self._sessions = sessions
        self.path = path

    def __repr__(self) -> str:
        return f"<Scope {self.path}>"

    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: float | None = None, wait: float | None = None,
        consumer: str = "",
    ) -> Consumer:  # fmt: skip
        """As `Queue.consume`."""
        size = ("prefetch", prefetch)
        return Consumer(
            self._open_session(
                make_terms(self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, in_scope=True)
            )
        )

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: float | None = None, wait: float | None = None,
        consumer: str = "",
    ) -> BatchConsumer:  # fmt: skip
        """As `Queue.consume_batches`; a batch may hold messages of several queues."""
        size = ("max", max)
        return BatchConsumer(
            self._open_session(
                make_terms(self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, in_scope=True)
            )
        )

    def _open_session(self, terms: Terms) -> Session:
        session = Session(self._carrier, terms)
        self._sessions.add(session)
        return session
