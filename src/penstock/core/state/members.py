"""A group whose partitions are assigned: its members, and for each partition whose it is and whose it is to be.

    slot.owner                the member that may lease from the partition, as soon as it is free
    slot.giver, slot.until    it is not free yet: the former owner still holds leases, and may until then

A partition that moves is thus leased by exactly one member at any time. It becomes free when the last lease of its
former owner has ended, which the machine sees by itself: the former owner may report it, but need not.

The **generation** counts the changes of a group. A member need not know the newest one: it works on what it had in the
generation it names and still has (`slot.since`), so a change that does not touch its partitions does not touch it.

Fields are hard unless they say soft (`state.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from penstock.core.state.assignment import NO_MEMBER
from penstock.core.state.grace import Grace
from penstock.errors import StaleGeneration, UnknownMember


class Member:
    __slots__ = ("changed", "confirmed", "drain_ms", "heard_ms", "id", "joined", "session_ms", "turn")

    def __init__(self, id: str, generation: int, session_ms: int, drain_ms: int, heard_ms: int):
        self.id = id
        self.joined = generation
        """The generation that it joined with. An earlier one in a request means a former member of the same name."""
        self.changed = generation
        """The generation in which its partitions changed last."""
        self.session_ms = session_ms
        self.drain_ms = drain_ms
        # Soft.
        self.heard_ms = heard_ms
        """Time of the last heartbeat. Not a fact: heartbeats cost no disk, and a restart gives members more time."""
        self.confirmed = generation
        """The last change of its partitions that it has confirmed by a heartbeat."""
        self.turn = 0
        """Partition to look at first, so that none of its own is always last."""


class Slot(msgspec.Struct, gc=False):
    """One partition of an assigned group."""

    owner: str = NO_MEMBER
    since: int = 0
    """The generation in which it became the owner's."""
    giver: str = NO_MEMBER
    """The former owner that still holds leases; the empty name if it has left the group, or never was in it."""
    until: int = 0
    """When the giver's time to finish is over; 0 if there is nothing to wait for."""
    drain_ms: int = 0
    """How long that time is."""


class Move(NamedTuple):
    """The fields of a record about partitions that move."""

    at: int
    generation: int
    moved: list[int]
    owners: list[str]


class Share(NamedTuple):
    """The partitions of one member."""

    generation: int
    assigned: list[int]
    """Partitions that the member owns."""
    awaited: list[int]
    """Owned partitions whose former owner still holds leases."""
    giving_up: list[int]
    """Partitions that the member lost and still holds leases of."""
    session_ms: int


