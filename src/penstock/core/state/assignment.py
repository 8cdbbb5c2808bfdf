"""The owner of each partition: balanced within one, and with as few moves as that allows.

Pure, and the same on every machine. Every move costs a pause of that partition, so stickiness is not a preference but
the goal of the optimisation: a member gives up a partition only if it has more than its share.
"""

from __future__ import annotations

from collections.abc import Sequence

NO_MEMBER = ""


def assign(members: Sequence[str], owners: Sequence[str]) -> list[str]:
    """The new owner of each partition. `owners` are the present ones; a name not in `members` counts as none."""
    if not members:
        return [NO_MEMBER] * len(owners)
    held: dict[str, list[int]] = {member: [] for member in members}
    for partition, owner in enumerate(owners):
        if owner in held:
            held[owner].append(partition)
    share, larger = divmod(len(owners), len(members))
    # Shares differ by one. The larger ones go to the members that have most already: for them it is one move less.
    by_load = sorted(members, key=lambda member: -len(held[member]))
    room = {member: share + (place < larger) for place, member in enumerate(by_load)}
    assigned = [NO_MEMBER] * len(owners)
    for member in members:
        for partition in held[member][: room[member]]:
            assigned[partition] = member
            room[member] -= 1
    takers = (member for member in members for _ in range(room[member]))
    return [owner or next(takers) for owner in assigned]
