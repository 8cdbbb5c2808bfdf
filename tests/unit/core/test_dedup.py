"""Exactly once into the queue: numbers are exact in any order, and forgetting follows the window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.core.state.client_ids import Place
from penstock.core.state.dedup import Dedup, SeqRun

publishes = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=20)


@given(publishes)
def test_sequence_numbers_are_deduplicated_in_any_order(batches):
    dedup, model, offset = Dedup(), {}, 0
    for seq, count in batches:
        rows = [number for number in range(seq, seq + count) if number not in model]
        runs = []
        for number in rows:
            runs.append(SeqRun(number, number + 1, 0, offset, 1000 + offset))
            model[number] = Place(0, offset, 1000 + offset)
            offset += 1
        if runs:
            dedup.remember_seqs("p", 1, 0, runs)
    entry = dedup.producers.get("p")
    accepted = set() if entry is None else {n for first, stop in entry.accepted for n in range(first, stop)}
    assert accepted == set(model)
    for number, place in model.items():
        assert entry.places(number, number + 1) == {number: place}


def test_only_the_latest_answers_are_kept_but_every_number_is():
    dedup = Dedup()
    for number in range(0, 400, 2):
        dedup.remember_seqs("p", 1, 0, [SeqRun(number, number + 1, 0, number, number << 80)])
    entry = dedup.producers["p"]
    assert len(entry.runs) == limits.PRODUCER_PUBLISHES_KEPT
    assert entry.places(396, 400) == {396: Place(0, 396, 396 << 80), 398: Place(0, 398, 398 << 80)}
    assert entry.places(0, 2) == {}
    assert 0 in entry.accepted
    assert 1 not in entry.accepted


def test_a_new_epoch_starts_empty():
    dedup = Dedup()
    dedup.remember_seqs("p", 1, 0, [SeqRun(0, 5, 0, 0, 0)])
    dedup.remember_seqs("p", 2, 0, [SeqRun(0, 1, 0, 5, 5)])
    assert dedup.producers["p"].epoch == 2
    assert dedup.producers["p"].accepted.flat() == [0, 1]


def test_forgetting_drops_what_is_older_and_nothing_else():
    dedup = Dedup()
    for at in range(10):
        dedup.remember_ids([b"%d" % at], at, Place(0, at, at))
        dedup.remember_seqs(f"p{at}", 1, at, [SeqRun(0, 1, 0, at, at)])
    dedup.remember_seqs("p0", 1, 10, [SeqRun(1, 2, 0, 10, 10)])  # used again, so young again
    now_ms = limits.DEDUP_WINDOW_MS + 5
    dedup.forget(now_ms, lambda place: place.offset == 3, 100)
    assert [at for at in range(10) if dedup.place_of(b"%d" % at)] == [3, 5, 6, 7, 8, 9]
    assert [at for at in range(10) if dedup.first_with(b"%d" % at, now_ms)] == [5, 6, 7, 8, 9]
    assert list(dedup.producers) == ["p5", "p6", "p7", "p8", "p9", "p0"]


def test_numbers_with_gaps_do_not_pile_up(monkeypatch):
    """A producer that counts by ten: the lowest gaps are closed, and a late number in them is refused."""
    monkeypatch.setattr(limits, "PRODUCER_RANGES_MAX", 100)
    dedup = Dedup()
    for number in range(0, 10_000, 10):
        dedup.remember_seqs("p", 1, 0, [SeqRun(number, number + 1, 0, number, number << 80)])
    entry = dedup.producers["p"]
    assert len(entry.accepted.starts) <= 100
    assert all(number in entry.accepted for number in range(0, 10_000, 10)), "what was stored is known for good"
    assert 5 in entry.accepted, "left out long ago: it is unknown whether it was stored, so it is not stored"
    assert 9_985 not in entry.accepted, "left out lately: welcome"
    assert entry.places(5, 6) == {}
