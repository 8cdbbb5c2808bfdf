"""The container of dead letters against a sorted list: whatever is put and taken, the order is that of the deaths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.state import letter_chunks, sorted_pairs
from penstock.core.state.dead_letters import DeadLetters, Position, count_letters, oldest_first, position_at
from penstock.core.state.letter_chunks import DeadLetter, LetterChunk

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 40), st.integers(0, 2)), max_size=400)


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """So that a few letters fill chunks, split them and join them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_pairs, "CHUNK_PAIRS", 8)
        patch.setattr(letter_chunks, "TEXT_BYTES", 60)
        yield


def letter(at: int, error: str = "") -> DeadLetter:
    return DeadLetter(1 + at, at, at + 1, at, "", "rejected", error, at - 1, at * 2, at * 3 - 1)


def loaded(dead: DeadLetters) -> DeadLetters:
    """The same letters, written to bytes and read."""
    twin = DeadLetters()
    for group in dead.groups():
        chunks = [LetterChunk.load(len(chunk), len(chunk.texts), chunk.encode()) for chunk in dead.order(group).chunks]
        twin.load(group, chunks)
    return twin


@given(steps, st.integers(1, 9))
def test_the_order_is_that_of_the_deaths(story, ask_every):
    dead, model, now = DeadLetters(), {}, 0
    for number, (put, group, offset, later) in enumerate(story):
        now += later
        if put:
            dead.put(group, offset, letter(now, "x" * offset))
            model[group, offset] = now
        else:
            # Often the oldest, as redrives and bounds do.
            if model and later == 0:
                _, offset, group = min((at, o, g) for (g, o), at in model.items())
            taken = dead.take(group, offset)
            assert (taken.dead_at if taken else None) == model.pop((group, offset), None)
        expected = sorted(Position(at, 0, o, g) for (g, o), at in model.items())
        assert [position for position, _ in oldest_first([dead])] == expected
        assert len(dead) == len(model) and [dead.offsets_of(g) for g in range(4)] == [
            sorted(o for g, o in model if g == group) for group in range(4)
        ]
        inside = sorted(o for _, o in model if 7 <= o < 23)
        assert sorted({o for first, stop in dead.runs_in(7, 23) for o in range(first, stop)}) == sorted(set(inside))
        if number % ask_every == 0:
            assert dead.lowest() == min((o for _, o in model), default=None)
        for at, after in list(enumerate(expected))[::7]:
            assert [position for position, _ in oldest_first([dead], after)] == expected[at + 1 :]
            assert position_at([dead], at) == after
        if number % 20 == 0:
            dead = loaded(dead)
    everything = {(g, o): letter(at, "x" * o) for (g, o), at in model.items()}
    assert dict(dead.items()) == everything
    assert all(dead.get(*place) == expected for place, expected in everything.items())


def test_texts_of_letters_that_were_taken_are_left_out():
    dead = DeadLetters()
    for offset in range(8):
        dead.put(0, offset, letter(offset, f"{offset}" * 7))
    for offset in range(7):
        dead.take(0, offset)
    (chunk,) = dead.order(0).chunks
    assert len(chunk.texts) < 30
    assert dead.get(0, 7) == letter(7, "7777777")


def test_a_text_is_found_across_the_border_of_two_others():
    chunk = LetterChunk()
    crossing = "ab\x04\x00\x00\x00ab"  # contains the length and the beginning of a text
    for row, error in enumerate([crossing, "abab", "ab", "ä€", ""]):
        chunk.insert_letter(row, row, letter(row, error))
    assert [chunk.letter(row).error for row in range(5)] == [crossing, "abab", "ab", "ä€", ""]


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


def test_chunks_with_long_texts_are_not_joined():
    """A chunk costs what its texts cost: a take may rewrite all of them."""
    dead = DeadLetters()
    for offset in range(60):
        dead.put(0, offset, letter(offset, f"{offset:020}"))
    for offset in range(60):
        if offset % 4:
            dead.take(0, offset)
        assert all(len(chunk.texts) <= letter_chunks.TEXT_BYTES + 30 for chunk in dead.order(0).chunks)
    assert [found.error for _, found in oldest_first([dead])] == [f"{offset:020}" for offset in range(0, 60, 4)]
