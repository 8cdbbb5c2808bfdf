"""Consuming from all queues of a namespace, or of a task of it."""

from __future__ import annotations

from weakref import WeakSet

from penstock.client.consume.options import Terms, make_terms
from penstock.client.consume.session import BatchConsumer, Consumer, Session
from penstock.client.transport.carrier import Carrier


class Scope:
    """A namespace (`"email"`), or a task of it (`"email/notifications"`); made by `Client.scope`.

    Queues with a higher `queue_priority` are drained first; among equals the one with the oldest message is next.
    Queues that are created later count too. Each message names its queue.
    """

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
        """As `Queue.consume`. What is in the local buffer was leased before something more urgent came: a small
        `prefetch` follows priorities more closely."""
        size = ("prefetch", prefetch)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, in_scope=True
        )  # fmt: skip
        return Consumer(self._open_session(terms, low_water=prefetch // 2 if prefetch > 1 else -1))

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: float | None = None, wait: float | None = None,
        consumer: str = "",
    ) -> BatchConsumer:  # fmt: skip
        """As `Queue.consume_batches`; a batch may hold messages of several queues."""
        size = ("max", max)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, in_scope=True
        )  # fmt: skip
        return BatchConsumer(self._open_session(terms, low_water=-1))

    def _open_session(self, terms: Terms, *, low_water: int) -> Session:
        session = Session(self._carrier, terms, low_water=low_water)
        self._sessions.add(session)
        return session
