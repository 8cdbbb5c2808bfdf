"""The JSON of delivered messages: however they are written, one by one or by the run, it is the same text."""

from __future__ import annotations

import json
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.broker.types import DeliveredRun
from penstock.transports.http.render import GAP_BYTES_MAX, GAP_MAX, _alike, delivered_messages

leased_messages = partial(delivered_messages, leased=True)
read_messages = partial(delivered_messages, leased=False)

TEXTS = st.text(max_size=8).map(str.encode)
COLUMNS = {
    layout.KEY: TEXTS,
    layout.PRIORITY: st.integers(-(2**63), 2**63 - 1),
    layout.HEADERS: st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2).map(
        lambda headers: json.dumps(headers).encode() if headers else b""
    ),
    layout.TENANT: TEXTS,
}


@st.composite
def batches(draw) -> Batch:
    count = draw(st.integers(2, 4))
    rows = st.lists(st.integers(0, 1), min_size=count, max_size=count)
    kinds = draw(rows)
    payloads = [b'{"n":%d}' % row if kind == layout.KIND_JSON else b"\xff%d" % row for row, kind in enumerate(kinds)]
    columns = {
        column: draw(st.lists(values, min_size=count, max_size=count))
        for column, values in COLUMNS.items()
        if draw(st.booleans())
    }
    return Batch.open(build(payloads, kinds=kinds, columns=columns, checked=draw(st.booleans())))


@given(batch=batches(), receipt=st.sampled_from([None, "r1.0.7.00ff."]), deadline=st.sampled_from([None, 99]))
def test_one_by_one_and_by_the_run_are_the_same_text(batch, receipt, deadline):
    def runs(width: int) -> list[DeliveredRun]:
        return [
            DeliveredRun(
                "default/default/q", 3, 40 + row, width, (9 << 80) + row, 1_700_000_000_000,
                batch.run(row, row + width), 2, receipt, deadline,
            )
            for row in range(0, batch.count, width)
        ]  # fmt: skip

    for render in (leased_messages, read_messages):
        one_by_one = b",".join(render([run])[1:-1] for run in runs(1))
        assert b"[%b]" % one_by_one == render(runs(batch.count)) == render(runs(1))


@given(
    count=st.integers(1, 40),
    columns=st.sets(st.sampled_from(sorted(COLUMNS))),
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 39)), min_size=1, max_size=40, unique=True),
    ordered=st.booleans(),
    first_id=st.sampled_from([0, 1010]),
)
def test_what_a_lease_has_left_out_of_a_batch_is_left_out(count, columns, rows, ordered, first_id):
    """Runs of two frames with gaps of all sizes between them, in order or not."""
    values = {
        column: [b'{"n":"%d"}' % row for row in range(count)] if column > layout.PRIORITY else list(range(count))
        for column in columns
    }
    frames = [
        Batch.open(build([b'"%d-%d"' % (frame, row) for row in range(count)], columns=values, checked=True))
        for frame in range(2)
    ]
    runs: list[DeliveredRun] = []
    for frame, row in sorted(rows) if ordered else rows:
        if row < count:
            offset, batch = 100 * frame + row, frames[frame].run(row, row + 1)
            last = runs[-1] if runs else None
            if last is not None and last.offset + last.count == offset and ordered:
                runs.pop()
                row, offset = row - last.count, last.offset
                batch = frames[frame].run(row, row + last.count + 1)
            runs.append(
                DeliveredRun(
                    "default/default/q", 0, offset, batch.count, (9 << 80) + first_id + offset, 1, batch, 1, "r1.0.7.0."
                )
            )
    for render in (leased_messages, read_messages):
        assert render(runs) == b"[%b]" % b",".join(render([run])[1:-1] for run in runs)


def test_a_frame_that_was_published_twice_has_two_ids_for_each_row():
    batch = Batch.open(build([b"%d" % row for row in range(10)], checked=True))
    runs = [
        DeliveredRun("q", 0, offset, 2, (9 << 80) + offset, 1, batch.run(row, row + 2), 1, "r1.0.7.0.")
        for offset, row in ((0, 0), (15, 5))
    ]
    assert leased_messages(runs) == b"[%b]" % b",".join(leased_messages([run])[1:-1] for run in runs)


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"receipt": "r1.0.8.0."}, {"partition": 1}, {"queue": "p"}])
def test_runs_of_one_frame_with_different_fields_are_separate(changes):
    batch = Batch.open(build([b"%d" % row for row in range(10)], checked=True))
    first = DeliveredRun("q", 0, 0, 3, 9 << 80, 1, batch.run(0, 3), 1, "r1.0.7.0.")
    then = DeliveredRun("q", 0, 4, 3, (9 << 80) + 4, 1, batch.run(4, 7), 1, "r1.0.7.0.")
    runs = [first, msgspec.structs.replace(then, **changes)]
    assert leased_messages(runs) == b"[%b]" % b",".join(leased_messages([run])[1:-1] for run in runs)


@pytest.mark.parametrize(("gap", "size"), [(GAP_MAX, 1), (GAP_MAX + 1, 1), (2, GAP_BYTES_MAX // 2), (2, GAP_BYTES_MAX)])
def test_runs_close_together_are_read_in_one_go(gap, size):
    batch = Batch.open(build([b"1" * size] * (gap + 2)))
    runs = [
        DeliveredRun("q", 0, row, 1, (9 << 80) + row, 1, batch.run(row, row + 1), 1, "r1.0.7.0.")
        for row in (0, gap + 1)
    ]
    assert len(_alike(runs)[0]) == (1 if gap <= GAP_MAX and gap * size <= GAP_BYTES_MAX else 2)
    assert leased_messages(runs) == b"[%b]" % b",".join(leased_messages([run])[1:-1] for run in runs)


@pytest.mark.parametrize("render", [leased_messages, read_messages])
def test_nothing_is_an_empty_list(render):
    assert render([]) == b"[]"
