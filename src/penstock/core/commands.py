"""Commands of the state machine, and its replies. Values only; the edge has already checked their form.

The machine draws no random bits: `nonce` and `entropy` are drawn outside and come with the command.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from penstock import limits
from penstock.batch import Batch
from penstock.core.config import QueueConfig
from penstock.core.records import ScheduleSpec, WebhookSpec

# -- queues -----------------------------------------------------------------------------------------------------


class ConfigureQueue(NamedTuple):
    """Create the queue or change its settings."""

    path: str
    config: QueueConfig


class DeleteQueue(NamedTuple):
    queue: int


class PurgeQueue(NamedTuple):
    queue: int


class TrimPartition(NamedTuple):
    queue: int
    partition: int
    start: int


# -- messages in ------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    queue: int
    batch: Batch


class Publish(NamedTuple):
    """All parts or none of them."""

    parts: list[Part]
    entropy: int
    producer: str = ""
    epoch: int = 0
    seq: int = 0


class PublishedRun(msgspec.Struct, frozen=True):
    """Where a run of rows of one part is now: the rows themselves, or the earlier ones they are duplicates of."""

    part: int
    queue: int
    partition: int
    offset: int
    count: int
    id: int
    duplicate: bool
    rows: list[int] | None
    """Positions in the part's batch; None for the whole part."""


# -- messages out -----------------------------------------------------------------------------------------------


class Lease(NamedTuple):
    queue: int
    group: str
    max: int
    nonce: int
    lease_ms: int | None = None
    consumer: str = ""
    member: str = ""
    generation: int = 0
    """The generation of the group that the member goes by."""
    bytes_max: int = limits.LEASE_REPLY_BYTES_MAX
    """Collecting stops at this size; one message is always given, whatever its size."""


class LeaseScope(NamedTuple):
    """From the queues of a scope, `namespace` or `namespace/task`: as many leases as it takes."""

    scope: str
    group: str
    max: int
    nonce: int
    lease_ms: int | None = None
    consumer: str = ""
    bytes_max: int = limits.LEASE_REPLY_BYTES_MAX


class LeasedRun(msgspec.Struct, frozen=True):
    queue: int
    partition: int
    first: int
    count: int
    attempt: int
    lease: int
    nonce: int
    deadline: int
    settled: bool
    lease_ms: int
    path: str = ""
    """Of the queue, where the caller did not name it."""


class Claim(NamedTuple):
    """Offsets `first` to `stop` of a lease, as a caller's receipt names them."""

    lease: int
    nonce: int
    first: int
    stop: int


class Outcome(NamedTuple):
    """The result for a part of a claim. `at` is the due time of a retry or the deadline of an extension."""

    first: int
    stop: int
    status: str
    at: int | None = None


class Ack(NamedTuple):
    claims: list[Claim]


class Nack(NamedTuple):
    claims: list[Claim]
    delay_ms: int | None = None
    error: str = ""
    max_retries: int | None = None
    """The consumer's own limit; it counts where it is lower than that of the queue or the message."""


class Reject(NamedTuple):
    claims: list[Claim]
    error: str = ""


class DropUnreadable(NamedTuple):
    """Take messages out of a lease that cannot be read: their bytes are damaged, or their data key was destroyed."""

    claims: list[Claim]
    problems: list[str]
    """For each claim the file, the offset and the kind of the damage, or `settling.ERASED`."""


class Release(NamedTuple):
    """Give back what was not handled."""

    claims: list[Claim]


class Extend(NamedTuple):
    claims: list[Claim]
    lease_ms: int


# -- members of groups ------------------------------------------------------------------------------------------


class Join(NamedTuple):
    queue: int
    group: str
    member: str
    session_ms: int
    drain_ms: int


class Heartbeat(NamedTuple):
    queue: int
    group: str
    member: str
    generation: int
    released: list[int]
    """Partitions that it was told to give up and is done with, whatever it still holds there."""


class CreateGroup(NamedTuple):
    """A group before its first lease. One that exists already stays where it is."""

    queue: int
    group: str
    starts: list[int]
    """Per partition: the first offset that it will see."""
    may_let_go: bool = True
    """False: the first group of a queue that keeps messages until they are acked begins with the oldest, whatever the
    starts say, as nothing would keep what it passes over."""


class SeekGroup(NamedTuple):
    """Begin anew at these offsets, one per partition; `groups.STAYS` where the group stays as it is."""

    queue: int
    group: str
    offsets: list[int]


class DeleteGroup(NamedTuple):
    queue: int
    group: str
    number: int
    """The group that is meant: another one may have the name by now."""


class Leave(NamedTuple):
    queue: int
    group: str
    member: str
    generation: int | None = None
    """None: the present member of that name, of any generation."""


# -- both at once -----------------------------------------------------------------------------------------------


class Transact(NamedTuple):
    """All the claims are acked and all the parts published, or nothing happens."""

    claims: list[Claim]
    parts: list[Part]
    entropy: int
    key: bytes = b""
    """The transaction's key (`transacting.key_of`), where the parts do not give it: one of their queues may be gone."""


class Transacted(NamedTuple):
    outcomes: list[list[Outcome]]
    """As of an ack."""
    runs: list[PublishedRun] | None
    """None: some of the claims are stale, and nothing happened."""


