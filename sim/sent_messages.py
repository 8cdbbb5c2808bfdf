"""The messages that clients have sent, recorded before they are stored."""

from __future__ import annotations

TENANTS = (b"", b"acme", b"globex", b"initech")
KEYS = (b"ada", b"bob", b"cyd", b"dee", b"eve")


class Sent:
    """One message as its producer sends it. A repeated publish sends the same object."""

    __slots__ = (
        "client_id", "consumes", "delay_ms", "deliver_at_ms", "freed", "given_priority", "key", "max_retries",
        "payload", "priority",
        "queue", "request", "sequenced", "stored", "tenant", "token", "ttl_ms",
    )  # fmt: skip

    def __init__(self, token: int, queue: str, padding: int):
        self.token = token
        self.queue = queue
        self.payload = b"%d:" % token + bytes(padding)
        self.key = b""
        self.priority = 0
        """In its queue."""
        self.given_priority: int | None = None
        self.tenant = b""
        self.client_id = b""
        self.delay_ms = 0
        self.deliver_at_ms = 0
        self.ttl_ms = 0
        self.max_retries: int | None = None
        self.sequenced = False
        self.request: tuple[Sent, ...] = ()
        """All messages of the same publish."""
        self.consumes: frozenset[tuple[int, int]] = frozenset()
        """The (lease, offset) pairs that the same transaction acks."""
        self.stored = 0
        self.freed = 0
        """The id of a message that was cancelled before this one was sent again: this one is no duplicate of it."""

    @property
    def deduplicated(self) -> bool:
        return self.sequenced or bool(self.client_id) or bool(self.consumes)

    def copy_for(self, queue: str, delay_ms: int) -> Sent:
        """The copy that a redrive publishes in another queue."""
        copy = Sent(self.token, queue, 0)
        copy.payload, copy.key = self.payload, self.key
        copy.delay_ms, copy.ttl_ms, copy.max_retries = delay_ms, self.ttl_ms, self.max_retries
        return copy


def token_of(payload: bytes) -> int:
    return int(payload[: payload.index(b":")])