class Membership:
    """The members of one group, and their partitions. Keeps its generation also when all members have left."""

    __slots__ = ("armed", "generation", "members", "slots")

    def __init__(self, partitions: int):
        self.generation = 0
        self.members: dict[str, Member] = {}
        """In the order in which they joined."""
        self.slots = [Slot() for _ in range(partitions)]
        # Soft.
        self.armed: int | None = None
        """When the shard will look at it next."""

    # -- questions ----------------------------------------------------------------------------------------------------

    def require(self, member: str, generation: int) -> Member:
        """The member, if it may act on this generation. Raises UnknownMember or StaleGeneration."""
        found = self.members.get(member)
        if found is None:
            raise unknown_member(member)
        if not max(found.joined, found.confirmed) <= generation <= self.generation:
            raise StaleGeneration(
                f"member {member} acts on generation {generation}, but has confirmed generation "
                f"{max(found.joined, found.confirmed)} of {self.generation}; send a heartbeat, or join again",
                details={"generation": self.generation},
            )
        return found

    def reach(self, member: Member, generation: int, busy: Collection[int]) -> list[int]:
        """The partitions it may lease from, its next one first. `busy` are those that have leases."""
        mine = [
            partition
            for partition, slot in enumerate(self.slots)
            if slot.owner == member.id and slot.since <= generation and not (slot.until and partition in busy)
        ]
        return [p for p in mine if p >= member.turn] + [p for p in mine if p < member.turn]

    def share(self, member: str, busy: Collection[int]) -> Share:
        slots = list(enumerate(self.slots))
        mine = [partition for partition, slot in slots if slot.owner == member]
        return Share(
            self.generation,
            mine,
            [partition for partition in mine if self.slots[partition].until and partition in busy],
            [partition for partition, slot in slots if slot.giver == member and slot.until and partition in busy],
            self.members[member].session_ms,
        )

    def holdings(self, gone: Collection[str], busy: Collection[int]) -> set[int]:
        """The partitions in which these members have leases."""
        return {
            partition
            for partition, slot in enumerate(self.slots)
            if partition in busy and (slot.giver if slot.until else slot.owner) in gone
        }

    def free(self, busy: Collection[int]) -> list[int]:
        """Partitions whose former owner has let go; that they were handed over is not a fact yet."""
        return [partition for partition, slot in enumerate(self.slots) if slot.until and partition not in busy]

    def silent(self, now_ms: int, grace: Grace) -> list[str]:
        """Members whose session has run out."""
        return [each.id for each in self.members.values() if grace.end_of(each.heard_ms + each.session_ms) <= now_ms]

    def late(self, now_ms: int, grace: Grace) -> set[int]:
        """Partitions whose former owner's time to finish is over."""
        return {
            partition for partition, slot in enumerate(self.slots) if slot.until and grace.end_of(slot.until) <= now_ms
        }

    def next_ms(self, grace: Grace) -> int | None:
        """When time itself will next change something."""
        sessions = [each.heard_ms + each.session_ms for each in self.members.values()]
        drains = [slot.until for slot in self.slots if slot.until]
        return min(map(grace.end_of, sessions + drains), default=None)

    # -- changes ------------------------------------------------------------------------------------------------------

    def join(self, member: str, session_ms: int, drain_ms: int, move: Move, busy: Collection[int]) -> None:
        if member in self.members:
            # A new bearer of the name: what the former one had is not to be had with its generation any more.
            for slot in self.slots:
                if slot.giver == member:
                    slot.giver = NO_MEMBER
                if slot.owner == member:
                    slot.since = move.generation
        self.members[member] = Member(member, move.generation, session_ms, drain_ms, move.at)
        self._move(move, busy, {each.id: each.drain_ms for each in self.members.values()}, drain_ms)

    def leave(self, gone: Iterable[str], move: Move, busy: Collection[int]) -> None:
        drains = {each.id: each.drain_ms for each in self.members.values()}
        for member in gone:
            del self.members[member]
            for slot in self.slots:
                if slot.giver == member:
                    slot.giver = NO_MEMBER
        self._move(move, busy, drains, 0)
        if not self.members:
            self.slots = [Slot() for _ in self.slots]

    def _move(self, move: Move, busy: Collection[int], drains: dict[str, int], otherwise_ms: int) -> None:
        self.generation = move.generation
        for partition, owner in zip(move.moved, move.owners, strict=True):
            slot = self.slots[partition]
            for member in (slot.owner, owner):
                if member in self.members:
                    self.members[member].changed = move.generation
            if partition not in busy or (slot.until and slot.giver == owner != NO_MEMBER):
                # Nothing to wait for, or only for the very member that gets it back.
                slot.giver, slot.until, slot.drain_ms = NO_MEMBER, 0, 0
            elif not slot.until:
                slot.giver = slot.owner if slot.owner in self.members else NO_MEMBER
                slot.drain_ms = drains.get(slot.owner, otherwise_ms)
                slot.until = move.at + slot.drain_ms
            slot.owner, slot.since = owner, move.generation

    def grow(self, partitions: int) -> None:
        """There are this many partitions now; the new ones have no owner."""
        self.slots += [Slot() for _ in range(partitions - len(self.slots))]

    def hand_over(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            slot = self.slots[partition]
            slot.giver, slot.until, slot.drain_ms = NO_MEMBER, 0, 0

    def start_over(self, now_ms: int) -> None:
        """A node took the shard: sessions and handovers begin their full time again."""
        self.renew_sessions(now_ms)
        for slot in self.slots:
            if slot.until:
                slot.until = max(slot.until, now_ms + slot.drain_ms)

    def renew_sessions(self, now_ms: int) -> None:
        for member in self.members.values():
            member.heard_ms = now_ms

    # -- as plain values ----------------------------------------------------------------------------------------------

    def dump(self) -> tuple[Any, ...]:
        return (
            self.generation,
            [(each.id, each.joined, each.changed, each.session_ms, each.drain_ms) for each in self.members.values()],
            [(slot.owner, slot.since, slot.giver, slot.until, slot.drain_ms) for slot in self.slots],
        )

    @classmethod
    def load(cls, values: Any, now_ms: int) -> Membership:
        generation, members, slots = values
        membership = cls(len(slots))
        membership.generation = generation
        for id, joined, changed, session_ms, drain_ms in members:
            member = membership.members[id] = Member(id, joined, session_ms, drain_ms, now_ms)
            member.changed = changed
        membership.slots = [Slot(*slot) for slot in slots]
        return membership

    def copy(self) -> Membership:
        """A twin to try a change on."""
        return Membership.load(self.dump(), 0)


def unknown_member(member: str) -> UnknownMember:
    return UnknownMember(
        f"{member[:128]} is not a member of this group: it never joined, left, or was silent for too long; join again",
        details={"member": member[:128]},
    )