# -- messages that wait -----------------------------------------------------------------------------------------


class Cancel(NamedTuple):
    queue: int
    messages: list[tuple[int, int]]
    """(partition, offset) each."""
    client_ids: list[bytes] = []
    """Of each message; empty where it has none, and altogether if none has one."""


class Reschedule(NamedTuple):
    queue: int
    messages: list[tuple[int, int]]
    due: int


# -- readers ----------------------------------------------------------------------------------------------------


class KeepOffsets(NamedTuple):
    """Remember where a reader is; without offsets, only that it is still there."""

    queue: int
    client: str
    offsets: dict[int, int]


class ForgetOffsets(NamedTuple):
    queue: int
    client: str


class SetHold(NamedTuple):
    """Keep the journal from a frame on, and queues from offsets on, until the hold moves on or ends."""

    name: str
    frame: int
    """Of the journal; 0: none."""
    offsets: dict[int, dict[int, int]]
    """Queue -> partition -> offset."""
    max_bytes: int


class EndHold(NamedTuple):
    name: str
    reason: Literal["removed", "max_bytes"]


# -- schedules --------------------------------------------------------------------------------------------------


class SetSchedule(NamedTuple):
    """Create the schedule or change it."""

    name: str
    spec: ScheduleSpec


class PauseSchedule(NamedTuple):
    """Stop firing, or go on with it."""

    name: str
    paused: bool


class RemoveSchedule(NamedTuple):
    name: str


# -- webhooks ---------------------------------------------------------------------------------------------------


class SetWebhook(NamedTuple):
    """Register a webhook, with its first secret; or change one, without."""

    id: str
    spec: WebhookSpec
    secret: bytes = b""


class RotateWebhook(NamedTuple):
    """Sign with another secret from now on, and with the earlier ones as well for `overlap_ms`."""

    id: str
    secret: bytes
    overlap_ms: int


class SwitchWebhook(NamedTuple):
    id: str
    state: Literal["active", "paused", "disabled"]
    reason: str = ""


class RemoveWebhook(NamedTuple):
    id: str


# -- API keys ---------------------------------------------------------------------------------------------------


class CreateKey(NamedTuple):
    id: str
    name: str
    scopes: list[str]
    hash: bytes
    expires_at: int = 0
    rate: str = ""
    creator: str = ""


class RotateKey(NamedTuple):
    """Accept another secret from now on, and the present one as well for `overlap_ms`."""

    id: str
    hash: bytes
    overlap_ms: int


class RevokeKey(NamedTuple):
    id: str


# -- people -----------------------------------------------------------------------------------------------------


class AddUser(NamedTuple):
    email: str
    role: str
    hash: str
    """Of the password, as `security/passwords.py` makes it."""
    creator: str = ""


class ChangeUser(NamedTuple):
    """Another role or another password; empty: as before."""

    email: str
    role: str = ""
    hash: str = ""


class RemoveUser(NamedTuple):
    email: str


# -- messages that were given up --------------------------------------------------------------------------------


class Letter(NamedTuple):
    """One dead letter, as it was looked at: `dead_at` tells it from one of the same message that died anew."""

    partition: int
    group: int
    offset: int
    dead_at: int


class StartRedrive(NamedTuple):
    """Note down a redrive, so that it goes on after a restart. Answers with the one of that id, new or not."""

    queue: int
    redrive: str
    group: str = ""
    filter: str | None = None
    ids: list[bytes] = []
    target: str = ""
    delay_ms: int = 0
    priority: int | None = None
    rate_per_s: int = 0


class RedriveLetters(NamedTuple):
    """One step of a redrive. With `target` row *i* of its batch is a copy of letter *i*; otherwise they go back."""

    queue: int
    redrive: str
    letters: list[Letter]
    target: Part | None = None
    entropy: int = 0


class EndRedrive(NamedTuple):
    queue: int
    redrive: str
    outcome: Literal["finished", "stopped", "failed"]
    skipped: int = 0
    error: str = ""


class DeleteLetters(NamedTuple):
    queue: int
    letters: list[Letter]


class PruneLetters(NamedTuple):
    """Let go of some of the letters that the queue's bounds no longer allow."""

    queue: int


# -- time -------------------------------------------------------------------------------------------------------


class Open(NamedTuple):
    term: int
    node: str


class Tick(NamedTuple):
    """Time has passed. Leases, sessions and lives that ran out are ended by records."""

    short_of_space: bool = False
    """Nothing may be published now: what room is left is for finishing messages."""


Command: TypeAlias = (
    ConfigureQueue | DeleteQueue | PurgeQueue | TrimPartition | Publish | Transact | Lease | Ack | Nack | Reject
    | DropUnreadable | Release | Extend | Join | Heartbeat | Leave | CreateGroup | SeekGroup | DeleteGroup | Cancel
    | Reschedule | StartRedrive | RedriveLetters | EndRedrive | DeleteLetters | PruneLetters | Open | Tick
    | SetSchedule | PauseSchedule | RemoveSchedule
    | KeepOffsets | ForgetOffsets | SetWebhook | RotateWebhook | SwitchWebhook | RemoveWebhook
    | SetHold | EndHold | CreateKey | RotateKey | RevokeKey | AddUser | ChangeUser | RemoveUser
)  # fmt: skip
