"""Lanes, heaps, ordered keys and fair shares against the dumb machine: each alone, and all of them together.

The rules, the restarts and the comparison of every message are those of `test_machine.py`. On top of them each lease is
held against what its order promises (`turns.py`), and bursts of ordinary traffic make the steps many: what a burst does
is drawn as one number.
"""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test
from naive import Life, Message
from test_machine import MachineAgainstModel, expanded, given_up, sometimes
from turns import Ranks, Rounds, Row, by_tenant, check_rules, in_flight, seniority

from penstock.batch import Batch, build, layout
from penstock.core import commands, invariants, records
from penstock.core.config import QueueConfig, parse_config, same_order
from penstock.core.offsets.ranges import pairs
from penstock.core.order.fifo import place_of
from penstock.core.order.lanes import Lanes
from penstock.core.records import Record
from penstock.core.state import Shard
from penstock.core.state.traits import hash_of

KEYS = [b"", b"a", b"b", b"c", b"d", b"e"]
TENANTS = [b"", b"red", b"green", b"blue"]
HASHES = {text: hash_of(text) for text in [*KEYS, *TENANTS]}
ENOUGH = 10_000
"""Commands for each machine."""
FAST = {"lease_ms": 1000, "max_retries": 1, "backoff": {"kind": "fixed", "base_ms": 500, "jitter": 0}}


def pool(*variants: dict, **order: object) -> st.SearchStrategy[QueueConfig]:
    """Configurations that differ in what may change while messages are stored, and share the order."""
    return st.sampled_from([parse_config({**variant, **order}) for variant in variants])


def batch_of(dice: Random, now_ms: int, count: int) -> Batch:
    """Messages with whatever an order may look at, now and then with what keeps them from being delivered."""
    columns: dict[int, list] = {
        layout.PRIORITY: [dice.randrange(5) if dice.random() < 0.9 else 2**62 for _ in range(count)],
        layout.KEY: [dice.choice(KEYS) for _ in range(count)],
        layout.TENANT: [dice.choice(TENANTS) for _ in range(count)],
    }
    for column, chance, values in (
        (layout.DELAY_MS, 0.2, [0, 0, 1, 300, 5000]),
        (layout.DELIVER_AT_MS, 0.05, [0, now_ms, now_ms + 400]),
        (layout.TTL_MS, 0.1, [0, 1, 900, 6000]),
        (layout.MAX_RETRIES, 0.1, [-1, 0, 5]),
    ):
        if dice.random() < chance:
            columns[column] = [dice.choice(values) for _ in range(count)]
    for column in (layout.PRIORITY, layout.KEY, layout.TENANT):
        if dice.random() < 0.1:
            del columns[column]
    return Batch.open(build([b"%d" % row for row in range(count)], columns=columns))


def batches(now_ms: int) -> st.SearchStrategy[Batch]:
    return st.integers(0, 2**32).map(lambda seed: batch_of(Random(seed), now_ms, seed % 5 + 1))


