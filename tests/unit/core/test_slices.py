"""A dump in slices: the bytes are those of the whole, each part is small, and what happens meanwhile is not in it."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import commands, snapshot
from penstock.core.slices import PART_BYTES, Later, Rows, encoded, encoded_whole, plain
from penstock.core.state import Shard
from tests.unit.core.test_core_state import Machine

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=40)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=60,
)


def lazily(value):
    """The same value with something to be made wherever that is possible."""
    if isinstance(value, dict):
        return {key: lazily(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return Rows(len(value), iter(value)) if len(value) % 2 else [lazily(inner) for inner in value]
    return Later(lambda: value)


@given(values)
def test_the_parts_are_the_whole(value):
    assert b"".join(encoded(lazily(value))) == msgspec.msgpack.encode(value)
    assert encoded_whole(lazily(value)) == msgspec.msgpack.encode(value)
    assert plain(lazily(value)) == value


@given(st.integers(0, 70_000))
def test_lists_of_any_length(count):
    whole = b"".join(encoded(Rows(count, iter(range(count)))))
    assert whole == msgspec.msgpack.encode(list(range(count)))


def test_a_list_of_blobs_is_cut_between_them():
    pages = {"priority": [(number, bytes(2048)) for number in range(200)]}
    assert max(map(len, encoded(pages))) < PART_BYTES + 2 * 2048


def crowded() -> Machine:
    """Delays, keys of dedup, retries and acks out of order: some thousands of each."""
    machine = Machine(backoff={"kind": "fixed", "base_ms": 1000})
    machine.lease()
    for start in range(0, 12_000, 4_000):
        rows = range(start, start + 4_000)
        machine.publish(
            4_000,
            delay_ms=[row % 3 * (1000 + row * 7919 % 10**9) for row in rows],
            id=[b"%d" % row for row in rows],
            ttl_ms=[10**9 + row * 7907 % 10**9 for row in rows],
        )
    runs = machine.lease(3_000)
    claims = [commands.Claim(run.lease, run.nonce, run.first, run.first + run.count) for run in runs]
    machine.submit(commands.Ack(claims[::2]))
    machine.submit(commands.Nack(claims[1::2]))
    return machine


def test_no_part_is_large_and_the_state_may_go_on():
    machine = crowded()
    expected = snapshot.digest(machine.shard)
    parts, taken = [], encoded(snapshot.capture(machine.shard))
    for number, part in enumerate(taken):
        parts.append(part)
        if number % 3 == 0:
            # Everything goes on meanwhile: leases, acks, cancels, moves, time.
            machine.now += 500
            machine.ack(machine.lease(50))
            end = machine.partition.end
            places = [(0, end - 1 - (number * 37 + row) % end) for row in range(5)]
            machine.submit(commands.Cancel(1, places[:2]))
            machine.submit(commands.Reschedule(1, places[2:], machine.now + 5_000))
    assert len(parts) > 5
    # One value is never cut: the largest are columns of integers, which cost a copy and no walk.
    assert max(map(len, parts)) <= 24 * 12_000 + PART_BYTES
    assert snapshot.digest(machine.shard) != expected
    assert snapshot.digest(snapshot.load(msgspec.msgpack.decode(b"".join(parts)))) == expected


def test_taking_the_state_makes_no_long_list():
    machine = crowded()
    captured = snapshot.capture(machine.shard)
    lists = [value for value in _lists(captured) if len(value) > 100]
    assert lists == [], "a list of many values was made where a promise of it would do"


def _lists(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from _lists(inner)
    elif isinstance(value, list | tuple):
        yield value
        for inner in value:
            yield from _lists(inner)


def test_an_empty_shard_is_a_snapshot_too():
    shard = Shard()
    again = snapshot.load(msgspec.msgpack.decode(b"".join(encoded(snapshot.capture(shard)))))
    assert snapshot.digest(again) == snapshot.digest(shard)
