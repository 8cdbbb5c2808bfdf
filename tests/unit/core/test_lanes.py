"""Lanes share by weight, critical first, and none starves."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.order.fifo import place_of
from penstock.core.order.lanes import BOOST_AFTER_MS, Lanes

WEIGHTS = (50, 25, 15, 7, 3)


def everything(_place: int) -> bool:
    return True


def filled(weights=WEIGHTS, each: int = 100) -> Lanes:
    """Lane L holds the offsets from L * 1000 on."""
    lanes = Lanes(weights)
    for lane in range(5):
        for offset in range(each):
            lanes.push(place_of(0, lane * 1000 + offset), lane, fresh=True)
    return lanes


def lane_of(place: int | None) -> int | None:
    return None if place is None else (place >> 8) // 1000


def test_with_all_lanes_full_a_round_is_exactly_the_weights_and_critical_comes_first():
    lanes = filled()
    for _ in range(2):
        taken = [lane_of(lanes.pop(everything, 0)) for _ in range(100)]
        assert taken == [0] * 50 + [1] * 25 + [2] * 15 + [3] * 7 + [4] * 3


def test_critical_that_arrives_in_the_middle_of_a_round_goes_first_but_spends_its_share():
    lanes = Lanes((2, 2, 1, 1, 1))
    for offset in range(10):
        lanes.push(place_of(0, 1000 + offset), 1, fresh=True)
    assert lane_of(lanes.pop(everything, 0)) == 1
    for offset in range(10):
        lanes.push(place_of(0, offset), 0, fresh=True)
    assert [lane_of(lanes.pop(everything, 0)) for _ in range(7)] == [0, 0, 1, 0, 0, 1, 1]


def test_a_lane_alone_has_everything():
    lanes = Lanes(WEIGHTS)
    for offset in range(10):
        lanes.push(place_of(0, 4000 + offset), 4, fresh=True)
    assert [lanes.pop(everything, 0) for _ in range(10)] == [place_of(0, 4000 + offset) for offset in range(10)]


def test_a_lane_that_was_passed_over_for_thirty_seconds_is_served_once_out_of_turn():
    lanes = filled((1000, 1, 1, 1, 1), each=500)
    assert lane_of(lanes.pop(everything, 0)) == 0
    assert lane_of(lanes.pop(everything, BOOST_AFTER_MS)) == 0, "not yet"
    late = BOOST_AFTER_MS + 1
    # All four have waited equally long: each once, then it is the turn of the round again.
    assert Counter(lane_of(lanes.pop(everything, late)) for _ in range(4)) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert lane_of(lanes.pop(everything, late)) == 0


def test_a_lane_whose_messages_are_all_stale_does_not_use_up_the_boost_of_another():
    lanes = filled((1000, 1, 1, 1, 1), each=5)
    for now_ms in (0, BOOST_AFTER_MS):
        assert lane_of(lanes.pop(everything, now_ms)) == 0
    taken = lanes.pop(lambda place: lane_of(place) != 1, BOOST_AFTER_MS + 1)
    assert lane_of(taken) in (2, 3, 4)


def test_an_empty_queue_begins_a_new_round():
    lanes = Lanes((1, 1, 1, 1, 1))
    for _ in range(2):
        lanes.push(place_of(0, 1), 0, fresh=True)
        assert lane_of(lanes.pop(everything, 0)) == 0
        assert lanes.pop(everything, 0) is None


def test_any_number_finds_a_lane():
    lanes = Lanes(WEIGHTS)
    for offset, priority in enumerate((-7, 0, 4, 2**62)):
        lanes.push(place_of(0, offset), priority, fresh=True)
    assert [lanes.pop(everything, 0) for _ in range(4)] == [place_of(0, offset) for offset in range(4)]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.tuples(*[st.integers(1, 9)] * 5))
def test_shares_converge_to_any_weights_while_all_lanes_have_something(seed, weights):
    dice, lanes, taken, offset = Random(seed), Lanes(weights), Counter(), 0
    for _ in range(sum(weights) * 4):
        for lane in range(5):
            for _ in range(dice.randrange(1, 3)):
                offset += 1
                lanes.push(place_of(lane, offset), lane, fresh=True)
        place = lanes.pop(everything, 0)
        assert place is not None
        taken[place & 255] += 1
    assert [taken[lane] for lane in range(5)] == [4 * weight for weight in weights]
