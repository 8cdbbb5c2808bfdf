"""The options of a consumer, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock import limits
from penstock.client.calls import lease as calls
from penstock.client.calls.call import Call
from penstock.client.consume.membership import Assigned, GroupMembership
from penstock.client.units import bounded, invalid, milliseconds
from penstock.ids import QueuePath, check_group

POLL_S = 20.0
"""Length of one long poll: well below the timeout of proxies, long enough to cost nothing."""
ACK_LINGER_S = 0.01
"""How long an ack without a waiter may stay here to travel with others."""
RELEASE_WITHIN_S = 2.0
"""How long a closing consumer tries to release messages that it did not handle; after that their leases end."""

assert POLL_S * 1000 <= limits.WAIT_MS_MAX


class ConsumeOptions(NamedTuple):
    source: str
    """The queue, or the scope."""
    group: str
    size: int
    """Most messages to hold unhandled."""
    lease_ms: int | None
    """None: that of the queue."""
    wait_s: float | None
    """End after this long without a message; None: never."""
    consumer: str
    in_scope: bool = False
    assigned: Assigned | None = None
    """How to be a member of the group; None: its partitions are not assigned."""

    def new_membership(self) -> GroupMembership | None:
        return None if self.assigned is None else GroupMembership(QueuePath(self.source), self.group, self.assigned)

    def lease(
        self, most: int, wait_ms: int, ack: Sequence[str], membership: GroupMembership | None = None
    ) -> Call[calls.LeaseResult]:
        """The call that leases up to `most` messages."""
        return calls.lease(
            self.source,
            in_scope=self.in_scope,
            group=self.group,
            max=most,
            lease_ms=self.lease_ms,
            wait_ms=wait_ms,
            consumer=self.consumer,
            ack=ack,
            member=membership.member if membership is not None else "",
            generation=membership.generation if membership is not None else 0,
        )

    def poll_s(self, waited_s: float = 0.0) -> float:
        """How long the next long poll may wait, after `waited_s` without a message."""
        return POLL_S if self.wait_s is None else max(0.0, min(self.wait_s - waited_s, POLL_S))

    def is_over(self, waited_s: float) -> bool:
        return self.wait_s is not None and waited_s >= self.wait_s


def consume_options(
    source: str,
    *,
    group: str,
    size: tuple[str, int],
    lease: float | None,
    wait: float | None,
    consumer: str,
    in_scope: bool = False,
    assigned: bool | Assigned = False,
) -> ConsumeOptions:
    """`size` is the name of the caller's option and its value. Raises InvalidRequest for what every server refuses."""
    most = bounded(*size, 1, limits.LEASE_MESSAGES_MAX)
    if len(consumer) > limits.CONSUMER_CHARS_MAX:
        raise invalid("consumer", f"over the limit of {limits.CONSUMER_CHARS_MAX} characters")
    if wait is not None:
        milliseconds("wait", wait, limits.DELAY_MS_MAX)
    lease_ms = lease_milliseconds(lease) if lease is not None else None
    membership = (Assigned() if assigned else None) if isinstance(assigned, bool) else assigned
    options = ConsumeOptions(source, check_group(group), most, lease_ms, wait, consumer, in_scope, membership)
    options.new_membership()  # raises for options that no server accepts
    return options


def lease_milliseconds(seconds: float) -> int:
    return milliseconds("lease", seconds, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)