class OrderMachine(MachineAgainstModel):
    batches = staticmethod(batches)
    looks_for_changes_every = 11
    pools: list[st.SearchStrategy[QueueConfig]] = []
    """Each example stays within one of them."""
    commands = 0

    # One of each is enough: traffic comes in bursts here.
    publish_again = publish_more = lease_again = lease_more = None

    def __init__(self) -> None:
        super().__init__()
        self.ranks = Ranks()
        self.rounds: dict[tuple[int, int, bytes | None], Rounds] = {}
        self.parked: dict[tuple[int, int], dict[tuple[int, int], bytes]] = {}
        """(queue, group) -> (partition, offset) -> key, of what was given up while keys were parked."""
        self.unsure: set[int] = set()
        """Queues where a message left the row for another time: if it is back soon enough, its place is still there."""

    @initialize(data=st.data(), large_messages=sometimes)
    def first_queue(self, data: st.DataObject, large_messages: bool) -> None:
        self.configs = data.draw(st.sampled_from(self.pools), label="pool")
        super().first_queue(data, large_messages)

    def decided(self, command: commands.Command) -> object:
        type(self).commands += 1
        return super().decided(command)

    def check_nothing_is_late(self) -> None:
        if self.decisions % 5 == 0:
            super().check_nothing_is_late()

    # -- the rules -----------------------------------------------------------------------------------------------------

    @rule(seed=st.integers(0, 2**32))
    def burst(self, seed: int) -> None:
        dice = Random(seed)
        for _ in range(dice.randint(20, 60)):
            self.let_time_work()
            number = dice.choice(sorted(self.model.queues))
            act = dice.choice(["publish", "publish", "lease", "lease", "lease", "settle", "settle", "settle", "time"])
            if act == "publish" and len(self.model.queues[number].messages()) < 100:
                self.publish_and_compare([commands.Part(number, batch_of(dice, self.now, dice.randint(1, 4)))])
            elif act == "lease":
                wanted = dice.choice([1, 1, 2, 3, 7])
                self.lease_and_compare(number, dice.choice(["default", "default", "billing"]), wanted, None)
            elif act == "settle" and self.model.leases:
                self.settle(dice)
            elif act == "time":
                self.now += dice.choice([0, 1, 50, 300, 500, 1000, 31_000])

    def settle(self, dice: Random) -> None:
        lease = dice.choice(sorted(self.model.leases))
        held = [entry for entry in self.claimable if entry[0] == lease]
        number, nonce, first, stop = dice.choice(held)
        if dice.random() < 0.5:
            first = dice.randrange(first, stop)
            stop = first + 1
        claims = [commands.Claim(number, nonce, first, stop)]
        fate = dice.choice(["ack", "ack", "ack", "nack", "release", "reject"])
        if fate == "nack":
            self.submit(commands.Nack(claims, dice.choice([None, 0, 300]), "it broke"))
        else:
            kind = {"ack": commands.Ack, "release": commands.Release, "reject": commands.Reject}[fate]
            status = {"ack": "acked", "release": "released", "reject": None}[fate]
            self.check_outcomes(claims, kind(claims), lambda queue, _m, _l: (status or given_up(queue), None))

    burst_again, burst_more = burst, burst

    # -- what the model notes ------------------------------------------------------------------------------------------

    def applied(self, record: Record) -> None:
        number = getattr(record, "queue", None)
        before = self.model.queues[number].config if number in self.model.queues else None
        super().applied(record)
        if isinstance(record, records.QueueConfigured) and before is not None and same_order(before, record.config):
            # Positions stay; other weights start a new round.
            if before.lane_weights != record.config.lane_weights:
                self.rounds = {name: rounds for name, rounds in self.rounds.items() if name[0] != number}
        elif isinstance(record, records.QueueConfigured | records.QueuePurged):
            if isinstance(record, records.QueuePurged):
                self.parked = {name: keys for name, keys in self.parked.items() if name[0] != number}
            self.index_begins(number, self.model.queues[number].groups.values())
        elif isinstance(record, records.QueueDeleted):
            self.parked = {name: keys for name, keys in self.parked.items() if name[0] != number}
        elif isinstance(record, records.GroupCreated | records.GroupMoved):
            self.index_begins(number, [record.group])
        elif isinstance(record, records.GroupDeleted):
            self.parked.pop((number, record.group), None)
            self.rounds = {name: rounds for name, rounds in self.rounds.items() if name[:2] != (number, record.group)}
        elif isinstance(record, records.DeadLettered):
            self.note_parked(record)
        elif isinstance(record, records.Redriven | records.DeadLettersRemoved):
            for first, stop in pairs(record.ranges):
                for offset in range(first, stop):
                    self.parked.get((number, record.group), {}).pop((record.partition, offset), None)
        elif isinstance(record, records.Rescheduled):
            for first, stop in pairs(record.ranges):
                for offset in range(first, stop):
                    if self.ranks.left(number, record.partition, offset) and len(self.model.queues[number].logs) > 1:
                        self.unsure.add(number)
        fresh = []
        if isinstance(record, records.Published):
            fresh = [(record.partition, record.offset + row) for row in range(record.batch.count)]
        self.observe(number, fresh)

    def note_parked(self, record: records.DeadLettered) -> None:
        queue = self.model.queues[record.queue]
        if record.kept and queue.config.park_dead_keys:
            for first, stop in pairs(record.ranges):
                for message in queue.logs[record.partition][first:stop]:
                    if message.key:
                        parked = self.parked.setdefault((record.queue, record.group), {})
                        parked[record.partition, message.offset] = message.key

    def parked_now(self, number: int, group: int) -> set[bytes]:
        parks = self.model.queues[number].config.park_dead_keys
        return set(self.parked.get((number, group), {}).values()) if parks else set()

    def observe(self, only: int | None = None, fresh: list[tuple[int, int]] | None = None) -> None:
        for number, queue in self.model.queues.items():
            if only in (None, number) and queue.config.order != "heap":
                self.ranks.observe(number, queue, self.now, self.offered_in(self.shard, number), fresh or [])

    def offered_in(self, shard: Shard, number: int):
        """Is this message let through by its key? The machine is believed here; the rules check that it is right."""
        dispatchers, queue = shard.queues[number].dispatchers, self.model.queues[number]

        def offered(group: int, message: Message) -> bool:
            gate = dispatchers[group].gate
            if gate is None or not message.key:
                return True
            age, offset, partition = seniority(queue, message)
            return gate.lets(HASHES[message.key], place_of(partition, offset, age))

        return offered

    def index_begins(self, number: int, groups, comes_back=lambda _message, _life: False) -> None:
        for name in [name for name in self.rounds if name[0] == number and name[1] in groups]:
            del self.rounds[name]
        if set(groups) == set(self.model.queues[number].groups.values()):
            self.unsure.discard(number)
        offered = self.offered_in(self.shard, number)
        self.ranks.begin_again(number, self.model.queues[number], self.now, offered, comes_back, list(groups))

    def restarted(self, how: str) -> None:
        for number, queue in self.model.queues.items():

            def comes_back(message: Message, _life: Life) -> bool:
                # In a journal that is read again time passes only at the end: every delay ends there once more.
                return how == "journal" and message.due > 0

            self.index_begins(number, list(queue.groups.values()), comes_back)

    @invariant()
    def the_indexes_know_who_is_ready(self) -> None:
        if len(self.records) % 3 == 0:
            self.let_time_work()
            invariants.check_dispatch(self.shard)

    # -- what a lease must give ----------------------------------------------------------------------------------------

    def lease_and_compare(self, number: int, group: str, wanted: int, lease_ms: int | None) -> None:
        self.let_time_work()
        self.observe()
        super().lease_and_compare(number, group, wanted, lease_ms)

    def check_decision(self, command: commands.Command, reply: object) -> None:
        if isinstance(command, commands.Lease) and reply is not None:
            queue = self.model.queues[command.queue]
            group, wanted = queue.groups[command.group], min(command.max, self.reply_messages_max)
            places = [(partition, offset) for partition, offset, _ in expanded(reply)]
            check_rules(queue, group, self.now, wanted, places, self.parked_now(command.queue, group))

    def predict(self, number: int, group: int, wanted: int) -> list[tuple[int, int, int]] | None:
        queue, now = self.model.queues[number], self.now
        dispatcher, config = self.shard.queues[number].dispatchers[group], queue.config
        offered = self.offered_in(self.shard, number)
        ready = [m for m in queue.messages() if m.deliverable(group, now) and offered(group, m)]
        flip = -1 if config.heap_mode == "max" else 0

        def in_order(messages: list[Message]) -> list[Message]:
            if config.order == "heap":
                return sorted(messages, key=lambda m: (m.priority ^ flip, *seniority(queue, m)))
            return self.ranks.in_order(number, queue, group, messages)

        lanes: dict[bytes | None, tuple[list[list[Message]], list[int | None]]] = {}

        def serve(tenant: bytes | None) -> Message | None:
            """The next one of this tenant's, or of all if there are no tenants."""
            if tenant not in lanes:
                theirs = [m for m in ready if tenant is None or m.tenant == tenant]
                if config.order == "lanes":
                    order = dispatcher._source if tenant is None else dispatcher.shares._orders.get(HASHES[tenant])
                    since = list(order._since) if isinstance(order, Lanes) else [None] * 5
                    rows = [in_order([m for m in theirs if min(m.priority, 4) == lane]) for lane in range(5)]
                    lanes[tenant] = rows, since
                else:
                    lanes[tenant] = [in_order(theirs)], []
            rows, since = lanes[tenant]
            if config.order != "lanes":
                return rows[0].pop(0) if rows[0] else None
            rounds = self.rounds.setdefault((number, group, tenant), Rounds(config.lane_weights))
            return rounds.serve(rows, since, now)

        chosen: list[Message] = []
        shares = dispatcher.shares
        if shares is None:
            while len(chosen) < wanted and (message := serve(None)) is not None:
                chosen.append(message)
        else:
            names = {HASHES[tenant]: tenant for tenant in TENANTS}
            row = Row([names[tenant] for tenant in shares._ready], shares._turn)
            flying = in_flight(queue, group)
            cap = config.fair_share.max_in_flight if config.delivery == "at_least_once" else None

            def may_have(tenant: bytes) -> bool:
                already = sum(m.tenant == tenant for m in chosen)
                return cap is None or flying.get(tenant, 0) + already < cap

            while len(chosen) < wanted and (message := row.serve(config.fair_share.weights, may_have, serve)):
                chosen.append(message)
        if number in self.unsure and config.order != "heap":
            return None
        return [(m.partition, m.offset, m.lives[group].attempt + 1) for m in chosen]

    def check_after_restart(self, number: int, group: int, leased: list[tuple[int, int, int]]) -> None:
        queue = self.model.queues[number]
        places = [(partition, offset) for partition, offset, _ in leased]
        check_rules(queue, group, self.now, 10_000, places, self.parked_now(number, group))
        for partition, offset, attempt in leased:
            assert attempt == queue.logs[partition][offset].lives[group].attempt + 1
        if queue.config.order == "heap":
            flip = -1 if queue.config.heap_mode == "max" else 0
            messages = [queue.logs[partition][offset] for partition, offset in places]
            for theirs in by_tenant(messages).values() if queue.config.fair_share.enabled else [messages]:
                if not queue.config.fair_share.enabled:
                    theirs = messages
                ranked = sorted(theirs, key=lambda m: (m.priority ^ flip, *seniority(queue, m)))
                assert [m for m in messages if m in theirs] == ranked, "a heap is in order after a restart"


