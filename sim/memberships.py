"""The ledger's model of groups with assigned partitions: their members, and the owner of each partition in each
generation.

It is built from the journal. It has no slots, no hand-over and no deadlines, only the rule that a partition has one
owner, and that no other member holds leases of it when the owner is given more.
"""

from __future__ import annotations

from penstock.core import records
from sim.entries import Fate, LedgerLease, LedgerQueue
from sim.violation import Violation

Place = tuple[int, int]
"""Queue and group number."""


class Group:
    def __init__(self, partitions: int):
        self.generation = 0
        self.members: dict[str, int] = {}
        """Name -> the generation it joined with."""
        self.sessions: dict[str, int] = {}
        self.owners = [""] * partitions
        self.history: dict[int, list[str]] = {0: self.owners}
        """Generation -> owner of each partition."""


class Memberships:
    def __init__(self, leases: dict[int, LedgerLease]):
        self.groups: dict[Place, Group] = {}
        self.heard: dict[tuple[int, int, str], int] = {}
        """(queue, group, member) -> the earliest journal time of its last heartbeat."""
        self.acted: dict[tuple[str, str, str], int] = {}
        """(queue, group, member) by name -> the newest generation that it ever confirmed."""
        self._leases = leases
        self._buried: list[tuple[Place, str]] = []
        self._left: set[int] = set()
        """Leases of members that have left. A member that joins later under the same name is another one."""

    def taken(self, queue: int, group: int) -> bool:
        """True if the group has members."""
        found = self.groups.get((queue, group))
        return found is not None and bool(found.members)

    # -- records ------------------------------------------------------------------------------------------------------

    def opened(self, at: int) -> None:
        for place, group in self.groups.items():
            for member in group.members:
                self.heard[*place, member] = at

    def joined(self, record: records.MemberJoined, queue: LedgerQueue) -> None:
        place = (record.queue, record.group)
        group = self.groups.setdefault(place, Group(len(queue.partitions)))
        if record.member in group.members:
            self._check_nothing_held(place, queue, [record.member], "was replaced")
        group.members[record.member] = record.generation
        group.sessions[record.member] = record.session_ms
        self.heard[*place, record.member] = record.at
        self._move(group, record, queue)
        self._buried = [entry for entry in self._buried if entry != (place, record.member)]

    def left(self, record: records.MembersLeft, queue: LedgerQueue) -> None:
        place = (record.queue, record.group)
        group = self.groups[place]
        if record.reason == "session_expired":
            for member in record.members:
                silent_ms = record.at - self.heard[*place, member]
                if silent_ms < group.sessions[member]:
                    raise Violation("I13", f"{member} was put out after {silent_ms} ms of {group.sessions[member]}")
            self._check_nothing_held(place, queue, record.members, "fell silent")
        elif record.reason == "left":
            for partition in range(len(queue.partitions)):
                for fate in self._held(queue, record.group, partition):
                    if self._leases[fate.lease].consumer in record.members:
                        self._left.add(fate.lease)
        for member in record.members:
            del group.members[member]
        self._move(group, record, queue)
        self._buried = [entry for entry in self._buried if not (entry[0] == place and entry[1] in record.members)]

    def handed_over(self, record: records.HandedOver, queue: LedgerQueue) -> None:
        for partition in record.partitions:
            for fate in self._held(queue, record.group, partition):
                holder = self._leases[fate.lease].consumer
                raise Violation("I13", f"partition {partition} was handed over while {holder} holds {fate.message}")

    def leased(self, record: records.Leased, queue: LedgerQueue) -> None:
        """Called before the lease is recorded."""
        group = self.groups.get((record.queue, record.group))
        if group is None or not group.members:
            return
        owner = group.owners[record.partition]
        if record.consumer != owner:
            raise Violation("I13", f"{record.consumer} leased from partition {record.partition}, which is {owner}'s")
        for fate in self._held(queue, record.group, record.partition):
            holder = self._leases[fate.lease].consumer
            if holder != owner:
                raise Violation("I13", f"partition {record.partition} has two owners: {owner} and still {holder}")

    def buried(self, record: records.Retried | records.DeadLettered, lease: LedgerLease) -> None:
        """A lease ended because the session of its holder expired; the record of that must follow in the frame."""
        self._buried.append(((record.queue, record.group), lease.consumer))

    def end_of_frame(self) -> None:
        if self._buried:
            raise Violation("I13", f"leases of {self._buried[0][1]} were ended: neither gone nor replaced")

    # -- rules --------------------------------------------------------------------------------------------------------

    def _move(self, group: Group, record: records.MemberJoined | records.MembersLeft, queue: LedgerQueue) -> None:
        if record.generation != group.generation + 1:
            raise Violation("I13", f"generation {record.generation} of {queue.path} follows {group.generation}")
        before = group.owners + [""] * (len(queue.partitions) - len(group.owners))
        group.generation = record.generation
        group.owners = list(before)
        for partition, owner in zip(record.moved, record.owners, strict=True):
            group.owners[partition] = owner
        group.history[group.generation] = group.owners
        loads = {member: group.owners.count(member) for member in group.members}
        if set(group.owners) - set(loads or [""]):
            raise Violation("I13", f"{queue.path}: partitions belong to {group.owners}, members are {list(loads)}")
        if loads and max(loads.values()) - min(loads.values()) > 1:
            raise Violation("I13", f"{queue.path}: partitions are not balanced: {loads}")
        for member, load in loads.items():
            if load > before.count(member) and any(
                was == member != now for was, now in zip(before, group.owners, strict=True)
            ):
                raise Violation("I13", f"{queue.path}: {member} gave something up and got more: {before}")

    def _check_nothing_held(self, place: Place, queue: LedgerQueue, members: list[str], what: str) -> None:
        for partition in range(len(queue.partitions)):
            for fate in self._held(queue, place[1], partition):
                if fate.lease not in self._left and self._leases[fate.lease].consumer in members:
                    raise Violation("I13", f"{members} {what}, and still holds {fate.message}")

    def _held(self, queue: LedgerQueue, group: int, partition: int) -> list[Fate]:
        return [fate for fate in queue.partitions[partition].open.get(group, {}).values() if fate.lease]

    # -- answers ------------------------------------------------------------------------------------------------------

    def had(self, place: Place, member: str, generation: int) -> list[int]:
        """The partitions of this member in that generation."""
        group = self.groups.get(place)
        owners = group.history.get(generation, []) if group is not None else []
        return [partition for partition, owner in enumerate(owners) if owner == member]
