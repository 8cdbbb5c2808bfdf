"""Promises about the state that no single command shows: what never changes, and what does not grow."""

from __future__ import annotations

import sys
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core import commands, records, snapshot
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.lifecycle import FINAL, TIME, TRANSITIONS, State, diagram
from penstock.core.offsets.ranges import RangeSet
from penstock.core.slices import encoded
from penstock.core.state import Shard
from penstock.core.state.leases import Held, Lease

START_MS = 1_760_000_000_000


class Machine:
    def __init__(self, **config):
        self.shard = Shard()
        self.now = START_MS
        self.submit(commands.ConfigureQueue("a/b/c", parse_config(config)))
        self.partition = self.shard.queues[1].partitions[0]

    def submit(self, command):
        advance(self.shard, self.now)
        if self.shard.needs_tick():
            self.decided(commands.Tick())
        return self.decided(command)

    def decided(self, command):
        decision = decide(self.shard, command, self.now)
        for record in decision.records:
            apply(self.shard, record)
        return decision.reply

    def publish(self, count: int = 1, **columns):
        named = {getattr(layout, name.upper()): values for name, values in columns.items()}
        batch = Batch.open(build([b"x"] * count, columns=named))
        return self.submit(commands.Publish([commands.Part(1, batch)], 0))

    def lease(self, most: int = 1, group: str = "default"):
        command = commands.Lease(1, group, most, 7)
        reply = self.submit(command)
        return self.submit(command) if reply is None else reply

    def ack(self, runs) -> None:
        self.submit(commands.Ack([commands.Claim(r.lease, r.nonce, r.first, r.first + r.count) for r in runs]))


def test_what_was_redriven_below_the_beginning_of_the_log_does_not_end_by_time():
    """Nor is it held back like an expired message, which no record would end."""
    machine = Machine()
    machine.publish(2, ttl_ms=[5_000, 0])
    (run,) = machine.lease(2)
    machine.submit(commands.Reject([commands.Claim(run.lease, run.nonce, 0, 1)], "no"))
    machine.submit(commands.Ack([commands.Claim(run.lease, run.nonce, 1, 2)]))
    assert machine.partition.start == 2
    ((_, offset), letter), *_ = machine.partition.dead.items()
    machine.submit(commands.StartRedrive(1, "r", filter="", target="", delay_ms=0, rate_per_s=1))
    machine.submit(commands.RedriveLetters(1, "r", [commands.Letter(0, 0, offset, letter.dead_at)]))
    machine.now += 60_000
    advance(machine.shard, machine.now)
    assert not machine.shard.needs_tick()
    assert [(run.first, run.count) for run in machine.decided(commands.Lease(1, "default", 10, 8))] == [(0, 1)]


def test_a_backlog_is_a_cursor():
    machine = Machine()
    machine.lease()
    for _ in range(100):
        machine.publish(1000)
    progress = machine.partition.progress[0]
    assert (progress.cursor, machine.partition.end) == (0, 100_000)
    assert not (progress.done or machine.partition.delayed or progress.ready or progress.retries or progress.leased)


@pytest.mark.parametrize("mode", ["until_acked", "keep"])
def test_nothing_is_left_of_what_is_finished(mode):
    """Budgets, delays, retries, leases, acks out of order: all gone when the messages are."""
    machine = Machine(retention={"mode": mode}, max_retries=9, backoff={"kind": "none"})
    machine.lease()
    for round_number in range(30):
        machine.publish(
            20, max_retries=[5] * 20, delay_ms=[row % 3 for row in range(20)], id=[b"%d" % round_number] * 20
        )
        machine.now += 5
        runs = machine.lease(20)
        machine.submit(commands.Nack([commands.Claim(r.lease, r.nonce, r.first, r.first + r.count) for r in runs[:1]]))
        machine.ack(runs[1:])
        machine.now += 1
        machine.ack(machine.lease(20))
    while runs := machine.lease(100):
        machine.ack(runs)
    if mode == "keep":
        machine.submit(commands.TrimPartition(1, 0, machine.partition.end))
    machine.now += 10
    machine.submit(commands.Tick())
    partition, progress = machine.partition, machine.partition.progress[0]
    assert (partition.start, progress.floor, progress.cursor) == (partition.end,) * 3
    leftovers = {
        "max_retries": partition.max_retries, "moved": partition.moved, "gone": list(partition.gone),
        "schedule": list(partition.schedule), "scheduled": partition.scheduled.count, "overdue": partition.overdue,
        "done": list(progress.done), "delayed": list(partition.delayed), "undelayed": list(progress.undelayed),
        "retries": progress.retries,
        "leases": machine.shard.leases, "waiting": progress.waiting,
    }  # fmt: skip
    assert not any(leftovers.values()), leftovers


held = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6)
cuts = st.lists(st.tuples(st.sampled_from(["release", "extend"]), st.integers(0, 40), st.integers(1, 40)), max_size=10)


