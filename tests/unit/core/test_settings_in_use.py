"""Settings that change while messages wait: an index is kept, and follows; what does follow is as if it were new."""

from __future__ import annotations

import pytest

from penstock.core import commands, invariants
from penstock.core.rebuild import end_replay
from tests.unit.core.test_dispatch import Machine

ORDERS = {
    "lanes": {"order": "lanes"},
    "heap": {"order": "heap", "top_k": 5, "partitions": 2},
    "keys": {"ordered_keys": True},
    "fair": {"fair_share": {"enabled": True, "max_in_flight": 50}},
    "all": {"order": "heap", "ordered_keys": True, "fair_share": {"enabled": True}},
}
TENANTS = [b"red", b"blue"]


def filled(**config: object) -> Machine:
    machine = Machine(**config)
    machine.publish(
        60,
        priority=[row * 7 % 5 for row in range(60)],
        key=[b"%d" % (row % 20) for row in range(60)],
        tenant=[TENANTS[row % 2] for row in range(60)],
    )
    return machine


def drained(machine: Machine) -> list[tuple[int, int]]:
    """(partition, offset) in the order in which one consumer gets everything."""
    order = []
    while runs := machine.lease(1):
        order += [(run.partition, run.first) for run in runs]
        machine.settle(runs)
    return order


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(
    "change",
    [
        {"queue_priority": 9},
        {"max_retries": 9},
        {"backoff": {"base_ms": 7}},
        {"lease_ms": 7_000},
        {"window_ms": 100},
        {"lane_weights": [5, 4, 3, 2, 1]},
        {"top_k": 40},
        {"partitions": 4},
        {"delivery": "at_most_once"},
        {"fair_share": {"weights": {"red": 3}, "max_in_flight": 2}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_no_index_is_built_anew_for_a_change_that_it_can_follow(order, change):
    machine = filled(**order)
    before = machine.dispatcher
    sources = len(before._source)
    machine.change(**change)
    assert machine.dispatcher is before and len(before._source) == sources
    for partition in machine.queue.partitions:
        assert partition.progress[0].adapter._dispatcher is before
    invariants.check_dispatch(machine.shard)
    machine.now += 1_000
    assert len(set(drained(machine))) == 60


@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"order": "lanes"}, {"lane_weights": [1, 1, 1, 1, 9]}),
        ({"order": "lanes", "fair_share": {"enabled": True}}, {"lane_weights": [1, 1, 1, 1, 9]}),
        ({"order": "heap", "top_k": 40}, {"top_k": 1}),
        ({"order": "heap", "top_k": 1}, {"top_k": 40}),
        ({"order": "heap", "top_k": 40}, {"partitions": 16}),
        ({"order": "heap", "heap_mode": "max", "top_k": 9, "fair_share": {"enabled": True}}, {"partitions": 3}),
        ({"fair_share": {"enabled": True}}, {"fair_share": {"weights": {"red": 3}}}),
        ({"ordered_keys": True}, {"partitions": 5}),
    ],
    ids=str,
)
def test_what_follows_a_change_gives_out_what_a_new_index_would(config, change):
    machine, other = filled(**config), filled(**config)
    for each in (machine, other):
        each.change(**change)
        each.publish(30, priority=[row % 5 for row in range(30)], key=[b"%d" % row for row in range(30)],
                     tenant=[TENANTS[row % 2] for row in range(30)])  # fmt: skip
    other.shard = other.replayed()
    end_replay(other.shard)
    order = drained(machine)
    assert len(order) == 90
    if "partitions" in change and config.get("order") != "heap":
        # A new index reads the partitions by offset, the one in use has the order of arrival.
        assert sorted(order) == sorted(drained(other))
    else:
        assert order == drained(other)


def test_raised_cap_wakes_waiting_leases():
    machine = Machine(fair_share={"enabled": True, "max_in_flight": 2})
    machine.publish(8, tenant=[b"t"] * 8)
    assert machine.offsets(machine.lease(10)) == [0, 1] and machine.lease(10) == []
    machine.change(fair_share={"max_in_flight": 5})
    assert machine.offsets(machine.lease(10)) == [2, 3, 4] and machine.lease(10) == []
    machine.change(delivery="at_most_once")
    assert machine.offsets(machine.lease(2)) == [5, 6], "what is done by being delivered is not in flight"
    machine.change(delivery="at_least_once")
    assert machine.lease(10) == [], "what was leased before still is"
    machine.change(fair_share={"max_in_flight": None})
    assert machine.offsets(machine.lease(10)) == [7]


def test_an_index_is_built_anew_where_the_order_itself_changes():
    machine = Machine(order="lanes")
    machine.publish(1, priority=[1])
    machine.settle(machine.lease())
    before = machine.dispatcher
    machine.change(order="heap", ordered_keys=True)
    assert machine.dispatcher is not before
    machine.publish(3, priority=[2, 1, 0], key=[b"a", b"a", b"b"])
    assert machine.offsets(machine.lease(3)) == [3, 1]
    machine.submit(commands.PurgeQueue(1))
    machine.change(order="fifo", ordered_keys=False)
    assert machine.queue.dispatchers == {}
    machine.publish(2)
    assert machine.offsets(machine.lease(3)) == [4, 5]
