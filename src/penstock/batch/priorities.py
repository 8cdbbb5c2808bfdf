"""Priorities of a batch in which some messages may have none.

A client's frame has the column `has_priority` if only some of its messages have a priority. The server replaces both
columns by the priority that each message has in its queue, so stored frames have the column `priority` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.batch import layout
from penstock.batch.check import broken_rule
from penstock.batch.codec import Batch


def priority_columns(priorities: Sequence[int | None]) -> dict[int, Sequence[int] | Sequence[bytes]]:
    """The columns of a client's frame for these priorities; None for a message without one."""
    given = [value for value in priorities if value is not None]
    if not given:
        return {}
    if len(given) == len(priorities):
        return {layout.PRIORITY: given}
    return {
        layout.PRIORITY: [value or 0 for value in priorities],
        layout.HAS_PRIORITY: [int(value is not None) for value in priorities],
    }


def with_priorities(batch: Batch, default: int, low: int, high: int, unless: str) -> Batch:
    """The batch with a priority for each message: `default` for those that have none.

    Raises InvalidRequest, with the reason `unless`, for the first message whose priority is not in these bounds. A
    batch without priorities stays as it is if the default is 0, which is what an absent column means in a stored frame.
    """
    if not batch.has(layout.PRIORITY) and not batch.has(layout.HAS_PRIORITY):
        return batch if default == 0 else batch.with_integers(layout.PRIORITY, [default] * batch.count)
    values = batch.integers(layout.PRIORITY).tolist() if batch.has(layout.PRIORITY) else [0] * batch.count
    if batch.has(layout.HAS_PRIORITY):
        given = batch.integers(layout.HAS_PRIORITY)
        values = [value if has else default for value, has in zip(values, given, strict=True)]
        batch = batch.with_integers(layout.PRIORITY, values, without=layout.HAS_PRIORITY)
    if min(values) < low or max(values) > high:
        row = next(i for i, value in enumerate(values) if not low <= value <= high)
        raise broken_rule(row, "priority", f"{values[row]} {unless}")
    return batch
