"""What clients have sent: the other half of the truth, known before anything is stored."""

from __future__ import annotations

TENANTS = (b"", b"acme", b"globex", b"initech")
KEYS = (b"ada", b"bob", b"cyd", b"dee", b"eve")


class Sent:
    """One message as its producer means it. Sending it again sends the same object again."""

    __slots__ = (
        "client_id", "consumes", "delay_ms", "deliver_at_ms", "freed", "key", "max_retries", "payload", "priority",
        "queue", "request", "sequenced", "stored", "tenant", "token", "ttl_ms",
    )  # fmt: skip

    def __init__(self, token: int, queue: str, padding: int):
        self.token = token
        self.queue = queue
        self.payload = b"%d:" % token + bytes(padding)
        self.key = b""
        self.priority = 0
        self.tenant = b""
        self.client_id = b""
        self.delay_ms = 0
        self.deliver_at_ms = 0
        self.ttl_ms = 0
        self.max_retries: int | None = None
        self.sequenced = False
        self.request: tuple[Sent, ...] = ()
        """Everything that was published together with it."""
        self.consumes: frozenset[tuple[int, int]] = frozenset()
        """Of a transaction: the (lease, offset) that are acked with it."""
        self.stored = 0
        self.freed = 0
        """Id of a message whose cancel was confirmed before this was sent again: what follows is no duplicate of it."""

    @property
    def deduplicated(self) -> bool:
        return self.sequenced or bool(self.client_id) or bool(self.consumes)

    def copy_for(self, queue: str, delay_ms: int) -> Sent:
        """What a redrive publishes in another queue: this message, without what belongs to its first life."""
        copy = Sent(self.token, queue, 0)
        copy.payload, copy.key = self.payload, self.key
        copy.delay_ms, copy.ttl_ms, copy.max_retries = delay_ms, self.ttl_ms, self.max_retries
        return copy


def token_of(payload: bytes) -> int:
    return int(payload[: payload.index(b":")])
