"""The frame on paper (docs/formats/batch.md) and the frame in code are the same frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import BadBatch, Batch, build, layout
from penstock.batch.check import check_client_frame, check_payload_sizes
from penstock.errors import InvalidRequest, TooLarge

DOCUMENTED = bytes.fromhex(
    "5042010102000000000001002e0000000000000000000000010000006b0000000001000000050000003122616222"
)


def test_the_documented_example_is_what_build_writes():
    assert build([b"1", b'"ab"'], columns={layout.KEY: [b"", b"k"]}) == DOCUMENTED


def test_the_documented_example_reads_back():
    batch = Batch.open(DOCUMENTED)
    assert (batch.count, batch.payloads(), batch.strings(layout.KEY)) == (2, [b"1", b'"ab"'], [b"", b"k"])
    assert batch.is_json(0) and not batch.has(layout.PRIORITY) and batch.string(layout.ID, 1) == b""


@st.composite
def batches(draw):
    count = draw(st.integers(1, 20))
    several = lambda each: st.lists(each, min_size=count, max_size=count)  # noqa: E731
    i64, text = st.integers(-(2**63), 2**63 - 1), st.binary(max_size=12)
    columns = {}
    for column, each in {
        layout.PRIORITY: i64, layout.DELAY_MS: i64, layout.TTL_MS: i64, layout.MAX_RETRIES: st.integers(-1, 2**31 - 1),
        layout.KEY: text, layout.ID: text, layout.HEADERS: text, layout.TENANT: text, 1 << 7: i64, 1 << 31: text,
    }.items():  # fmt: skip
        if draw(st.booleans()):
            columns[column] = draw(several(each))
    kinds = draw(st.none() | several(st.integers(0, 1)))
    return draw(several(st.binary(max_size=30))), kinds, columns


def test_two_runs_and_what_lies_between():
    batch = Batch.open(build([b"%d" % row * (row + 1) for row in range(10)]))
    first, later = batch.run(1, 3), batch.run(5, 7)
    assert first.gap_to(later) == (2, 4 + 5)
    assert first.up_to(later).payloads() == batch.payloads()[1:7]
    assert first.gap_to(batch.run(3, 4)) == (0, 0) and first.up_to(batch.run(3, 4)).count == 3
    assert first.up_to(first) is first
    for other in (batch.run(2, 4), batch.run(0, 1), first, Batch.open(bytes(bytearray(batch.frame))).run(5, 7)):
        assert first.gap_to(other) is None  # it shares a message, comes before, or is of another frame


@given(batches(), st.data())
def test_what_goes_in_comes_out_whole_cut_and_picked(content, data):
    payloads, kinds, columns = content
    batch = Batch.open(build(payloads, kinds=kinds, columns=columns))
    first = data.draw(st.integers(0, len(payloads) - 1))
    stop = data.draw(st.integers(first + 1, len(payloads)))
    inner = data.draw(st.integers(0, stop - first - 1))
    rows = data.draw(st.lists(st.integers(0, len(payloads) - 1), min_size=1, max_size=10))
    cut = batch.run(first, stop)
    for view, chosen in (
        (batch, list(range(len(payloads)))),
        (cut, list(range(first, stop))),
        (cut.run(inner, cut.count), list(range(first + inner, stop))),
        (cut.pick([0]), [first]),
        (batch.pick(rows), rows),
        *zip(batch.split([rows, [first], rows[::-1]]), [rows, [first], rows[::-1]], strict=True),
        (cut.split([range(cut.count)])[0], list(range(first, stop))),
    ):
        assert view.payloads() == [payloads[row] for row in chosen]
        assert [view.payload(i) for i in range(view.count)] == view.payloads()
        assert list(view.kinds()) == [1 if kinds is None else kinds[row] for row in chosen]
        assert view.payload_bytes_max() == max(len(payloads[row]) for row in chosen)
        for column, values in columns.items():
            wide = view.strings(column) if column >= 1 << 16 else list(view.integers(column))
            assert list(wide) == [values[row] for row in chosen]


@given(batches())
def test_a_frame_that_is_known_is_read_like_one_that_is_looked_through(content):
    payloads, kinds, columns = content
    frame = build(payloads, kinds=kinds, columns=columns)
    known, looked_through = Batch.open(frame, known=True), Batch.open(frame)
    assert (known.count, known.flags, known.columns) == (
        looked_through.count, looked_through.flags, looked_through.columns,
    )  # fmt: skip
    assert known.frame is frame and known.payloads() == payloads
    assert known.pick(range(known.count)).frame == frame


@pytest.mark.parametrize("cut", range(len(DOCUMENTED)))
def test_what_is_called_known_and_ends_too_early_is_refused_all_the_same(cut):
    with pytest.raises(BadBatch):
        Batch.open(DOCUMENTED[:cut], known=True)
    # Also if it says that it should end there.
    magic, version, flags, count, present, _ = layout.HEADER.unpack_from(DOCUMENTED)
    columns_end = len(DOCUMENTED) - sum(map(len, Batch.open(DOCUMENTED).payloads()))
    if layout.HEADER.size <= cut < columns_end:
        with pytest.raises(BadBatch):
            Batch.open(layout.HEADER.pack(magic, version, flags, count, present, cut) + DOCUMENTED[16:cut], known=True)


@given(batches(), st.data())
def test_any_damage_is_refused_or_still_a_frame_never_a_crash(content, data):
    payloads, kinds, columns = content
    frame = bytearray(build(payloads, kinds=kinds, columns=columns))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        batch = check_client_frame(Batch.open(bytes(frame)))
    except InvalidRequest:
        return
    assert len(batch.payloads()) == batch.count


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_frame(noise):
    for candidate in (noise, layout.HEADER.pack(b"PB", 1, 1, 2, 1 << 16, 16 + len(noise)) + noise):
        try:
            batch = Batch.open(candidate)
        except BadBatch:
            continue
        assert len(batch.payloads()) == batch.count >= 1


@pytest.mark.parametrize("cut", range(len(DOCUMENTED)))
def test_a_frame_cut_short_is_refused(cut):
    with pytest.raises(BadBatch):
        Batch.open(DOCUMENTED[:cut])


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({layout.DELAY_MS: [0, -1]}, "delay_ms"),
        ({layout.TTL_MS: [0, 2**62]}, "ttl_ms"),
        ({layout.MAX_RETRIES: [0, -2]}, "max_retries"),
        ({layout.KEY: [b"", b"\xff"]}, "key"),
        ({layout.ID: [b"", b"x" * 129]}, "id"),
        ({layout.HEADERS: [b"", b'{"a": 1}']}, "headers"),
        ({layout.HEADERS: [b"", b"[]"]}, "headers"),
    ],
)
def test_the_server_names_the_message_and_the_field_it_refuses(columns, field):
    with pytest.raises(InvalidRequest) as caught:
        check_client_frame(Batch.open(build([b"1", b"2"], columns=columns)))
    assert caught.value.details == {"row": 1, "field": field}


def test_the_server_refuses_its_own_flag_and_unknown_columns_from_a_client():
    with pytest.raises(BadBatch, match="checked"):
        check_client_frame(Batch.open(build([b"1"], checked=True)))
    with pytest.raises(BadBatch, match="column 20"):
        check_client_frame(Batch.open(build([b"1"], columns={1 << 20: [b"x"]})))


def test_an_oversize_payload_is_named():
    with pytest.raises(TooLarge, match="message 1 has 9 payload bytes"):
        check_payload_sizes(Batch.open(build([b"1", b"123456789"])), 8)


@pytest.mark.parametrize("columns", [{}, {layout.PRIORITY: [7, 8, 9]}, {layout.DELAY_MS: [1, 2, 3]}])
def test_fixed_column_is_added_or_replaced(columns):
    texts = {layout.KEY: [b"a", b"", b"ccc"], layout.MAX_RETRIES: [0, -1, 5]}
    whole = Batch.open(build([b"1", b'"two"', b"\xff"], kinds=[1, 1, 0], columns={**texts, **columns}))
    for batch, rows in ((whole, slice(0, 3)), (whole.run(1, 3), slice(1, 3))):
        changed = batch.with_integers(layout.PRIORITY, [2, -(2**62), 2**62][rows])
        again = Batch.open(changed.frame)
        assert again.integers(layout.PRIORITY).tolist() == [2, -(2**62), 2**62][rows]
        assert again.payloads() == batch.payloads() and list(again.kinds()) == list(batch.kinds())
        assert again.strings(layout.KEY) == texts[layout.KEY][rows]
        assert again.integers(layout.MAX_RETRIES).tolist() == texts[layout.MAX_RETRIES][rows]
        assert again.has(layout.DELAY_MS) == batch.has(layout.DELAY_MS)
