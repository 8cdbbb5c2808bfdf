"""The life of a message in one group: states x facts -> next state, as one table.

This table is what the documentation draws (docs/guarantees.md), what the invariants check and what the simulator's
model walks. A pair that is not here cannot happen.

`scheduled` and `waiting` become `ready` without a fact: a message is ready when its time has come, and time is not a
fact but what facts are stamped with.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    SCHEDULED = "scheduled"
    """Published with a delay; its time has not come."""
    READY = "ready"
    """May be leased now."""
    LEASED = "leased"
    """Held by one consumer until a deadline."""
    WAITING = "waiting"
    """Failed before; its next attempt is due later."""
    ACKED = "acked"
    DEAD = "dead"
    """Given up; kept among the queue's dead letters, from where it can be redriven."""
    REMOVED = "removed"
    """No longer a dead letter: deleted, let go by the queue's bounds, or copied to another queue."""
    EXPIRED = "expired"
    CANCELLED = "cancelled"


FINAL = frozenset({State.ACKED, State.REMOVED, State.EXPIRED, State.CANCELLED})

TIME: dict[State, State] = {State.SCHEDULED: State.READY, State.WAITING: State.READY}
"""Transitions by the passing of time."""

TRANSITIONS: dict[tuple[State, str], State] = {
    (State.READY, "leased"): State.LEASED,
    (State.READY, "expired"): State.EXPIRED,
    (State.READY, "cancelled"): State.CANCELLED,
    (State.READY, "rescheduled"): State.SCHEDULED,
    (State.SCHEDULED, "rescheduled"): State.SCHEDULED,
    (State.SCHEDULED, "expired"): State.EXPIRED,
    (State.SCHEDULED, "cancelled"): State.CANCELLED,
    (State.LEASED, "extended"): State.LEASED,
    (State.LEASED, "acked"): State.ACKED,
    (State.LEASED, "released"): State.READY,
    (State.LEASED, "retried"): State.WAITING,
    (State.LEASED, "dead_lettered"): State.DEAD,
    (State.WAITING, "rescheduled"): State.WAITING,
    (State.WAITING, "expired"): State.EXPIRED,
    (State.WAITING, "cancelled"): State.CANCELLED,
    (State.DEAD, "redriven"): State.WAITING,
    (State.DEAD, "dead_letters_removed"): State.REMOVED,
}


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> scheduled: published with a delay", "    [*] --> ready: published"]
    lines += [f"    {before} --> {after}: due" for before, after in TIME.items()]
    lines += [f"    {before} --> {after}: {fact}" for (before, fact), after in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines)
