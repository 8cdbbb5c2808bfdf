"""Agenda against a sorted list: due times from a millisecond to eighty years, in any order, as time passes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.agenda import FAR_SHIFT, NEAR_SHIFT, REFINE_ENTRIES, Agenda

YEAR_MS = 366 * 86_400_000
START_MS = 1_760_000_000_000

waits = st.one_of(
    st.integers(-5_000, 5_000),
    st.integers(0, 40).map(lambda n: n << NEAR_SHIFT),
    st.integers(0, 40).map(lambda n: (n << FAR_SHIFT) - n),
    st.integers(0, 80 * YEAR_MS),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), waits, st.integers(1, 5)),
        st.tuples(st.just("pass"), waits.map(abs), st.just(0)),
        st.tuples(st.just("peek"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """A list, sorted whenever somebody asks."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []

    def take_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        due = sorted(entry for entry in self.entries if entry[0] <= now_ms)
        self.entries = [entry for entry in self.entries if entry[0] > now_ms]
        return due

    def next_ms(self) -> int | None:
        return min(self.entries)[0] if self.entries else None


def drive(operations) -> None:
    subject, model, now_ms, offset = Agenda(), Model(), START_MS, 0
    for operation, wait, count in operations:
        if operation == "add":
            subject.add(now_ms + wait, offset, count, now_ms)
            model.entries.append((now_ms + wait, offset, count))
            offset += count
        elif operation == "pass":
            now_ms += wait
            assert subject.take_due(now_ms) == model.take_due(now_ms)
        else:
            assert subject.next_ms() == model.next_ms()
        assert subject.count == sum(count for _, _, count in model.entries)
        assert sorted(subject) == sorted(model.entries)
    assert subject.take_due(now_ms + 200 * YEAR_MS) == model.take_due(now_ms + 200 * YEAR_MS)
    assert subject.next_ms() is None
    assert subject.count == 0


@given(steps)
# Somebody asked for the next time when only a distant one was there, and then a nearer one was added.
@example([("add", 10 * YEAR_MS, 1), ("peek", 0, 0), ("add", 5 * YEAR_MS, 1), ("peek", 0, 0), ("pass", 6 * YEAR_MS, 0)])
def test_it_is_a_sorted_list(operations):
    drive(operations)


def test_a_crowded_far_stretch_is_prepared_in_steps_and_nothing_is_late():
    """More entries in one far stretch than are refined at once, in the worst order, asked for at every due time."""
    subject, model = Agenda(), Model()
    first_due = ((START_MS >> FAR_SHIFT) + 5) << FAR_SHIFT
    # The last entries of the array are the first to be refined, and are due last.
    dues = [first_due + row % 4_000_000 for row in range(0, 3 * REFINE_ENTRIES * 300, 300)]
    for offset, due in enumerate(dues):
        subject.add(due, offset, 1, START_MS)
        model.entries.append((due, offset, 1))
    taken = []
    now_ms = START_MS
    while (upcoming := subject.next_ms()) is not None:
        assert upcoming == dues[len(taken)], "a later entry hides an earlier one"
        # What a shard does: asleep until the next time, but other things may wake it before.
        taken += subject.take_due(now_ms + (upcoming - now_ms) // 2)
        now_ms = upcoming + 60_000
        taken += subject.take_due(now_ms)
        assert taken == sorted(model.entries)[: len(taken)]
        assert len(taken) == sum(due <= now_ms for due in dues[: len(taken) + 1])
    assert len(taken) == len(dues)


def test_a_far_stretch_is_brought_near_before_its_time_a_bounded_step_per_call():
    subject = Agenda()
    for offset in range(3 * REFINE_ENTRIES):
        subject.add(START_MS + (3 << FAR_SHIFT), offset, 1, START_MS)
    now_ms = START_MS + (2 << FAR_SHIFT)
    subject.add(now_ms + 1000, 10**6, 1, now_ms)
    assert subject.next_ms() == now_ms + 1000
    for steps_left in (2, 1, 0):
        assert subject.take_due(now_ms) == []
        assert len(subject._refining) == 3 * steps_left * REFINE_ENTRIES
    assert subject.count == 3 * REFINE_ENTRIES + 1
