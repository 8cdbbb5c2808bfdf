"""The records (facts) of the journal. Nothing changes the machine's state except applying one of these.

A record is a value: time, ids, nonces and jitter were decided before it was written and stand in it. On disk a record
is a MessagePack map (docs/formats/journal.md): fields may be added with a default, never renamed or removed; a reader
skips fields it does not know and refuses kinds it does not know. `ranges` are flat lists of half-open offset ranges.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from penstock.batch import Batch
from penstock.core.config import QueueConfig
from penstock.core.routing import RENDEZVOUS


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    at: int
    """Journal time in milliseconds."""


class Opened(Fact, frozen=True, tag="opened"):
    """A node took the shard. Running leases start over with their full duration: their holders did nothing wrong."""

    term: int
    node: str


class QueueConfigured(Fact, frozen=True, tag="queue"):
    queue: int
    path: str
    config: QueueConfig
    routing: int = RENDEZVOUS
    """Version of the function from keys to partitions (`routing.py`). A property of the queue from its creation on."""


class QueueDeleted(Fact, frozen=True, tag="queue_deleted"):
    queue: int


class QueuePurged(Fact, frozen=True, tag="queue_purged"):
    queue: int
    ends: list[int]
    """Per partition: everything below is gone."""


class GroupCreated(Fact, frozen=True, tag="group"):
    queue: int
    group: int
    name: str
    starts: list[int]
    """Per partition: the first offset the group will see."""


class GroupMoved(Fact, frozen=True, tag="group_moved"):
    """A group begins anew at these offsets: everything from there on is delivered to it again, nothing before."""

    queue: int
    group: int
    offsets: list[int]
    """Per partition; -1 where it stays as it is."""


class GroupDeleted(Fact, frozen=True, tag="group_deleted"):
    """A group, its progress and its dead letters are gone, and so is what only it had not finished."""

    queue: int
    group: int
    name: str


class MemberJoined(Fact, frozen=True, tag="member_joined"):
    """A member of a group whose partitions are assigned. Under a name that is taken, it replaces the former member."""

    queue: int
    group: int
    member: str
    generation: int
    session_ms: int
    drain_ms: int
    moved: list[int]
    """Partitions that change hands because of it."""
    owners: list[str]
    """Whose they are to be, one each."""


class MembersLeft(Fact, frozen=True, tag="members_left"):
    queue: int
    group: int
    members: list[str]
    generation: int
    reason: Literal["left", "session_expired", "partitions_added"]
    """`partitions_added`: no member left, there are more partitions to assign."""
    moved: list[int]
    owners: list[str]
    """The empty name where no member is left to own the partition."""


class HandedOver(Fact, frozen=True, tag="handed_over"):
    """The former owners hold no leases of these partitions any more."""

    queue: int
    group: int
    partitions: list[int]


class Published(Fact, frozen=True, tag="published"):
    """A run of messages of one partition. The batch travels beside the map, as the bytes that the client sent."""

    queue: int
    partition: int
    offset: int
    id: int
    batch: Batch
    producer: str = ""
    epoch: int = 0
    seqs: list[int] = []
    """Sequence numbers of the rows, as flat ranges; rows are in ascending order."""


class EncryptedPublished(Published, frozen=True, tag="encrypted"):
    """Published, as the journal has it where the queue has `encryption`: payloads and headers in the batch are
    ciphertext of the same length (docs/formats/encryption.md). The state machine needs neither."""

    path: str = ""
    """Of the queue."""
    seal: bytes = b""
    """The generation of the keyring, the nonces and the tags of the ciphertext."""


class TransactedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a run of rows of one part of a transaction went."""

    part: int
    queue: int
    partition: int
    offset: int
    count: int
    id: bytes
    rows: list[int] | None


class Transacted(Fact, frozen=True, tag="transacted"):
    """The acks and publishes beside this one were one request. It can be answered again."""

    key: bytes
    """Digest of the request."""
    runs: list[TransactedRun]


class Leased(Fact, frozen=True, tag="leased"):
    queue: int
    partition: int
    group: int
    lease: int
    nonce: int
    lease_ms: int
    runs: list[int]
    """Flat triples: first offset, count, attempt."""
    consumer: str = ""
    settled: bool = False
    """At most once: acked by being delivered."""
    flush: bool = False
    """The window was open because the oldest message had waited long enough: all that is pending may go."""


class Extended(Fact, frozen=True, tag="extended"):
    lease: int
    ranges: list[int]
    lease_ms: int
    queue: int = 0
    """Whose lease it is; 0 in journals that were written before this was told."""
    partition: int = 0
    group: int = 0