# One machine for each promise, and one for all of them together.


class HeapMachine(OrderMachine):
    pools = [
        pool(
            {},
            {**FAST, "top_k": 7, "partitions": 3},
            {"partitions": 2, "top_k": 4, "backoff": {"kind": "none"}},
            {"retention": {"mode": "keep"}, "ttl_ms": 5000},
            {"delivery": "at_most_once", "partitions": 2},
            order="heap",
            heap_mode=mode,
        )
        for mode in ("min", "max")
    ]


class LanesMachine(OrderMachine):
    pools = [
        pool(
            {},
            {**FAST, "lane_weights": [3, 2, 2, 1, 1]},
            {"lane_weights": [1, 1, 1, 1, 1], "partitions": 3},
            {"retention": {"mode": "keep"}, "lane_weights": [5, 1, 1, 1, 2]},
            {"delivery": "at_most_once", "lane_weights": [2, 2, 1, 1, 1]},
            order="lanes",
        )
    ]


class KeysMachine(OrderMachine):
    pools = [
        pool(
            {},
            {**FAST, "partitions": 3},
            {**FAST, "park_dead_keys": True},
            {"backoff": {"kind": "none"}, "partitions": 2, "retention": {"mode": "keep"}},
            {"delivery": "at_most_once"},
            {"max_retries": 0, "dead_letter": False, "park_dead_keys": True, "lease_ms": 500},
            ordered_keys=True,
        )
    ]


