"""The options of a consumer, checked once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock import limits
from penstock.client.units import Duration, bounded, invalid, milliseconds
from penstock.ids import check_group, check_member

Hook: TypeAlias = Callable[[list[int]], Any]

POLL_S = 20.0
"""Length of one long poll: well below the timeout of proxies, long enough to cost nothing."""
ACK_LINGER_S = 0.01
"""How long an ack without a waiter may stay here to travel with others."""
RELEASE_WITHIN_S = 2.0
"""How long a closing consumer tries to release messages that it did not handle; after that their leases end."""

assert POLL_S * 1000 <= limits.WAIT_MS_MAX


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """How to be a member of a group: `consume(group=…, assigned=Assigned(…))`.

    `member`       a name that stays the same over restarts of the program; default: a new one each time. A consumer
                   that joins under the name of a member replaces it, and the replaced one raises `StaleGeneration`
    `session`      time without a heartbeat (which is sent in the background) after which the member has left
    `drain`        time that it may take to finish what it holds of a partition that moves to another member
    `on_assigned`  called with partitions that are to be this member's, before the first message of them
    `on_revoked`   called with partitions that no longer are. Messages that were handed out may still be settled

    Hooks must not close their own consumer.
    """

    member: str | None = None
    session: Duration = 30.0
    drain: Duration = 30.0
    on_assigned: Hook | None = None
    on_revoked: Hook | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequest for options that no server accepts."""
        milliseconds("session", self.session, limits.SESSION_MS_MAX, limits.SESSION_MS_MIN)
        milliseconds("drain", self.drain, limits.DRAIN_MS_MAX)
        if self.member is not None:
            check_member(self.member)


class ConsumeOptions(NamedTuple):
    source: str
    """The queue, or the scope."""
    group: str
    size: int
    """Most messages to hold unhandled."""
    wait_s: float | None
    """End after this long without a message; None: never."""
    assigned: Assigned | None
    """How to be a member of the group; None: its partitions are not assigned."""
    request: dict[str, Any]
    """The fields that all lease calls of the consumer have. Without `lease_ms` each queue's own setting applies."""

    def poll_s(self, waited_s: float = 0.0) -> float:
        """How long the next long poll may wait, after `waited_s` without a message."""
        return POLL_S if self.wait_s is None else max(0.0, min(self.wait_s - waited_s, POLL_S))

    def is_over(self, waited_s: float) -> bool:
        return self.wait_s is not None and waited_s >= self.wait_s


def consume_options(
    source: str, *, group: str, size: tuple[str, int], lease: Duration | None, wait: Duration | None, consumer: str,
    in_scope: bool, assigned: bool | Assigned,
) -> ConsumeOptions:  # fmt: skip
    """`size` is the name of the caller's option and its value. Raises InvalidRequest for what every server refuses."""
    most = bounded(*size, 1, limits.LEASE_MESSAGES_MAX)
    if len(consumer) > limits.CONSUMER_CHARS_MAX:
        raise invalid("consumer", f"over the limit of {limits.CONSUMER_CHARS_MAX} characters")
    membership = (Assigned() if assigned else None) if isinstance(assigned, bool) else assigned
    if membership is not None and in_scope:
        raise invalid("assigned", "partitions are assigned to members of a group of one queue, not of a scope")
    place, name = "scope" if in_scope else "queue", consumer or default_consumer()
    request: dict[str, Any] = {place: source, "group": check_group(group), "consumer": name}
    if lease is not None:
        request["lease_ms"] = lease_milliseconds(lease)
    wait_s = None if wait is None else milliseconds("wait", wait, limits.DELAY_MS_MAX) / 1000
    return ConsumeOptions(source, group, most, wait_s, membership, request)


def default_consumer() -> str:
    """The name of a consumer that was given none. It is asked for each time, because processes fork."""
    return f"{socket.gethostname()}-{os.getpid()}"[-limits.CONSUMER_CHARS_MAX :]


def lease_milliseconds(lease: Duration) -> int:
    return milliseconds("lease", lease, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)
