"""A heap is exact; its spine is the true top of every partition; nothing stale stays forever."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.order.fifo import place_of
from penstock.core.order.heap import CHUNK, Heap, SortedPlaces

LOWEST, HIGHEST = -(2**63), 2**63 - 1
priorities = st.one_of(st.integers(-3, 3), st.sampled_from([LOWEST, HIGHEST]), st.integers(LOWEST, HIGHEST))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), priorities, st.integers(0, 3)),
        st.tuples(st.just("batch"), st.lists(priorities, min_size=1, max_size=30), st.integers(0, 3)),
        st.tuples(st.just("pop"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("sweep"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


def everything(_place: int) -> bool:
    return True


@given(st.sampled_from(["min", "max"]), st.integers(1, 9), steps)
def test_pops_have_rank_one_and_the_spine_is_the_true_top_of_every_partition(mode, top_k, actions):
    """Against a sorted list. Every candidate is among the F best of its partition; F = ceil(K / P), P = 4."""
    heap, model, offset = Heap(mode, top_k, 4), [], 0
    fan_out = -(-top_k // 4)
    flip = 0 if mode == "min" else -1
    for what, value, partition in actions:
        if what == "push":
            offset += 1
            heap.push(place_of(partition, offset), value, fresh=True)
            model.append((value ^ flip, place_of(partition, offset)))
        elif what == "batch":
            places = [place_of(partition, offset + 1 + row) for row in range(len(value))]
            offset += len(value)
            heap.push_all(places, value)
            model += [(priority ^ flip, place) for priority, place in zip(value, places, strict=True)]
        elif what == "pop":
            for _ in range(value):
                model.sort()
                expected = model.pop(0)[1] if model else None
                assert heap.pop(everything) == expected
        else:
            heap.sweep(everything)
        model.sort()
        assert len(heap) == len(model)
        tops = [[entry for entry in model if entry[1] & 255 == number][:fan_out] for number in range(4)]
        expected = sorted(entry for top in tops for entry in top)
        assert heap._spine == expected, "the spine holds the F best of each partition, no others"
    assert list(heap) == [place for _, place in model]


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**32))
def test_one_view_of_the_spine_is_enough_to_take_the_best_f(top_k, partitions, seed):
    """Its first F are the F best of all partitions, so F takers that share one view of it take those, in any order.

    What is further down is among the F best of its partition, and of the whole among the best P x F as long as no
    partition has more than F of them.
    """
    dice, heap = Random(seed), Heap("min", top_k, partitions)
    fan_out, model = -(-top_k // partitions), []
    for offset in range(60):
        entry = (dice.randrange(50), place_of(dice.randrange(partitions), offset))
        heap.push(entry[1], entry[0], fresh=True)
        model.append(entry)
        if dice.random() < 0.3:
            assert heap.pop(everything) == min(model)[1]
            model.remove(min(model))
        assert heap._spine[:fan_out] == sorted(model)[:fan_out]
        assert len(heap._spine) <= partitions * fan_out
        best = sorted(model)[: partitions * fan_out]
        if all(sum(place & 255 == number for _, place in best) <= fan_out for number in range(partitions)):
            assert heap._spine == best


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 1, 10 * CHUNK])
@pytest.mark.parametrize("spread", [1, 3, 2**60])
def test_a_loaded_heap_is_the_one_that_was_pushed_one_by_one(count, spread):
    dice = Random(count * spread)
    places = array("q", [place_of(0, offset) for offset in range(count)])
    values = array("q", [dice.randrange(spread) for _ in range(count)])
    loaded, pushed = Heap("max", 5, 2), Heap("max", 5, 2)
    loaded.load(places, values)
    for place, value in zip(places, values, strict=True):
        pushed.push(place, value, fresh=True)
    assert list(loaded) == list(pushed)
    assert loaded._spine == pushed._spine
    assert [loaded.pop(everything) for _ in range(count)] == [pushed.pop(everything) for _ in range(count)]


def test_ties_go_by_place_also_between_batches():
    heap = Heap("max", 1, 2)
    for offset in (5, 1, 9, 3):
        heap.push(place_of(offset % 2, offset), HIGHEST, fresh=True)
    assert [heap.pop(everything) for _ in range(4)] == [place_of(1, offset) for offset in (1, 3, 5, 9)]


def test_what_is_stale_is_swept_out_though_it_never_comes_up():
    heap = Heap("min", 1, 1)
    alive = set(range(0, 20 * CHUNK, 37))
    heap.push_all([place_of(0, offset) for offset in range(20 * CHUNK)], list(range(20 * CHUNK)))

    def valid(place: int) -> bool:
        return place >> 8 in alive

    for _ in range(60):
        heap.sweep(valid)
    assert len(heap) <= len(alive) + 1, "but for the best, which is looked at when it is popped"
    assert len(heap._rest[0]._chunks) <= 4, "chunks that shrank were joined"
    assert [heap.pop(valid) for _ in alive] == [place_of(0, offset) for offset in sorted(alive)]


def test_what_is_there_twice_is_swept_out_as_well():
    places = SortedPlaces()
    for _ in range(3):
        for offset in range(100):
            places.add(7, offset)
    places.sweep(everything)
    assert list(places) == [(7, offset) for offset in range(100)]
