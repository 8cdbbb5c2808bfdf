"""Consuming from all queues of a namespace, or of a task of it."""

from __future__ import annotations

from penstock.client.consume.consumers import BatchConsumer, Consumer, Consumers
from penstock.client.consume.options import consume_options


class Scope:
    """A namespace (`"email"`), or a task of it (`"email/notifications"`); made by `Client.scope`.

    Queues with a higher `queue_priority` are drained first; among equals the one with the oldest message is next.
    Queues that are created later count too. Each message names its queue.
    """

    def __init__(self, path: str, consumers: Consumers):
        self._consumers = consumers
        self.path = path

    def __repr__(self) -> str:
        return f"<Scope {self.path}>"

    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: float | None = None, wait: float | None = None,
        consumer: str = "",
    ) -> Consumer:  # fmt: skip
        """As `Queue.consume`. Messages in the local buffer were leased before more urgent ones came: a small `prefetch`
        follows priorities more closely."""
        options = consume_options(
            self.path, group=group, size=("prefetch", prefetch), lease=lease, wait=wait, consumer=consumer,
            in_scope=True,
        )  # fmt: skip
        return self._consumers.of_messages(options)

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: float | None = None, wait: float | None = None,
        consumer: str = "",
    ) -> BatchConsumer:  # fmt: skip
        """As `Queue.consume_batches`; a batch may hold messages of several queues."""
        options = consume_options(
            self.path, group=group, size=("max", max), lease=lease, wait=wait, consumer=consumer, in_scope=True
        )
        return self._consumers.of_batches(options)