class SharesMachine(OrderMachine):
    pools = [
        pool(
            {"fair_share": {"enabled": True}},
            {**FAST, "fair_share": {"enabled": True, "weights": {"red": 3, "blue": 2}}, "partitions": 2},
            {**FAST, "fair_share": {"enabled": True, "max_in_flight": 2}},
            {"fair_share": {"enabled": True, "max_in_flight": 1, "weights": {"green": 2}}, "delivery": "at_most_once"},
            {"fair_share": {"enabled": True, "max_in_flight": 3, "weights": {"red": 2}}, "retention": {"mode": "keep"}},
        )
    ]


class TogetherMachine(OrderMachine):
    pools = [
        pool(
            {**FAST, "fair_share": {"enabled": True}, "lane_weights": [2, 2, 1, 1, 1]},
            {**FAST, "fair_share": {"enabled": True, "max_in_flight": 3}, "partitions": 3},
            {"fair_share": {"enabled": True, "weights": {"red": 2}}, "retention": {"mode": "keep"}, "ttl_ms": 5000},
            {"fair_share": {"enabled": True, "max_in_flight": 2}, "delivery": "at_most_once", "partitions": 2},
            **order,
        )
        for order in (
            {"order": "lanes", "ordered_keys": True},
            {"order": "lanes", "ordered_keys": True, "park_dead_keys": True},
            {"order": "heap", "ordered_keys": True},
            {"order": "lanes"},
            {"order": "heap", "heap_mode": "max"},
        )
    ]


@pytest.mark.parametrize(
    "machine",
    [HeapMachine, LanesMachine, KeysMachine, SharesMachine, TogetherMachine],
)
def test_orders_hold_over_ten_thousand_commands(machine):
    machine.commands = 0
    for number in count():
        if settings().derandomize:
            seed(number)(machine)
        run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=20))
        if machine.commands >= ENOUGH:
            return
