"""The oracle of `make torture` finds each kind of violation, and nothing else."""

from __future__ import annotations

from torture.oracle import Oracle


def lease(number: int, until: int) -> list[dict[str, object]]:
    return [{"payload": {"n": number}, "deadline_at_ms": until}]


def told(*stored: int) -> Oracle:
    oracle = Oracle()
    oracle.take_numbers(10)
    oracle.stored(list(stored))
    return oracle


def test_a_history_without_a_violation():
    oracle = told(0, 1, 2)
    oracle.delivered(lease(0, 1_000), 1_000)
    oracle.delivered(lease(1, 1_000), 1_000)
    oracle.asks_ack([0])
    oracle.ack_answered([0], [0])
    oracle.asks_nack([1])
    oracle.delivered(lease(1, 1_001), 1_000)
    oracle.delivered(lease(1, 2_001), 1_000)
    oracle.asks_ack([2])  # the answer never came: the message may be there or not
    oracle.delivered(lease(5, 1_500), 1_000)  # published, and the answer never came
    assert oracle.needed() == {1, 5}
    oracle.check_present({1, 5, 7})
    assert oracle.violations == []


def test_a_lost_message():
    oracle = told(0, 1)
    oracle.check_present({1})
    assert oracle.violations == ["message 0 is lost"]


def test_a_stale_ack_leaves_the_message_needed():
    oracle = told(0)
    oracle.asks_ack([0])
    oracle.ack_answered([0], [])
    oracle.check_present(set())
    assert oracle.violations == ["message 0 is lost"]


def test_an_acked_message_that_comes_back():
    oracle = told(0)
    oracle.asks_ack([0])
    oracle.ack_answered([0], [0])
    oracle.delivered(lease(0, 9_000), 1_000)
    assert oracle.violations == ["message 0 was acked and is delivered again"]


def test_two_leases_at_once():
    oracle = told(0)
    oracle.delivered(lease(0, 1_000), 1_000)
    oracle.delivered(lease(0, 1_999), 1_000)
    assert oracle.violations == ["message 0 is leased twice: until 1000 and 1999"]


def test_a_message_that_was_never_published():
    oracle = told()
    oracle.delivered(lease(77, 1_000), 1_000)
    assert oracle.violations == ["message 77 was never published"]
