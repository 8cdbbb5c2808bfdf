"""Members come, go, fall silent and are replaced, while the clock runs: what must hold after every step.

The checker keeps its own record: per partition one holder, found from replies and time alone.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.decide.rebalancing import seat_of
from penstock.core.state import Shard
from penstock.core.state.members import Share
from penstock.errors import PenstockError, StaleGeneration, UnknownMember

NAMES = ["ada", "bob", "cyd", "dee"]
names = st.sampled_from(NAMES)
SESSION_MS, DRAIN_MS, LEASE_MS = 5_000, 2_000, 20_000


class Incarnation:
    """One member, from its own view."""

    def __init__(self, name: str, share: Share, now: int):
        self.name = name
        self.generation = share.generation
        self.heard = now
        self.share = share


class MembersMachine(RuleBasedStateMachine):
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard()
        self.now = 1_000_000
        self.records: list = []
        self.entropy = 0
        self.known: list[Incarnation] = []
        """All members that ever joined, the newest of a name last."""
        self.hands: dict[tuple[int, int], str] = {}
        """(lease, partition) -> the name of the member that got it."""
        self.claims: dict[int, commands.LeasedRun] = {}

    @initialize(partitions=st.integers(1, 7))
    def begin(self, partitions: int) -> None:
        config = parse_config({"partitions": partitions, "lease_ms": LEASE_MS, "max_retries": 1_000_000})
        self.submit(commands.ConfigureQueue("a/b/c", config))

    def applied(self, made) -> None:
        for record in made:
            apply(self.shard, record)
            self.records.append(record)

    def let_time_work(self) -> None:
        while self.shard.next_deadline_ms() <= self.now:
            advance(self.shard, self.now)
            if self.shard.needs_tick():
                self.applied(decide(self.shard, commands.Tick(), self.now).records)

    def submit(self, command):
        self.let_time_work()
        decision = decide(self.shard, command, self.now)
        self.applied(decision.records)
        return decision.reply

    @property
    def queue(self):
        return self.shard.queues[1]

    @property
    def membership(self):
        return self.queue.memberships.get(0)

    def current(self, incarnation: Incarnation) -> bool:
        newest = [each for each in self.known if each.name == incarnation.name][-1]
        return newest is incarnation

    # -- rules ---------------------------------------------------------------------------------------------------------

    @rule(name=names)
    def join(self, name: str) -> None:
        share = self.submit(commands.Join(1, "default", name, SESSION_MS, DRAIN_MS))
        self.known.append(Incarnation(name, share, self.now))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), adopts=st.booleans(), releases=st.booleans())
    def heartbeat(self, data, adopts: bool, releases: bool) -> None:
        member = data.draw(st.sampled_from(self.known[-6:]))
        released = member.share.giving_up if releases else []
        try:
            share = self.submit(commands.Heartbeat(1, "default", member.name, member.generation, released))
        except (UnknownMember, StaleGeneration):
            assert not self.current(member) or member.name not in self.membership.members
            return
        assert self.current(member)
        member.heard = self.now
        if adopts:
            member.generation, member.share = share.generation, share

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data) -> None:
        self.submit(commands.Leave(1, "default", data.draw(names)))

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        keys = [b"%d" % ((self.entropy + number) % 13) for number in range(count)]
        self.entropy += 1
        batch = Batch.open(build([b"x"] * count, kind=layout.KIND_BYTES, columns={layout.KEY: keys}))
        self.submit(commands.Publish([commands.Part(1, batch)], self.entropy << 40))

    def do_lease(self, data, wanted: int) -> None:
        member = data.draw(st.sampled_from(self.known[-6:]))
        self.let_time_work()
        self.entropy += 1
        held_before = self.holders()
        command = commands.Lease(1, "default", wanted, self.entropy, None, member.name, member.name, member.generation)
        try:
            reply = self.submit(command)
        except (UnknownMember, StaleGeneration):
            # Unmoved partitions do not pause: only a replaced or expired member is refused, never one that is behind.
            assert not self.current(member) or member.name not in self.membership.members
            return
        assert self.current(member)
        for run in reply:
            assert held_before.get(run.partition, member.name) == member.name, "another member still holds it"
            assert self.membership.slots[run.partition].owner == member.name
            assert self.membership.slots[run.partition].since <= member.generation
            self.claims[run.lease] = run
            self.hands[run.lease, run.partition] = member.name
        if not reply:
            for number, slot in enumerate(self.membership.slots):
                mine = slot.owner == member.name and slot.since <= member.generation
                if mine and held_before.get(number, member.name) == member.name and not slot.until:
                    progress = self.queue.partitions[number].progress[0]
                    assert progress.cursor == self.queue.partitions[number].end, "it is theirs and has messages"

    lease = precondition(lambda self: self.known)(rule(data=st.data(), wanted=st.sampled_from([1, 3, 100]))(do_lease))
    lease_again = precondition(lambda self: self.known)(
        rule(data=st.data(), wanted=st.sampled_from([1, 3, 100]))(do_lease)
    )

    def holders(self) -> dict[int, str]:
        """Per partition, the members with open leases of it."""
        held: dict[int, str] = {}
        for lease in self.shard.leases.values():
            name = self.hands.get((lease.id, lease.partition), "none")
            assert held.setdefault(lease.partition, name) == name, "two members hold one partition"
        return held

    @precondition(lambda self: self.shard.leases)
    @rule(data=st.data(), how=st.sampled_from(["ack", "ack", "nack", "release"]))
    def settle(self, data, how: str) -> None:
        run = self.claims[data.draw(st.sampled_from(sorted(self.shard.leases)))]
        claims = [commands.Claim(run.lease, run.nonce, run.first, run.first + run.count)]
        self.submit(
            {"ack": commands.Ack(claims), "nack": commands.Nack(claims, 0), "release": commands.Release(claims)}[how]
        )

    @rule(wait=st.sampled_from([1, 300, DRAIN_MS, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, wait: int) -> None:
        self.now += wait
        heard = {each.name: each.heard for each in self.known if self.current(each)}
        before = set(self.membership.members) if self.membership else set()
        self.let_time_work()
        for name in before - set(self.membership.members if self.membership else ()):
            assert self.now - heard[name] >= SESSION_MS, "no session ends early"
        for name in self.membership.members if self.membership else ():
            assert self.now - heard[name] < SESSION_MS, "no session lasts longer"

    @rule(how=st.sampled_from(["snapshot", "journal"]), downtime=st.sampled_from([0, SESSION_MS, 10 * SESSION_MS]))
    def restart(self, how: str, downtime: int) -> None:
        if how == "snapshot":
            self.shard = snapshot.load(msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.dump(self.shard))))
        else:
            self.shard = self.replayed()
        self.now += downtime
        self.applied(decide(self.shard, commands.Open(self.shard.term + 1, "node"), self.now).records)
        for each in self.known:
            each.heard = self.now
        self.let_time_work()

    def replayed(self) -> Shard:
        shard = Shard()
        for record in self.records:
            apply(shard, record)
        advance(shard, max(self.shard.now_ms, self.shard.advanced_ms))
        return shard

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def the_rules_of_the_state_hold(self) -> None:
        type(self).steps += 1
        invariants.check(self.shard)
        if 1 in self.shard.queues:
            self.holders()

    @invariant()
    def a_plain_lease_is_refused_exactly_while_there_are_members(self) -> None:
        if 1 not in self.shard.queues or 0 not in self.queue.group_names:
            return
        self.let_time_work()
        try:
            seat_of(self.queue, 0, commands.Lease(1, "default", 1, 0), self.now)
        except PenstockError as error:
            assert error.code == "conflict" and self.membership.members
        else:
            assert self.membership is None or not self.membership.members

    @invariant()
    def both_roads_lead_to_the_same_state(self) -> None:
        if len(self.records) % 5:
            return
        self.let_time_work()
        expected = snapshot.digest(self.shard)
        loaded = snapshot.load(msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.dump(self.shard))))
        assert snapshot.digest(loaded) == expected
        assert snapshot.digest(self.replayed()) == expected


def test_partitions_have_one_holder_over_ten_thousand_steps():
    MembersMachine.steps = 0
    run_state_machine_as_test(MembersMachine, settings=settings(max_examples=300, stateful_step_count=50))
    assert MembersMachine.steps >= 10_000
