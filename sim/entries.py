"""The entries of the ledger: queues, partitions, messages, and the state of each message in each group."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core import records
from penstock.core.config import QueueConfig
from sim.sent_messages import Sent

OVERHEAD_BYTES = 250
"""More bytes than a message ever takes on the disk beyond its payload."""


class Fate:
    """One message in one group."""

    __slots__ = ("attempt", "deadline", "delivered", "due", "final", "lease", "message", "redriven")

    def __init__(self, message: Message):
        self.message = message
        self.attempt = 0
        self.lease = 0
        self.deadline = 0
        self.due = 0
        """The time of the retry, if it waits for one."""
        self.final = ""
        self.redriven = False
        self.delivered = False
        """The message was delivered, whether or not the delivery counted."""


class Message:
    __slots__ = (
        "at",
        "budget",
        "due",
        "ended",
        "expires",
        "fates",
        "free_since",
        "id",
        "offset",
        "partition",
        "plain",
        "promised",
        "queue",
        "redriven",
        "sent",
        "size",
    )  # fmt: skip

    def __init__(self, queue: LedgerQueue, partition: int, offset: int, number: int, at: int, sent: Sent, size: int):
        config = queue.config
        self.queue = queue
        self.partition = partition
        self.offset = offset
        self.id = number
        self.at = at
        self.sent = sent
        self.size = size + OVERHEAD_BYTES
        self.due = max(at + config.delay_ms, at + sent.delay_ms, sent.deliver_at_ms)
        self.plain = self.due <= at
        """The message never waited for a due time: its order is guaranteed."""
        ttl = sent.ttl_ms or config.ttl_ms
        self.expires = at + ttl if ttl else 0
        self.budget = sent.max_retries
        self.fates: dict[int, Fate] = {}
        self.ended = ""
        self.redriven = False
        """The message was redriven or nacked: its age no longer ends it."""
        self.promised = False
        """An archive holds the message since before all groups had finished it."""
        self.free_since = 0
        """The time at which its last lease ended."""

    def __repr__(self) -> str:
        return f"message {self.sent.token} ({self.queue.path}/{self.partition}@{self.offset})"

    def leased(self) -> bool:
        return any(fate.lease for fate in self.fates.values())

    def finished(self) -> bool:
        """True if the message will not be delivered again: it ended, or every group has finished it."""
        return bool(self.ended) or (bool(self.fates) and all(fate.final for fate in self.fates.values()))


class LedgerPartition:
    __slots__ = ("dead", "held_from", "messages", "open", "order", "start")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """By offset."""
        self.start = 0
        self.held_from: int | None = None
        """An archive holds all messages from this offset on."""
        self.open: dict[int, dict[int, Fate]] = {}
        """Per group: unfinished messages by offset, ascending."""
        self.order: dict[int, int] = {}
        """Per group: the last undelayed message that was delivered for the first time."""
        self.dead: dict[tuple[int, int], int] = {}
        """(group, offset) -> time."""

    def settle_start(self, config: QueueConfig) -> int:
        """The first offset of the log."""
        if config.retention.mode == "until_acked" and self.open:
            floors = [next(iter(unfinished), len(self.messages)) for unfinished in self.open.values()]
            if self.held_from is not None:
                floors.append(self.held_from)
            self.start = max(self.start, min(floors))
        return self.start


class LedgerQueue:
    def __init__(self, number: int, path: str, config: QueueConfig):
        self.number = number
        self.path = path
        self.config = config
        self.partitions = [LedgerPartition() for _ in range(config.partitions)]
        self.groups: dict[int, str] = {}
        self.redrives: dict[str, LedgerRedrive] = {}
        self.tokens: dict[int, Message] = {}
        self.own_ids: dict[str, list[Message]] = {}
        """Client id -> its stored messages, the latest last."""
        self.keys: dict[bytes, int] = {}
        """Key -> the partition of all its messages since partitions were last added."""
        self.growths: list[list[int]] = []
        """The end offsets of the partitions, each time that partitions were added."""

    @property
    def one_by_one(self) -> bool:
        """True if a ready message may have to wait for another one: of its key, of its tenant, or of the group."""
        config = self.config
        return config.ordered_keys or config.exclusive or config.fair_share.max_in_flight is not None

    def age_of(self, message: Message) -> int:
        """The number of times that partitions had been added when the message was published."""
        return sum(message.partition >= len(ends) or message.offset >= ends[message.partition] for ends in self.growths)

    def grow(self) -> bool:
        """Add the partitions of the new configuration; True if there are new ones."""
        ends = [len(partition.messages) for partition in self.partitions]
        while len(self.partitions) < self.config.partitions:
            partition = LedgerPartition()
            partition.open = {group: {} for group in self.groups}
            self.partitions.append(partition)
        if len(self.partitions) == len(ends):
            return False
        self.growths.append(ends)
        return True


class LedgerRedrive:
    __slots__ = ("ended", "moved", "record")

    def __init__(self, record: records.RedriveStarted):
        self.record = record
        self.moved = 0
        self.ended = ""


class LedgerLease:
    __slots__ = ("consumer", "group", "held", "id", "lease_ms", "nonce", "partition", "queue", "taken")

    def __init__(self, record: records.Leased, queue: LedgerQueue):
        self.id = record.lease
        self.nonce = record.nonce
        self.queue = queue
        self.partition = record.partition
        self.group = record.group
        self.consumer = record.consumer
        self.lease_ms = record.lease_ms
        self.taken: dict[int, int] = {}
        """Offset -> attempt, for every offset of the lease."""
        self.held: dict[int, Fate] = {}


class Settlement(NamedTuple):
    status: str
    at: int | None
