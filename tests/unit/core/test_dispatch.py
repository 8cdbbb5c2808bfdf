"""Dispatchers inside the machine: what the parts promise must survive replies that are full, restarts and moves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.decide import decide
from penstock.core.rebuild import end_replay
from penstock.core.state import Shard
from penstock.errors import QueueFull

COLUMNS = {"priority": layout.PRIORITY, "key": layout.KEY, "tenant": layout.TENANT, "delay_ms": layout.DELAY_MS,
           "ttl_ms": layout.TTL_MS, "max_retries": layout.MAX_RETRIES}  # fmt: skip


class Machine:
    """One queue and its group `g`, without a journal or a clock."""

    def __init__(self, **config: object):
        self.shard = Shard()
        self.now = 1_760_000_000_000
        self.records: list = []
        self.entropy = 0
        self.submit(commands.ConfigureQueue("a/b/c", parse_config(config)))
        self.lease()

    @property
    def queue(self):
        return self.shard.queues[1]

    @property
    def dispatcher(self):
        return self.queue.dispatchers[0]

    def submit(self, command, fit=None):
        while self.shard.next_deadline_ms() <= self.now:
            advance(self.shard, self.now)
            if self.shard.needs_tick():
                self._apply(decide(self.shard, commands.Tick(), self.now))
        decision = decide(self.shard, command, self.now, fit)
        self._apply(decision)
        invariants.check(self.shard)
        return decision.reply

    def _apply(self, decision) -> None:
        for record in decision.records:
            self.records.append(record)
            apply(self.shard, record)

    def publish(self, count: int, **columns) -> None:
        self.entropy += 1
        values = {COLUMNS[name]: list(each) for name, each in columns.items()}
        batch = Batch.open(build([b"%d" % row for row in range(count)], columns=values))
        self.submit(commands.Publish([commands.Part(1, batch)], self.entropy << 40))

    def lease(self, count: int = 1, fit=None) -> list[commands.LeasedRun]:
        return self.submit(commands.Lease(1, "g", count, 7), fit) or []

    def offsets(self, runs: list[commands.LeasedRun]) -> list[int]:
        return [offset for run in runs for offset in range(run.first, run.first + run.count)]

    def settle(self, runs: list[commands.LeasedRun], kind=commands.Ack, **options) -> None:
        self.submit(kind([commands.Claim(r.lease, r.nonce, r.first, r.first + r.count) for r in runs], **options))

    def change(self, **changes) -> None:
        self.submit(commands.ConfigureQueue("a/b/c", parse_config(changes, self.queue.config)))

    def replayed(self) -> Shard:
        shard = Shard()
        shard.replaying = True
        for record in self.records:
            apply(shard, record)
        return shard


def four_fit(_queue: int, _partition: int, first: int, stop: int, room: int) -> tuple[int, int]:
    each = limits.LEASE_REPLY_BYTES_MAX // 4
    fitting = min(stop, first + room // each)
    return fitting, (fitting - first) * each


def test_lanes_share_by_weight_also_when_replies_are_full_before_they_have_all_that_was_asked_for():
    machine = Machine(order="lanes", lane_weights=[4, 3, 2, 2, 1])
    machine.publish(500, priority=[row % 5 for row in range(500)])
    lanes = []
    for _ in range(12):
        runs = machine.lease(100, four_fit)
        assert sum(run.count for run in runs) == 4
        lanes += [offset % 5 for offset in machine.offsets(runs)]
        machine.settle(runs)
    assert [lanes.count(lane) for lane in range(5)] == [16, 12, 8, 8, 4]


def test_a_message_that_was_moved_does_not_count_twice_for_its_tenant():
    machine = Machine(fair_share={"enabled": True, "max_in_flight": 2})
    machine.publish(2, tenant=[b"t", b"t"])
    machine.submit(commands.Reschedule(1, [(0, 0)], machine.now))
    assert machine.offsets(machine.lease(10)) == [0, 1]


def test_what_is_delivered_at_most_once_is_never_in_flight():
    machine = Machine(fair_share={"enabled": True, "max_in_flight": 2}, delivery="at_most_once")
    machine.publish(5, tenant=[b"t"] * 5)
    assert machine.offsets(machine.lease(3) + machine.lease(3)) == [0, 1, 2, 3, 4]


def test_a_delay_does_not_jump_the_line():
    """Of its key, its lane or its tenant: when its time has come, a message takes the place of its offset."""
    for config in ({"ordered_keys": True}, {"order": "lanes"}, {"fair_share": {"enabled": True}}):
        machine = Machine(**config)
        machine.publish(3, key=[b"k"] * 3)
        machine.publish(2, key=[b"k"] * 2, delay_ms=[5, 0])
        machine.publish(1, key=[b"k"])
        machine.now += 5
        order = []
        while runs := machine.lease(1):
            order += machine.offsets(runs)
            machine.settle(runs)
        assert order == [0, 1, 2, 3, 4, 5], config


def test_a_retry_without_a_wait_is_ready_at_once_in_every_order():
    for config in ({"order": "heap"}, {"order": "lanes"}, {"ordered_keys": True}, {"fair_share": {"enabled": True}}):
        machine = Machine(backoff={"kind": "none"}, **config)
        machine.publish(1, key=[b"k"])
        machine.settle(machine.lease(), commands.Nack)
        assert [(run.first, run.attempt) for run in machine.lease()] == [(0, 2)], config


def test_a_key_keeps_its_order_when_it_moves_to_a_new_partition_in_every_order():
    keys = [b"key-%d" % number for number in range(40)]
    for config in ({"order": "heap"}, {"order": "lanes"}, {"ordered_keys": True}, {"fair_share": {"enabled": True}}):
        for restart in (False, True):
            machine = Machine(**config)
            machine.publish(80, key=keys * 2)
            machine.change(partitions=4)
            machine.publish(80, key=keys * 2)
            if restart:
                machine.shard = machine.replayed()
                end_replay(machine.shard)
            seen: dict[bytes, list[tuple[int, int]]] = {}
            while runs := machine.lease(10):
                for run in runs:
                    for offset in range(run.first, run.first + run.count):
                        key = machine.queue.partitions[run.partition].traits.key
                        name = key[offset] if key is not None else (run.partition, offset)
                        seen.setdefault(name, []).append((machine.queue.age_of(run.partition, offset), offset))
                machine.settle(runs)
            assert all(order == sorted(order) for order in seen.values()), config
            assert sum(map(len, seen.values())) == 160


def test_switching_parking_off_lets_the_keys_go_on():
    machine = Machine(ordered_keys=True, park_dead_keys=True)
    machine.publish(3, key=[b"k"] * 3)
    machine.settle(machine.lease(), commands.Reject)
    assert machine.lease() == []
    machine.change(park_dead_keys=False)
    assert machine.offsets(machine.lease()) == [1]


def test_a_parked_key_goes_on_when_its_dead_letter_is_deleted_or_comes_back_first():
    for comes_back in (False, True):
        machine = Machine(ordered_keys=True, park_dead_keys=True)
        machine.publish(3, key=[b"k"] * 3)
        machine.settle(machine.lease(), commands.Reject)
        assert machine.lease() == []
        letter = next(iter(machine.queue.partitions[0].dead.items()))
        letters = [commands.Letter(0, 0, 0, letter[1].dead_at)]
        if comes_back:
            machine.submit(commands.StartRedrive(1, "r", filter="", target="", delay_ms=0, rate_per_s=1))
            assert machine.submit(commands.RedriveLetters(1, "r", letters, None, 1)) == 1
        else:
            assert machine.submit(commands.DeleteLetters(1, letters)) == 1
        order = []
        while runs := machine.lease(5):
            order += machine.offsets(runs)
            machine.settle(runs)
        assert order == ([0, 1, 2] if comes_back else [1, 2])


def test_reading_records_again_builds_no_index_until_the_end():
    """Records of messages that ended long ago must not be collected in memory first."""
    machine = Machine(order="heap", ordered_keys=True)
    for _ in range(10):
        machine.publish(100, priority=range(100), key=[b"%d" % row for row in range(100)])
        while runs := machine.lease(100):
            machine.settle(runs)
    machine.publish(3, priority=[3, 1, 2])
    shard = machine.replayed()
    assert shard.queues[1].dispatchers == {}
    assert not shard.queues[1].partitions[0].progress[0].ready
    end_replay(shard)
    assert len(shard.queues[1].dispatchers[0]._source) == 3
    reply = decide(shard, commands.Lease(1, "g", 3, 7), machine.now).reply
    assert machine.offsets(reply) == [1001, 1002, 1000]


def test_what_expires_below_the_top_of_a_heap_leaves_it():
    """The best are always taken, the others always expire: without sweeping the index would grow for ever."""
    machine = Machine(order="heap", ttl_ms=1000)
    dice = Random(1)
    for _ in range(120):
        machine.publish(200, priority=[dice.randrange(10**6) for _ in range(200)])
        machine.settle(machine.lease(5))
        machine.now += 500
    alive = machine.queue.partitions[0].progress[0].undone(machine.queue.partitions[0].end)
    assert alive < 1000
    assert len(machine.dispatcher._source) < 4 * 1000


@pytest.mark.parametrize("lives_ms", [(500, 700), (500, 500)], ids=["scattered", "neighbours"])
def test_thousands_that_expire_at_once_leave_a_heap_as_well(lives_ms):
    machine = Machine(order="heap")
    for _ in range(4):
        machine.publish(4_000, priority=[row * 7919 % 9973 for row in range(4_000)], ttl_ms=lives_ms * 2_000)
        machine.now += 1_000
        machine.submit(commands.Extend([], 1))  # time has passed without a lease request
    assert machine.queue.partitions[0].progress[0].undone(machine.queue.partitions[0].end) == 0
    assert len(machine.dispatcher._source) < 1_000


def test_traits_of_a_leased_message_survive_retention():
    machine = Machine(order="heap", fair_share={"enabled": True}, retention={"mode": "keep"})
    machine.publish(600, priority=range(600), tenant=[b"t"] * 600)
    runs = machine.lease(1)
    machine.submit(commands.TrimPartition(1, 0, 600))
    assert machine.dispatcher.shares.in_flight.values()
    machine.settle(runs, commands.Release)
    assert machine.dispatcher.shares.in_flight == {}
    assert machine.offsets(machine.lease(1)) == [0]


def test_a_dead_letter_keeps_what_its_place_in_the_order_depends_on():
    machine = Machine(order="heap")
    machine.publish(300, priority=range(1, 301))
    machine.settle(machine.lease(1), commands.Reject)
    while runs := machine.lease(100):
        machine.settle(runs)
    partition = machine.queue.partitions[0]
    assert (partition.start, partition.end) == (300, 300)
    machine.publish(1, priority=[7])
    assert partition.traits.stretches(512) == [(0, 512)]
    partition.traits.keep(0, 512, partition.live(keeps=False))
    assert [partition.traits.priority[offset] for offset in (0, 300)] == [1, 7]
    assert len(partition.traits.priority.capture()) == 2


def test_queue_with_leased_messages_is_not_empty():
    machine = Machine(retention={"mode": "keep"})
    machine.publish(1)
    runs = machine.lease(1)
    machine.submit(commands.TrimPartition(1, 0, 1))
    assert not machine.queue.empty
    machine.settle(runs)
    assert machine.queue.empty


def test_a_change_of_settings_leaves_dead_letters_what_they_are_ordered_by():
    machine = Machine(ordered_keys=True)
    machine.publish(2, key=[b"k", b"k"])
    for _ in range(2):
        machine.settle(machine.lease(), commands.Reject)
    assert machine.queue.empty
    machine.change(max_retries=7)
    letters = [commands.Letter(0, 0, offset, letter.dead_at) for (_, offset), letter in
               machine.queue.partitions[0].dead.items()]  # fmt: skip
    machine.submit(commands.StartRedrive(1, "r", filter="", target="", delay_ms=0, rate_per_s=1))
    machine.submit(commands.RedriveLetters(1, "r", letters, None, 1))
    assert machine.offsets(machine.lease(5)) == [0], "one of a key at a time"


def test_a_change_of_settings_does_not_hide_what_is_to_be_tried_again():
    """No message may be skipped while an index is rebuilt."""
    machine = Machine(order="heap", backoff={"kind": "fixed", "base_ms": 500, "jitter": 0})
    machine.publish(2, priority=[1, 2])
    machine.settle(machine.lease(), commands.Nack)
    machine.now += 500
    advance(machine.shard, machine.now)
    for record in decide(machine.shard, commands.ConfigureQueue("a/b/c", parse_config(
        {"top_k": 9}, machine.queue.config)), machine.now).records:  # fmt: skip
        apply(machine.shard, record)
    reply = decide(machine.shard, commands.Lease(1, "g", 1, 7), machine.now).reply
    assert [(run.first, run.attempt) for run in reply] == [(0, 2)]


def test_a_healthy_backlog_of_keys_is_not_refused(monkeypatch):
    monkeypatch.setattr(limits, "BLOCKED_KEYS_MAX", 3)
    machine = Machine(ordered_keys=True, backoff={"kind": "fixed", "base_ms": 500, "jitter": 0})
    keys = [b"%d" % number for number in range(10)]
    machine.publish(20, key=keys * 2)
    machine.publish(1)
    runs = machine.lease(5)
    assert machine.dispatcher.blocked_keys == 0, "ready or leased, and others behind"
    machine.settle(runs[:1], commands.Nack)
    assert machine.dispatcher.blocked_keys == sum(run.count for run in runs[:1]) == 5
    with pytest.raises(QueueFull, match="5 keys") as refused:
        machine.publish(1)
    assert refused.value.details == {"blocked_keys": 5, "max_blocked_keys": 3}
    for _ in range(2):
        machine.shard = machine.replayed()
        end_replay(machine.shard)
        assert machine.dispatcher.blocked_keys == 5, "also after a restart"
    machine.submit(commands.Reschedule(1, [(0, 0)], machine.now + 9_000))
    machine.now += 500
    machine.publish(1)
    assert machine.dispatcher.blocked_keys == 1, "ready again, but for one that was moved"


def test_parked_keys_count_as_blocked_also_after_a_restart():
    machine = Machine(ordered_keys=True, park_dead_keys=True)
    machine.publish(4, key=[b"a", b"a", b"b", b"c"])
    machine.settle(machine.lease(3), commands.Reject)
    assert machine.dispatcher.blocked_keys == 1, "messages wait behind only one of them"
    machine.shard = machine.replayed()
    end_replay(machine.shard)
    assert machine.dispatcher.blocked_keys == 1
    machine.change(park_dead_keys=False)
    assert machine.dispatcher.blocked_keys == 0


@pytest.mark.parametrize("order", ["fifo", "lanes", "heap"])
@pytest.mark.parametrize("traits", ["key", "tenant", "key tenant"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_an_index_that_is_built_gives_what_one_that_grew_gives(order, traits, partitions):
    """A group that begins behind a backlog is told of it in large pieces, one that was there message by message."""
    dice = Random(f"{order} {traits} {partitions}")
    m = Machine(order=order, ordered_keys="key" in traits, fair_share={"enabled": "tenant" in traits},
                partitions=partitions)  # fmt: skip
    for _ in range(60):
        size = dice.randint(1, 3)
        columns = {"tenant": [b"t%d" % dice.randint(0, 5) for _ in range(size)]} if "tenant" in traits else {}
        keys = [b"k%d" % dice.randint(0, 40) for _ in range(size)]
        m.publish(size, key=keys, priority=[dice.randint(0, 4) for _ in range(size)], **columns)

    def drained(group: str) -> list[tuple[int, int]]:
        given = []
        while runs := m.submit(commands.Lease(1, group, 4, 7)):
            given += [(run.partition, offset) for run in runs for offset in range(run.first, run.first + run.count)]
            m.settle(runs)
        return given

    assert m.submit(commands.Lease(1, "late", 4, 7)) is None, "it begins"
    built, grown = drained("late"), drained("g")
    assert len(grown) == sum(partition.end for partition in m.queue.partitions)
    # Across partitions, only offsets give the order.
    assert built == grown if partitions == 1 else sorted(built) == sorted(grown)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (commands.Nack, {"delay_ms": 5}),
        (commands.Reject, {"error": "no"}),
        (commands.Release, {}),
        (commands.Extend, {"lease_ms": 9_000}),
    ],
)
def test_what_happens_to_scattered_messages_of_one_lease_is_one_fact(kind, options):
    """A failed batch costs one record, however its messages lie."""
    m = Machine(ordered_keys=True)
    m.publish(40, key=[b"k%d" % row for row in range(40)])
    first, second = m.lease(20), m.lease(20)
    before = len(m.records)
    claims = [
        commands.Claim(run.lease, run.nonce, offset, offset + 1)
        for run in (*first, *second)
        for offset in range(run.first, run.first + run.count, 2)
    ]
    m.submit(kind(claims, **options))
    made = m.records[before:]
    assert [fact.ranges for fact in made] == [
        [edge for offset in range(begin, begin + 20, 2) for edge in (offset, offset + 1)] for begin in (0, 20)
    ]


@settings(max_examples=60)
@given(settled=st.lists(st.integers(0, 299), unique=True, max_size=60), near=st.integers(0, 280), ordered=st.booleans())
def test_acks_of_scattered_messages_free_exactly_their_keys(settled, near, ordered):
    """Some anywhere and some close together, in any order: behind each of them, and no other, the next one follows."""
    m = Machine(ordered_keys=True)
    for _ in range(2):
        m.publish(300, key=[b"k%d" % row for row in range(300)])
    (run,) = m.lease(300)
    settled += [offset for offset in range(near, near + 20, 3) if offset not in settled]
    offsets = sorted(settled) if ordered else settled
    m.submit(commands.Ack([commands.Claim(run.lease, run.nonce, offset, offset + 1) for offset in offsets]))
    assert m.offsets(m.lease(300)) == sorted(300 + offset for offset in settled)


def test_messages_that_are_to_wait_differently_are_facts_of_their_own():
    m = Machine(max_retries=1, backoff={"kind": "none"})
    m.publish(4, max_retries=[5, 0, 5, 0])
    m.settle(m.lease(4), commands.Nack)
    assert [(type(fact).__name__, fact.ranges) for fact in m.records[-4:]] == [
        ("Retried", [0, 1]), ("DeadLettered", [1, 2]), ("Retried", [2, 3]), ("DeadLettered", [3, 4]),
    ]  # fmt: skip
