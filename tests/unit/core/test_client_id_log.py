"""The log of client ids and its index answer like a dictionary: growth, forgetting, chunks, wrapped numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.state import client_ids
from penstock.core.state.client_ids import KEPT, NUMBERS, ClientIds, IdChunk, Place
from penstock.core.state.stored_chunk import StoredChunk

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(-1, 40), min_size=1, max_size=12, unique=True)),
        st.tuples(st.just("free"), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.integers(1, 60)),
        st.tuples(st.just("forget"), st.integers(1, 30)),
        st.tuples(st.just("store"), st.integers(1, 9)),
        st.tuples(st.just("reload"), st.none()),
    ),
    max_size=60,
)


def reloaded(ids: ClientIds) -> ClientIds:
    chunks = []
    for chunk in ids.chunks:
        entries, runs = len(chunk), len(chunk.starts)
        twin = IdChunk.load(chunk.first, chunk.base, entries, runs, chunk.encode(entries, runs))
        twin.stored = chunk.stored
        chunks.append(twin)
    again = ClientIds()
    again.load(ids.first, chunks)
    return again


@given(steps, st.sampled_from([0, NUMBERS - 20, 3 * NUMBERS + 5]), st.sets(st.integers(0, 200)))
@settings(max_examples=300, deadline=None)
def test_log_of_client_ids_answers_like_a_dictionary(story, first, unfinished):
    client_ids.CHUNK_IDS, client_ids.BUCKET_IDS, client_ids.SWEEP_EVERY = 10, 4, 2
    try:
        check(story, first, unfinished)
    finally:
        client_ids.CHUNK_IDS, client_ids.BUCKET_IDS, client_ids.SWEEP_EVERY = 16_384, 48, 8


def check(story, first, unfinished) -> None:
    ids, now, offset = ClientIds(), 1_000, 0
    ids.load(first, [])
    model: dict[bytes, tuple[int, Place]] = {}
    for what, value in story:
        if what == "add":
            own = [b"" if number < 0 else b"id-%d" % number for number in value]
            ids.add(own, now, Place(3, offset, 10 * offset))
            model.update({each: (now, Place(3, offset + at, 10 * offset + at)) for at, each in enumerate(own) if each})
            offset += len(own)
        elif what == "free":
            ids.free(b"id-%d" % value, now)
            model.pop(b"id-%d" % value, None)
        elif what == "wait":
            now += value
        elif what == "forget":
            ids.forget_before(now - 50, now, lambda place: place.offset in unfinished, value)
        elif what == "store":
            for chunk in ids.closed_chunks(value):
                chunk.stored = StoredChunk(1, 0, 0)
        else:
            rows = list(ids.rows())
            ids = reloaded(ids)
            assert list(ids.rows()) == rows
        for own, (at, place) in model.items():
            found = ids.get(own)
            if at >= now - 50:
                assert found == (at, place)
            elif place.offset in unfinished:
                assert found in ((at, place), (-1, place))
            else:
                assert found in (None, (at, place), (-1, place))
        for number in range(41):
            assert b"id-%d" % number in model or ids.get(b"id-%d" % number) is None


def test_everything_is_forgotten_and_the_index_shrinks():
    ids = ClientIds()
    for number in range(5_000):
        ids.add([b"%d" % number], number, Place(0, number, number))
    buckets = len(ids._buckets)
    assert buckets > 50
    ids.forget_before(4_990, 5_000, lambda _: False, 100)
    assert len(ids) == 4_900, "a bounded step"
    while len(ids) > 10:
        ids.forget_before(4_990, 5_000, lambda _: False, 100)
    assert [number for number in range(5_000) if ids.get(b"%d" % number)] == list(range(4_990, 5_000))
    assert len(ids._buckets) < 5 and sum(map(len, ids._buckets)) < 8 * 100


def test_two_ids_with_the_same_first_bytes_are_told_apart(monkeypatch):
    monkeypatch.setattr(client_ids, "digest_of", lambda own: b"same" + own.rjust(12))
    ids = ClientIds()
    ids.add([b"1", b"2", b"3"], 5, Place(0, 0, 0))
    assert [ids.get(own)[1].offset for own in (b"1", b"2", b"3")] == [0, 1, 2]
    assert ids.get(b"4") is None


def test_handle_beyond_the_window_is_marked():
    ids = ClientIds()
    ids.add([b"far"], 5, Place(7, 1, 99))
    ids.forget_before(6, 10, lambda _: True, 10)
    assert ids.get(b"far") == (-1, Place(7, 1, 99))
    assert [mark for _, _, mark, _, _ in ids.rows()] == [7 | KEPT]


def test_every_one_of_many_ids_is_exact_and_no_other_is_known():
    """Chunks are closed and buckets split many times; half of the ids come one by one."""
    ids, count = ClientIds(), 5 * client_ids.CHUNK_IDS
    for number in range(count // 2):
        ids.add([b"id-%d" % number], number, Place(1, number, 3 * number))
    for first in range(count // 2, count, 64):
        ids.add([b"id-%d" % number for number in range(first, first + 64)], first, Place(2, first, 3 * first))
    for log in (ids, reloaded(ids)):
        assert len(log.chunks) >= 5 and len(log._buckets) > 1_000
        for number in range(count):
            single = number < count // 2
            first = number if single else number - number % 64
            place = Place(1 if single else 2, number, 3 * first + number - first)
            assert log.get(b"id-%d" % number) == (first, place)
            assert log.get(b"di-%d" % number) is None
