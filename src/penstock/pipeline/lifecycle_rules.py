"""The allowed events of a message in a group, and the phase after each event: the rules of the audit. Pure.

A *cell* is one message in one group. Its last event decides its phase. Some events end a message for all groups; they
count only in cells whose message has not ended. The names are those of the events; docs/guarantees.md has the diagram.
"""

from __future__ import annotations

from typing import NamedTuple

PENDING, LEASED, ACKED, DEAD, REMOVED = PHASES = ("pending", "leased", "acked", "dead", "removed")

BECOMES: dict[str, str] = {
    "published": PENDING,
    "rescheduled": PENDING,
    "leased": LEASED,
    "extended": LEASED,
    "acked": ACKED,
    "retried": PENDING,
    "released": PENDING,
    "dead_lettered": DEAD,
    "redriven": PENDING,
    "dead_letters_removed": REMOVED,
}
"""Event -> the phase after it. Two exceptions: with at-most-once delivery `leased` means acked, and `dead_lettered`
means removed if the queue does not keep dead letters."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "rescheduled": (PENDING,),
    "leased": (PENDING,),
    "extended": (LEASED,),
    "acked": (LEASED,),
    "retried": (LEASED,),
    "released": (LEASED,),
    "dead_lettered": (LEASED,),
    "redriven": (DEAD,),
    "dead_letters_removed": (DEAD,),
}
"""Event -> the phases in which it is allowed. `published` is the first event, and the only one of its kind."""

OF_A_LEASE = ("extended", "acked", "retried", "released", "dead_lettered")
"""Events with a lease, which must be that of the last `leased` event."""
OF_A_GROUP = (*OF_A_LEASE, "leased", "redriven", "dead_letters_removed")

ENDS: dict[str, tuple[str, ...]] = {
    "expired": (PENDING,),
    "cancelled": (PENDING,),
    "trimmed": (PENDING,),
    "purged": (PENDING, LEASED, DEAD),
    "deleted": (PENDING, LEASED, DEAD),
}
"""Event that ends messages for all groups -> the phases in which it counts. A trim does not end redriven messages."""

ENDS_REFUSED: dict[str, tuple[str, ...]] = {
    "expired": (LEASED,),
    "cancelled": (LEASED, ACKED, DEAD, REMOVED),
}
"""Event that ends messages for all groups -> the phases in which it is not allowed."""

KINDS = (*BECOMES, *ENDS)
LIVE = (PENDING, LEASED)
DONE = (ACKED, DEAD, REMOVED)
OUTCOMES = ("acked", "dead", "removed", "expired", "cancelled", "purged", "deleted", "trimmed")
"""The outcomes of cells that are not live. `removed`: a dead letter that was deleted."""


class Balance(NamedTuple):
    """The numbers of messages of a group, by outcome."""

    published: int
    live: int
    acked: int = 0
    dead: int = 0
    removed: int = 0
    expired: int = 0
    cancelled: int = 0
    purged: int = 0
    deleted: int = 0
    trimmed: int = 0

    @property
    def difference(self) -> int:
        """Published messages without an outcome, minus outcomes without a message; 0 if the numbers balance."""
        outcomes: int = sum(getattr(self, name) for name in OUTCOMES)
        return self.published - self.live - outcomes