class Acked(Fact, frozen=True, tag="acked"):
    queue: int
    partition: int
    group: int
    lease: int
    ranges: list[int]


class Retried(Fact, frozen=True, tag="retried"):
    """Not done: back to the queue, not before `due`."""

    queue: int
    partition: int
    group: int
    lease: int
    ranges: list[int]
    due: int
    reason: Literal["nack", "lease_expired", "session_expired"]
    error: str = ""


class Released(Fact, frozen=True, tag="released"):
    """Given back unhandled: ready again at once, and the delivery does not count as an attempt."""

    queue: int
    partition: int
    group: int
    lease: int
    ranges: list[int]


class DeadLettered(Fact, frozen=True, tag="dead_lettered"):
    queue: int
    partition: int
    group: int
    lease: int
    ranges: list[int]
    reason: Literal["max_retries", "rejected", "damaged", "erased"]
    """`damaged`: its bytes cannot be read; `error` names the file and the offset. `erased`: its data key was destroyed
    before it was settled."""
    error: str = ""
    kept: bool = True
    """False where the queue keeps no dead letters: the message is gone, and this is the trace of it."""


class DeadLettersRemoved(Fact, frozen=True, tag="dead_letters_removed"):
    """No longer among the dead letters of this group, and their bytes are not kept for it any more."""

    queue: int
    partition: int
    group: int
    ranges: list[int]
    reason: Literal["deleted", "expired", "limit", "copied"]
    redrive: str = ""
    """Of `copied`: the redrive that published them elsewhere, in records beside this one."""


class RedriveStarted(Fact, frozen=True, tag="redrive_started"):
    """Dead letters were chosen, by filter or by id, to be brought back."""

    queue: int
    redrive: str
    group: str = ""
    filter: str | None = None
    ids: list[bytes] = []
    target: str = ""
    delay_ms: int = 0
    priority: int | None = None
    rate_per_s: int = 0


class Redriven(Fact, frozen=True, tag="redriven"):
    """Back in their place in the queue, for the group that had given them up; attempts start over."""

    queue: int
    partition: int
    group: int
    ranges: list[int]
    due: int
    redrive: str


class RedriveEnded(Fact, frozen=True, tag="redrive_ended"):
    queue: int
    redrive: str
    outcome: Literal["finished", "stopped", "failed"]
    skipped: int = 0
    error: str = ""


class Expired(Fact, frozen=True, tag="expired"):
    queue: int
    partition: int
    ranges: list[int]


class Cancelled(Fact, frozen=True, tag="cancelled"):
    queue: int
    partition: int
    ranges: list[int]
    freed: list[bytes] = []
    """Client ids of these messages: the next message with one of them is no duplicate."""


class Rescheduled(Fact, frozen=True, tag="rescheduled"):
    queue: int
    partition: int
    ranges: list[int]
    due: int


class OffsetsKept(Fact, frozen=True, tag="offsets"):
    """Where a reader of the log has come to, in every partition it named; nothing: it is forgotten."""

    queue: int
    client: str
    offsets: list[int]
    """Flat pairs: partition, offset to read on from."""


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message that a schedule publishes."""

    payload: bytes
    is_json: bool = False
    key: str = ""
    priority: int = 0
    headers: dict[str, str] = {}
    ttl_ms: int | None = None
    max_retries: int | None = None
    tenant: str = ""


class ScheduleSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a schedule: the message, its queue and its times."""

    queue: str
    cron: str
    message: Template
    timezone: str = "UTC"
    catch_up: Literal["latest", "all", "none"] = "latest"
    starts_at: int | None = None
    ends_at: int | None = None


class ScheduleSet(Fact, frozen=True, tag="schedule"):
    """A schedule was created or changed. `next` is the fire time it is at now; None: it has ended."""

    name: str
    spec: ScheduleSpec
    next: int | None = None


class SchedulePaused(Fact, frozen=True, tag="schedule_paused"):
    name: str
    paused: bool


class ScheduleRemoved(Fact, frozen=True, tag="schedule_removed"):
    name: str


class ScheduleFired(Fact, frozen=True, tag="schedule_fired"):
    """These fire times have their messages, which are published in the same decision; the schedule is at `next`."""

    name: str
    times: list[int]
    next: int | None = None
    skipped_from: int = 0
    """Fire times from here up to the first of `times` (or to `next`, if there is none) were missed and have none."""


class ScheduleRefused(Fact, frozen=True, tag="schedule_refused"):
    """The message of the fire time it is at could not be published. Nothing is lost; it is tried again."""

    name: str
    code: str
    error: str
    retry_at: int


class WebhookSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the messages of a group are sent to, and how, as its owner wants it."""

    queue: str
    group: str
    url: str
    retry_delays_ms: list[int]
    """Waited after the first, second, … attempt failed; one attempt more than there are delays."""
    format: Literal["plain", "cloudevents-structured", "cloudevents-binary"] = "plain"
    timeout_ms: int = 15_000
    concurrency: int = 4
    description: str = ""


class WebhookSet(Fact, frozen=True, tag="webhook"):
    """A webhook was registered, or changed."""

    id: str
    spec: WebhookSpec
    secret: bytes = b""
    """Of a new one: what its deliveries are signed with, sealed."""


class WebhookRotated(Fact, frozen=True, tag="webhook_rotated"):
    """A webhook has a new secret. The earlier ones sign as well, until then."""

    id: str
    secret: bytes
    until: int


class WebhookState(Fact, frozen=True, tag="webhook_state"):
    """A webhook was paused, resumed, or switched off because its endpoint said that it is gone."""

    id: str
    state: Literal["active", "paused", "disabled"]
    reason: str = ""


class WebhookRemoved(Fact, frozen=True, tag="webhook_removed"):
    id: str


class HoldSet(Fact, frozen=True, tag="hold"):
    """An archive outside still has to copy messages: from these offsets on nothing is removed. Replaces the hold of the
    same name."""

    name: str
    max_bytes: int
    index: int = 0
    """Frames of the journal from this one on are kept; 0: the hold is not about the journal."""
    offsets: list[int] = []
    """Flat triples: queue, partition, offset. Partitions of a named queue that are not named are held as a whole."""


class HoldEnded(Fact, frozen=True, tag="hold_ended"):
    """Taken back by its owner, or let go because it spanned more than it may."""

    name: str
    reason: Literal["removed", "max_bytes"]


class KeyCreated(Fact, frozen=True, tag="key"):
    """An API key was created. The journal has the keyed hash of its secret, never the secret."""

    id: str
    name: str
    scopes: list[str]
    hash: bytes
    expires_at: int = 0
    """0: it does not expire."""
    rate: str = ""
    creator: str = ""
    """The id of the key that created this one, or the subject of a token."""


class KeyRotated(Fact, frozen=True, tag="key_rotated"):
    """A key has a new secret; the former one is accepted until then."""

    id: str
    hash: bytes
    until: int


class KeyRevoked(Fact, frozen=True, tag="key_revoked"):
    id: str


class UserSet(Fact, frozen=True, tag="user"):
    """A person was added, or has another role or another password. The journal has the hash of the password."""

    email: str
    role: str
    hash: str
    creator: str = ""
    """The actor that added the person."""


class UserRemoved(Fact, frozen=True, tag="user_removed"):
    email: str


class Trimmed(Fact, frozen=True, tag="trimmed"):
    """Retention: the log of this partition now begins here."""

    queue: int
    partition: int
    start: int


Record: TypeAlias = (
    Opened | QueueConfigured | QueueDeleted | QueuePurged | GroupCreated | GroupMoved | GroupDeleted | Published
    | EncryptedPublished | Transacted | Leased | Extended | Acked | Retried | Released | DeadLettered
    | DeadLettersRemoved
    | RedriveStarted | Redriven | RedriveEnded | Expired | Cancelled | Rescheduled | Trimmed
    | ScheduleSet | SchedulePaused | ScheduleRemoved | ScheduleFired | ScheduleRefused | OffsetsKept
    | MemberJoined | MembersLeft | HandedOver | WebhookSet | WebhookRotated | WebhookState | WebhookRemoved
    | HoldSet | HoldEnded | KeyCreated | KeyRotated | KeyRevoked | UserSet | UserRemoved
)  # fmt: skip

KINDS: tuple[type[Fact], ...] = (
    Opened, QueueConfigured, QueueDeleted, QueuePurged, GroupCreated, GroupMoved, GroupDeleted, Published,
    EncryptedPublished, Transacted, Leased, Extended, Acked, Retried, Released, DeadLettered,
    DeadLettersRemoved, RedriveStarted,
    Redriven, RedriveEnded, Expired, Cancelled, Rescheduled, Trimmed,
    ScheduleSet, SchedulePaused, ScheduleRemoved, ScheduleFired, ScheduleRefused, OffsetsKept,
    MemberJoined, MembersLeft, HandedOver, WebhookSet, WebhookRotated, WebhookState, WebhookRemoved, HoldSet, HoldEnded,
    KeyCreated, KeyRotated, KeyRevoked, UserSet, UserRemoved,
)  # fmt: skip
