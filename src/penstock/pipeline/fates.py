"""What may happen to a message in a group, and what has become of it then: the rules of the audit. Pure.

A *cell* is one message in one group. Its phase follows from the last thing that happened to it there; some events end
messages for all groups at once, and then count only where the message was not over already. The words are those of the
events; the table is the one in docs/guarantees.md, seen from outside.
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
"""Event -> the phase after it. Two exceptions: what is delivered at most once is acked by being leased, and where dead
letters are not kept, one is removed as soon as it is dead."""

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
"""Event -> the phases in which it may come. `published` comes first and once."""

OF_A_LEASE = ("extended", "acked", "retried", "released", "dead_lettered")
"""Events that name the lease under which the message is."""
OF_A_GROUP = (*OF_A_LEASE, "leased", "redriven", "dead_letters_removed")

ENDS: dict[str, tuple[str, ...]] = {
    "expired": (PENDING,),
    "cancelled": (PENDING,),
    "trimmed": (PENDING,),
    "purged": (PENDING, LEASED, DEAD),
    "deleted": (PENDING, LEASED, DEAD),
}
"""Event that ends messages for all groups -> the phases in which it counts. A trim leaves what was redriven alone."""

ENDS_REFUSED: dict[str, tuple[str, ...]] = {
    "expired": (LEASED,),
    "cancelled": (LEASED, ACKED, DEAD, REMOVED),
}
"""The same -> the phases in which it must not come at all."""

KINDS = (*BECOMES, *ENDS)
LIVE = (PENDING, LEASED)
DONE = (ACKED, DEAD, REMOVED)
OUTCOMES = ("acked", "dead", "removed", "expired", "cancelled", "purged", "deleted", "trimmed")
"""What a cell that is not live has become. `removed` was dead, and is not kept any more."""


class Balance(NamedTuple):
    """The account of a group."""

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
        """0 if it balances; above if messages are unaccounted for, below if there are more outcomes than messages."""
        outcomes: int = sum(getattr(self, name) for name in OUTCOMES)
        return self.published - self.live - outcomes