@given(held, cuts, st.integers(0, 40), st.integers(1, 30))
def test_a_lease_is_a_dictionary_of_offsets(runs, changes, first, count):
    at, made, model = 0, [], {}
    for gap, length, attempt in runs:
        at += gap
        made.append(Held(at, at + length, attempt, 100))
        model |= dict.fromkeys(range(at, at + length), (attempt, 100))
        at += length
    lease = Lease(1, 2, 1, 0, 0, "", 1000, 0, made)
    for number, (change, start, length) in enumerate(changes):
        if change == "release":
            # Heaps and retries are settled in any order.
            parts = reversed(lease.parts(start, start + length))
            lease.release([bound for part in parts for bound in (part.first, part.stop)])
            model = {offset: told for offset, told in model.items() if not start <= offset < start + length}
        else:
            lease.extend(start, start + length, 200 + number)
            model |= {o: (model[o][0], 200 + number) for o in range(start, start + length) if o in model}
        assert {o: (r.attempt, r.deadline) for r in lease.held for o in range(r.first, r.stop)} == model
        assert all(one.stop <= other.first for one, other in pairwise(lease.held)), "in order, none twice"
    wanted = {offset: told for offset, told in model.items() if first <= offset < first + count}
    parts = lease.parts(first, first + count)
    assert {o: (r.attempt, r.deadline) for r in parts for o in range(r.first, r.stop)} == wanted


def scattered(count: int) -> tuple[Machine, list]:
    """A lease of so many messages, no two of them neighbours."""
    machine = Machine()
    machine.lease()
    machine.publish(count, delay_ms=[row % 2 * 3_600_000 for row in range(count)])
    return machine, machine.lease(count)


def steps_of(count: int) -> int:
    """Lines of the machine's code that settling so many scattered messages takes."""
    machine, runs = scattered(count)
    assert len(runs) == count // 2
    claims = [commands.Claim(r.lease, r.nonce, r.first, r.first + 1) for r in runs]
    steps = 0

    def trace(frame, event, _):
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        machine.submit(commands.Extend(claims, 60_000))
        machine.submit(commands.Ack(claims))
    finally:
        sys.settrace(before)
    return steps


def test_four_times_the_receipts_are_four_times_the_work():
    """Not sixteen times: quadratic cost of a batch would stop the broker for all clients."""
    assert steps_of(2_000) < 5 * steps_of(500)


@pytest.fixture
def in_the_middle(monkeypatch) -> list[tuple[int, int]]:
    """Ranges that were put anywhere but at the end of their set, where each moves all that is behind it."""
    found = []
    plain = RangeSet.add

    def add(self, start: int, stop: int) -> None:
        if self.stops and start < self.stops[-1]:
            found.append((start, stop))
        plain(self, start, stop)

    monkeypatch.setattr(RangeSet, "add", add)
    return found


def test_messages_due_in_no_order_are_gone_through_in_the_order_of_their_offsets(in_the_middle):
    """A group begins beside a million delays, the broker starts with them, their time to live ends while it was away:
    all of it happens between two commands."""
    machine, chance = Machine(), Random(1)
    shuffled = [chance.randint(1_000, 80_000_000) * (row % 2) for row in range(1000)]
    machine.publish(1000, delay_ms=shuffled, ttl_ms=[2 * wait for wait in shuffled])
    machine.lease(1000)
    machine.lease(1000, "another")
    shard = snapshot.load(msgspec.msgpack.decode(b"".join(encoded(snapshot.capture(machine.shard)))))
    assert not in_the_middle
    machine.now += 200_000_000
    in_the_middle.clear()
    advance(shard, machine.now)
    snapshot.dump(shard)
    (expired,) = (r for r in decide(shard, commands.Tick(), machine.now).records if isinstance(r, records.Expired))
    assert len(expired.ranges) == 1000
    assert not in_the_middle


def test_a_run_that_begins_with_a_delayed_message_is_delivered_once():
    machine = Machine()
    machine.lease()
    machine.publish(3, delay_ms=[50, 0, 0])
    machine.now += 50
    (run,) = machine.lease(10)
    assert (run.first, run.count) == (0, 3)
    assert machine.lease(10) == []


@pytest.mark.parametrize("form", [snapshot.dump, lambda shard: snapshot.plain(snapshot.capture(shard))])
def test_delays_are_kept_once_and_groups_have_their_exceptions(form):
    """A message that came due before a group began is on its cursor's path; other groups find it beside theirs."""
    machine = Machine(retention={"mode": "keep"})
    machine.lease(1, "early")
    for _ in range(3):
        machine.publish(3, delay_ms=[0, 50, 0])
    machine.now += 20
    machine.publish(2, delay_ms=[0, 90_000])
    machine.now += 40
    advance(machine.shard, machine.now)
    machine.submit(commands.CreateGroup(1, "late", [0]))
    partition = machine.partition
    assert list(partition.delayed) == [(1, 2), (4, 5), (7, 8), (10, 11)]
    assert list(partition.progress[1].undelayed) == [(1, 2), (4, 5), (7, 8)]
    machine.shard = snapshot.load(form(machine.shard))
    for group in ("early", "late"):
        (run,) = machine.lease(20, group)
        assert (run.first, run.count) == (0, 10), "also the messages whose delay is over, in order"
    partition = machine.shard.queues[1].partitions[0]
    assert {progress.cursor for progress in partition.progress.values()} == {10}
    assert not any(progress.undelayed for progress in partition.progress.values())
    machine.now += 90_000
    for group in ("early", "late"):
        (run,) = machine.lease(20, group)
        assert (run.first, run.count) == (10, 1)


def test_the_table_is_complete_and_the_picture_is_drawn_from_it():
    for (before, fact), after in TRANSITIONS.items():
        assert before not in FINAL, f"{fact} after the end"
        assert f"    {before} --> {after}: {fact}" in diagram().splitlines()
    reached = {State.SCHEDULED, State.READY}
    for _ in State:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
        reached |= {TIME[before] for before in reached & set(TIME)}
    assert reached == set(State)
