"""What a consumer asks for, checked once, and what both shells agree on about answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock import limits
from penstock.client.calls import api as calls
from penstock.client.consume.membership import Assigned, Seat
from penstock.client.messages.spans import Span, stale_spans
from penstock.client.publish.frames import milliseconds
from penstock.client.transport.retry import Retry
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, check_group
from penstock.wire.delivery import Settled

POLL_S = 20.0
"""Length of one long poll: well below what proxies cut, long enough to cost nothing."""
ACK_LINGER_S = 0.01
"""How long an ack that nobody waits for may stay here to travel with others."""
RELEASE_WITHIN_S = 2.0
"""How long a closing consumer tries to give back what it did not handle; if it cannot, the leases end by themselves."""

assert POLL_S * 1000 <= limits.WAIT_MS_MAX


class Terms(NamedTuple):
    queue: str
    """Or the scope."""
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

    def new_seat(self) -> Seat | None:
        return None if self.assigned is None else Seat(QueuePath(self.queue), self.group, self.assigned)

    def lease(self, most: int, wait_ms: int, ack: Sequence[str], seat: Seat | None = None) -> calls.Call[calls.Leased]:
        """The call for more."""
        return calls.lease(
            self.queue,
            in_scope=self.in_scope,
            group=self.group,
            max=most,
            lease_ms=self.lease_ms,
            wait_ms=wait_ms,
            consumer=self.consumer,
            ack=ack,
            member=seat.member if seat is not None else "",
            generation=seat.generation if seat is not None else 0,
        )

    def poll_s(self, waited_s: float = 0.0) -> float:
        """How long the next long poll may wait, for someone who has waited this long already."""
        return POLL_S if self.wait_s is None else max(0.0, min(self.wait_s - waited_s, POLL_S))

    def is_over(self, waited_s: float) -> bool:
        return self.wait_s is not None and waited_s >= self.wait_s


def make_terms(
    queue: str,
    *,
    group: str,
    size: tuple[str, int],
    lease: float | None,
    wait: float | None,
    consumer: str,
    in_scope: bool = False,
    assigned: bool | Assigned = False,
) -> Terms:
    """`size` comes with the name that the caller knows it by. Raises InvalidRequest for what no server would take."""
    name, most = size
    if not isinstance(most, int) or not 1 <= most <= limits.LEASE_MESSAGES_MAX:
        raise InvalidRequest(f"{name}: {most!r} is not from 1 to {limits.LEASE_MESSAGES_MAX}", details={"field": name})
    if len(consumer) > limits.CONSUMER_CHARS_MAX:
        raise InvalidRequest(
            f"consumer: over the limit of {limits.CONSUMER_CHARS_MAX} characters", details={"field": "consumer"}
        )
    if wait is not None:
        milliseconds("wait", wait, limits.DELAY_MS_MAX)
    lease_ms = None
    if lease is not None:
        lease_ms = milliseconds("lease", lease, limits.LEASE_MS_MAX, limits.LEASE_MS_MIN)
    membership = (Assigned() if assigned else None) if isinstance(assigned, bool) else assigned
    terms = Terms(queue, check_group(group), most, lease_ms, wait, consumer, in_scope, membership)
    terms.new_seat()  # raises for what it could not be a member with
    return terms


def receipts_of(spans: Sequence[Span]) -> list[str]:
    return [span.receipt for span in spans]


def lost_in(results: Sequence[Settled], retry: Retry) -> list[Span]:
    """What was no longer leased to us when we settled it.

    After an answer was lost, a stale receipt most likely says that the first attempt had counted. If it does not, the
    message comes again, as at-least-once always may. Either way there is nothing left to do, so nothing is reported.
    """
    return [] if retry.uncertain else stale_spans(results)
