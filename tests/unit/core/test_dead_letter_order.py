"""The container of dead letters against a sorted list: whatever is put and taken, the order is that of the deaths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.state.dead_letters import DeadLetter, DeadLetters, Position, count_letters, oldest_first, position_at

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 40), st.integers(0, 2)), max_size=400)


def letter(at: int) -> DeadLetter:
    return DeadLetter(1, at, at, at, "", "rejected", "")


@given(steps, st.integers(1, 9))
def test_the_order_is_that_of_the_deaths(story, ask_every):
    dead, model, now = DeadLetters(), {}, 0
    for number, (put, group, offset, later) in enumerate(story):
        now += later
        if put:
            dead.put(group, offset, letter(now))
            model[group, offset] = now
        else:
            # Often the oldest, as redrives and bounds do.
            if model and later == 0:
                _, offset, group = min((at, o, g) for (g, o), at in model.items())
            taken = dead.take(group, offset)
            assert (taken.dead_at if taken else None) == model.pop((group, offset), None)
        expected = sorted(Position(at, 0, o, g) for (g, o), at in model.items())
        assert [position for position, _ in oldest_first([dead])] == expected
        assert len(dead) == len(model) and dead.offsets() == {o for _, o in model}
        if number % ask_every == 0:
            assert dead.lowest() == min((o for _, o in model), default=None)
        for at, after in list(enumerate(expected))[::7]:
            assert [position for position, _ in oldest_first([dead], after)] == expected[at + 1 :]
            assert position_at([dead], at) == after


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9), st.integers(0, 2)), max_size=60))
def test_partitions_are_merged_and_can_be_gone_on_with_from_anywhere(placed):
    partitions = [DeadLetters() for _ in range(3)]
    for number, at, offset, group in placed:
        if partitions[number].get(group, offset) is None:
            partitions[number].put(group, offset, letter(at))
    everything = [position for position, _ in oldest_first(partitions)]
    assert everything == sorted(everything) and len(everything) == sum(map(len, partitions))
    for at, position in enumerate([*everything, Position(9, 0, 0, 0)]):
        assert [each for each, _ in oldest_first(partitions, position)] == everything[at + 1 :]
        assert position_at(partitions, at) == (position if at < len(everything) else None)
    for group in range(3):
        own = [position for position in everything if position.group == group]
        assert [each for each, _ in oldest_first(partitions, None, group)] == own
        assert [position_at(partitions, at, group) for at in range(len(own) + 1)] == [*own, None]
        for at in range(5):
            assert count_letters(partitions, group, at) == sum(position.dead_at <= at for position in own)
