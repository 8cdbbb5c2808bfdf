"""Frames and records as Arrow, and rows of Arrow as frames: without Spark."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import msgspec
import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from penstock.batch import Batch, build, layout  # noqa: E402
from penstock.ids import parse_queue, ulid_text, ulid_texts  # noqa: E402
from penstock.journal.codec import strip  # noqa: E402
from penstock.pipeline import columns, event_rows, outgoing  # noqa: E402
from penstock.pipeline.options import PipelineError  # noqa: E402
from penstock.pipeline.ulids import ulid_column  # noqa: E402
from penstock.runtime.events import NOT_EVENTS, kind_of  # noqa: E402
from penstock.wire.delivery import Run  # noqa: E402
from penstock.wire.events import BulkRecord, Names  # noqa: E402
from tests.unit.journal.test_codec import EXAMPLES, as_bytes  # noqa: E402

QUEUE = parse_queue("orders")
UTC_TIME = pa.timestamp("us", tz="UTC")
MESSAGES = pa.schema(
    {
        "queue": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "id": pa.string(), "key": pa.string(),
        "priority": pa.int64(), "headers": pa.map_(pa.string(), pa.string()), "payload": pa.binary(),
        "published_at": UTC_TIME,
    }
)  # fmt: skip
FIRST_ID = (1_760_000_000_000 << 80) + 2**64 - 3
"""Three ids before the lower half runs over."""


@given(st.lists(st.tuples(st.integers(0, 2**128 - 10_000), st.integers(1, 40)), min_size=1, max_size=5))
def test_ids_by_the_column_are_ids_one_by_one(runs):
    expected = [text for first, count in runs for text in ulid_texts(first, count)]
    assert ulid_column([first for first, _ in runs], [count for _, count in runs]).to_pylist() == expected


def test_runs_of_all_shapes_make_one_batch():
    frames = [
        build([b"a", b"bb"], kind=layout.KIND_BYTES),
        build([b"", b"1"], columns={layout.KEY: [b"k", b""], layout.PRIORITY: [5, -5]}),
        build([b"2"], columns={layout.HEADERS: [b'{"h":"\xc3\xbc"}']}),
    ]
    batches = [Batch.open(frame) for frame in frames]
    # A run that was cut out of a frame keeps the offsets that it had there.
    batches[0] = Batch.open(build([b"zz", b"a", b"bb"], kind=layout.KIND_BYTES)).run(1, 3)
    runs = [
        Run(QUEUE, 3, offset, batch.count, ulid_text(FIRST_ID + offset), 1_760_000_000_000 + offset, len(batch.frame))
        for offset, batch in zip((10, 20, 30), batches, strict=True)
    ]
    rows = columns.messages(runs, batches, MESSAGES).to_pylist()
    assert [row["payload"] for row in rows] == [b"a", b"bb", b"", b"1", b"2"]
    assert [row["offset"] for row in rows] == [10, 11, 20, 21, 30]
    assert [row["id"] for row in rows] == [ulid_text(FIRST_ID + row["offset"]) for row in rows]
    assert [row["key"] for row in rows] == [None, None, "k", None, None]
    assert [row["priority"] for row in rows] == [0, 0, 5, -5, 0]
    assert [dict(row["headers"]) for row in rows] == [{}, {}, {}, {}, {"h": "ü"}]
    assert {(row["queue"], row["partition"]) for row in rows} == {(QUEUE, 3)}
    assert rows[-1]["published_at"] == datetime.fromtimestamp(1_760_000_000.030, UTC)
    only = pa.schema([MESSAGES.field("payload")])
    assert columns.messages(runs[:1], batches[:1], only).to_pylist() == [{"payload": b"a"}, {"payload": b"bb"}]


def test_what_does_not_parse_is_null():
    kind = pa.struct({"n": pa.int64()})
    values = columns.parsed([b'{"n": 1}', b"no", b"[1]", b'{"n": "text"}', b"{}"], kind).to_pylist()
    assert values == [{"n": 1}, None, None, None, {"n": None}]


# -- events -------------------------------------------------------------------------------------------------------

EVENTS = pa.schema(
    {
        "kind": pa.string(), "at": UTC_TIME, "queue": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
        "id": pa.string(), "group": pa.string(), "attempt": pa.int32(), "due_at": UTC_TIME, "until_offset": pa.int64(),
    }
)  # fmt: skip


def record(about=b"", **fact):
    return BulkRecord(1, 0, memoryview(msgspec.msgpack.encode(fact)), memoryview(about))


def test_a_record_becomes_a_row_per_message():
    delays = struct.pack("<3q", 0, 500, 0)
    header = layout.HEADER.pack(layout.MAGIC, layout.VERSION, 0, 3, layout.DELAY_MS, 999)
    told = [
        record(header + delays, type="published", at=1000, queue=1, partition=0, offset=7, id=FIRST_ID.to_bytes(16)),
        record(type="leased", at=2000, queue=1, partition=0, group=0, lease=1, lease_ms=9, runs=[7, 2, 1, 9, 1, 4]),
        record(type="retried", at=3000, queue=1, partition=0, group=0, lease=1, ranges=[7, 8, 9, 10], due=4000),
        record(type="queue_purged", at=5000, queue=1, ends=[10, 20]),
    ]
    rows = event_rows.rows_of(told, {"1": Names(QUEUE, {"0": "default"})}, EVENTS).to_pylist()
    assert [(row["kind"], row["offset"], row["attempt"]) for row in rows] == [
        ("published", 7, None), ("published", 8, None), ("published", 9, None),
        ("leased", 7, 1), ("leased", 8, 1), ("leased", 9, 4),
        ("retried", 7, None), ("retried", 9, None), ("purged", None, None), ("purged", None, None),
    ]  # fmt: skip
    assert [row["id"] for row in rows[:4]] == [*ulid_texts(FIRST_ID, 3), None]
    due = [None if row["due_at"] is None else row["due_at"].timestamp() for row in rows]
    assert due == [None, 1.5, None, None, None, None, 4, 4, None, None]
    assert [(row["partition"], row["until_offset"]) for row in rows[-2:]] == [(0, 10), (1, 20)]
    assert {row["queue"] for row in rows} == {QUEUE}
    assert rows[3]["group"] == "default"


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_kind_of_record_is_no_event_or_becomes_rows(kind):
    for example in EXAMPLES[kind]:
        (stripped,) = strip(memoryview(as_bytes(example)))
        if kind_of(stripped) not in NOT_EVENTS:
            found = [BulkRecord(1, 0, memoryview(stripped.meta), memoryview(stripped.about))]
            assert event_rows.rows_of(found, {"2": Names(QUEUE, {})}, EVENTS).num_rows > 0
            # An event concerns messages or a queue. Secrets and URLs are in records that concern neither.
            assert "queue" in example.__struct_fields__


def test_no_records_are_no_batch():
    assert event_rows.rows_of([], {}, EVENTS) is None


# -- rows that go out ---------------------------------------------------------------------------------------------


def out(**given):
    return list(outgoing.frames(iter([pa.RecordBatch.from_pydict(given)]), QUEUE))


def test_columns_of_rows_are_columns_of_the_frame():
    headers = pa.array([[("h", "v")], None], pa.map_(pa.string(), pa.string()))
    (sent,) = out(payload=[b"a", b"bc"], key=["k", None], priority=[None, 7], headers=headers)
    batch = Batch.open(sent.frame)
    assert (batch.payloads(), batch.strings(layout.KEY)) == ([b"a", b"bc"], [b"k", b""])
    assert list(batch.integers(layout.PRIORITY)) == [0, 7]
    assert batch.strings(layout.HEADERS) == [b'{"h":"v"}', b""]
    assert not batch.has(layout.DELAY_MS)


def test_text_that_is_json_is_published_as_json():
    (sent,) = out(payload=['{"a":1}', "hello", "12"])
    batch = Batch.open(sent.frame)
    assert list(batch.kinds()) == [layout.KIND_JSON, layout.KIND_BYTES, layout.KIND_JSON]
    assert batch.payloads() == [b'{"a":1}', b"hello", b"12"]


def test_slices_of_arrow_are_cut_right():
    whole = pa.RecordBatch.from_pydict({"payload": [b"%d" % number for number in range(100)]})
    (sent,) = outgoing.frames(iter([whole.slice(40, 3)]), QUEUE)
    assert Batch.open(sent.frame).payloads() == [b"40", b"41", b"42"]


def test_frames_stay_within_bounds():
    sent = out(payload=[b"x"] * 25_000)
    assert [each.rows for each in sent] == [10_000, 10_000, 5_000]
    large = out(payload=[b"x" * 1_000_000] * 9)
    assert [each.rows for each in large] == [4, 4, 1]


def test_rows_go_to_the_queue_they_name():
    sent = out(payload=[b"1", b"2", b"3"], queue=["a", None, "a"])
    assert [(each.queue, Batch.open(each.frame).payloads()) for each in sent] == [
        ("default/default/a", [b"1", b"3"]), (QUEUE, [b"2"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"payload": [b"a", None]}, "has no payload"),
        ({"payload": [b"a"], "key": ["k" * 257]}, "over the limit of 256"),
        ({"payload": [b"a"], "delay_ms": [-1]}, "delay_ms"),
        ({"payload": [b"a" * (2**20 + 1)]}, "payload bytes"),
        ({"payload": [b"a"], "queue": ["No!"]}, "is not a queue path"),
    ],
)
def test_what_the_broker_would_refuse_is_refused_before_it_is_staged(rows, words):
    with pytest.raises(PipelineError, match=words):
        out(**rows)
