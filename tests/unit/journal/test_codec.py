"""Records <-> bytes, for every kind there is; what is unknown or damaged is refused, never skipped."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, build, layout
from penstock.core import records
from penstock.core.config import QueueConfig, parse_config
from penstock.journal.codec import PREFIX, UnknownRecord, decode, encode

BATCH = Batch.open(build([b"1", b'"two"'], columns={layout.KEY: [b"a", b""], layout.DELAY_MS: [0, 5]}))
RANGES = [3, 9, 12, 13]

SPEC = records.ScheduleSpec(
    "a/b/c",
    "0 3 * * *",
    records.Template(b"\0\xff", False, "k", 5, {"h": "v"}, 1, 2, "acme"),
    "Asia/Tokyo",
    "all",
    1,
    2,
)
HOOK = records.WebhookSpec("a/b/c", "crm", "https://example.com/in?x=1", [5, 0], "cloudevents-binary", 1, 2, "what")
EXAMPLES: dict[type[records.Fact], list[records.Record]] = {
    records.Opened: [records.Opened(1, 2, "01JP0000000000000000000000")],
    records.QueueConfigured: [
        records.QueueConfigured(1, 2, "a/b/c", QueueConfig()),
        records.QueueConfigured(
            1, 2, "a/b/c", parse_config({"partitions": 3, "backoff": {"kind": "fixed"}, "retention": {"mode": "keep"}})
        ),
    ],
    records.QueueDeleted: [records.QueueDeleted(1, 2)],
    records.QueuePurged: [records.QueuePurged(1, 2, [3, 0])],
    records.GroupCreated: [records.GroupCreated(1, 2, 0, "default", [0, 7])],
    records.GroupMoved: [records.GroupMoved(1, 2, 0, [0, -1])],
    records.GroupDeleted: [records.GroupDeleted(1, 2, 0, "default")],
    records.MemberJoined: [records.MemberJoined(1, 2, 3, "ada", 4, 30_000, 500, [0, 2], ["ada", "bob"])],
    records.MembersLeft: [
        records.MembersLeft(1, 2, 3, ["ada"], 5, "left", [0], ["bob"]),
        records.MembersLeft(1, 2, 3, ["ada", "bob"], 5, "session_expired", [0, 1], ["", ""]),
    ],
    records.HandedOver: [records.HandedOver(1, 2, 3, [0, 7])],
    records.EncryptedPublished: [
        records.EncryptedPublished(1, 2, 3, 4, 5, BATCH, path="a/b/c", seal=b"\x01" * 57),
        records.EncryptedPublished(1, 2, 3, 4, 5, BATCH, "producer-ä", 2**53, [7, 8], "a/b/c", b"\x01" * 73),
    ],
    records.Published: [
        records.Published(1, 2, 3, 4, 2**127 + 5, BATCH),
        records.Published(1, 2, 3, 4, 0, BATCH, "producer-ä", 2**53, [7, 8, 10, 11]),
    ],
    records.Transacted: [
        records.Transacted(1, bytes(16), []),
        records.Transacted(1, bytes(16), [records.TransactedRun(0, 1, 2, 3, 4, bytes(16), [0, 2])]),
    ],
    records.Leased: [
        records.Leased(1, 2, 3, 4, 5, 2**64 - 1, 30_000, [0, 10, 1, 12, 1, 3]),
        records.Leased(1, 2, 3, 4, 5, 0, 30_000, [0, 1, 1], "worker-7", True),
    ],
    records.Extended: [records.Extended(1, 5, RANGES, 60_000), records.Extended(1, 5, RANGES, 60_000, 2, 3, 4)],
    records.Acked: [records.Acked(1, 2, 3, 4, 5, RANGES)],
    records.Retried: [
        records.Retried(1, 2, 3, 4, 5, RANGES, 99, "nack", "it broke: ☠"),
        records.Retried(1, 2, 3, 4, 5, RANGES, 99, "lease_expired"),
        records.Retried(1, 2, 3, 4, 5, RANGES, 99, "session_expired"),
    ],
    records.Released: [records.Released(1, 2, 3, 4, 5, RANGES)],
    records.Released: [records.Released(1, 2, 3, 4, 5, RANGES)],
    records.DeadLettered: [
        records.DeadLettered(1, 2, 3, 4, 5, RANGES, "max_retries", "no", True),
        records.DeadLettered(1, 2, 3, 4, 5, RANGES, "rejected", "", False),
    ],
    records.DeadLettersRemoved: [
        records.DeadLettersRemoved(1, 2, 3, 4, RANGES, "deleted"),
        records.DeadLettersRemoved(1, 2, 3, 4, RANGES, "copied", "redrive-1"),
    ],
    records.RedriveStarted: [
        records.RedriveStarted(1, 2, "r", filter=""),
        records.RedriveStarted(1, 2, "r", "default", None, [bytes(16)], "a/b/c", 5, -7, 100),
    ],
    records.Redriven: [records.Redriven(1, 2, 3, 4, RANGES, 2**50, "r")],
    records.RedriveEnded: [
        records.RedriveEnded(1, 2, "r", "finished"),
        records.RedriveEnded(1, 2, "r", "failed", 3, "no"),
    ],
    records.Expired: [records.Expired(1, 2, 3, RANGES)],
    records.Cancelled: [records.Cancelled(1, 2, 3, RANGES), records.Cancelled(1, 2, 3, RANGES, [b"mine", b"\xff"])],
    records.Rescheduled: [records.Rescheduled(1, 2, 3, RANGES, 2**50)],
    records.Trimmed: [records.Trimmed(1, 2, 3, 4)],
    records.OffsetsKept: [records.OffsetsKept(1, 2, "ada", [0, 5]), records.OffsetsKept(1, 2, "ada", [])],
    records.HoldSet: [
        records.HoldSet(1, "lake", 2**33, 7, [2, 0, 5]),
        records.HoldSet(1, "lake", 2**33),
    ],
    records.HoldEnded: [records.HoldEnded(1, "lake", "max_bytes")],
    records.ScheduleSet: [records.ScheduleSet(1, "nightly", SPEC, 2), records.ScheduleSet(1, "nightly", SPEC)],
    records.SchedulePaused: [records.SchedulePaused(1, "nightly", True)],
    records.ScheduleRemoved: [records.ScheduleRemoved(1, "nightly")],
    records.ScheduleFired: [records.ScheduleFired(1, "nightly", [2, 3], 4, 1), records.ScheduleFired(1, "n", [])],
    records.WebhookSet: [
        records.WebhookSet(1, "01JP", HOOK, b"\0sealed"),
        records.WebhookSet(1, "01JP", records.WebhookSpec("a/b/c", "default", "https://example.com", [])),
    ],
    records.WebhookRotated: [records.WebhookRotated(1, "01JP", b"\xff", 2**50)],
    records.WebhookState: [
        records.WebhookState(1, "01JP", "paused"),
        records.WebhookState(1, "01JP", "disabled", "the endpoint answered 410"),
    ],
    records.WebhookRemoved: [records.WebhookRemoved(1, "01JP")],
    records.KeyCreated: [
        records.KeyCreated(1, "k1", "billing", ["publish:shop/*"], bytes(32)),
        records.KeyCreated(1, "k2", "", ["peek:*", "metrics:*"], b"\xff" * 32, 2**50, "1000/m", "k1"),
    ],
    records.KeyRotated: [records.KeyRotated(1, "k1", bytes(32), 2**50)],
    records.KeyRevoked: [records.KeyRevoked(1, "k1")],
    records.UserSet: [records.UserSet(1, "ada@example.com", "viewer", "$argon2id$", "k1")],
    records.UserRemoved: [records.UserRemoved(1, "ada@example.com")],
    records.ScheduleRefused: [records.ScheduleRefused(1, "nightly", "queue_full", "no room", 2)],
}
ALL = [example for examples in EXAMPLES.values() for example in examples]


def as_bytes(record: records.Record) -> bytes:
    head, attached = encode(record)
    return head + (attached or b"")


def plain(record: records.Record) -> object:
    """A record as values that can be compared; the batch as its bytes."""
    return type(record), {
        name: bytes(value.frame) if isinstance(value, Batch) else value
        for name, value in ((name, getattr(record, name)) for name in record.__struct_fields__)
    }


def test_every_kind_has_an_example():
    assert set(EXAMPLES) == set(records.KINDS)


@given(st.lists(st.sampled_from(ALL), max_size=12))
def test_what_goes_in_comes_out_alone_and_in_company(chosen):
    pieces = [as_bytes(record) for record in chosen]
    body = memoryview(b"".join(pieces))
    found = list(decode(body))
    assert [position for position, _ in found] == [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    assert [plain(record) for _, record in found] == [plain(record) for record in chosen]


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_every_single_bit_of_a_record_is_covered(record):
    data = as_bytes(record)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UnknownRecord):
            list(decode(memoryview(damaged)))


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_every_cut_is_refused(record):
    data = as_bytes(record)
    for size in range(1, len(data)):
        with pytest.raises(UnknownRecord):
            list(decode(memoryview(data)[:size]))


def test_a_kind_from_the_future_is_refused():
    meta = msgspec.msgpack.encode({"type": "teleported", "at": 1, "queue": 2})
    with pytest.raises(UnknownRecord, match="teleported"):
        list(decode(memoryview(prefixed(meta))))


def test_a_field_from_the_future_is_stepped_over():
    meta = msgspec.msgpack.encode({"type": "acked", "at": 1, "queue": 2, "partition": 3, "group": 4, "lease": 5,
                                   "ranges": [0, 1], "mood": "good"})  # fmt: skip
    ((_, record),) = decode(memoryview(prefixed(meta)))
    assert record == records.Acked(1, 2, 3, 4, 5, [0, 1])


@pytest.mark.parametrize("missing", ["at", "queue", "ranges"])
def test_a_field_that_is_missing_is_refused(missing):
    values = {"type": "acked", "at": 1, "queue": 2, "partition": 3, "group": 4, "lease": 5, "ranges": [0, 1]}
    del values[missing]
    with pytest.raises(UnknownRecord, match=missing):
        list(decode(memoryview(prefixed(msgspec.msgpack.encode(values)))))


def test_a_published_record_whose_attachment_is_no_batch_is_refused():
    head, attached = encode(EXAMPLES[records.Published][0])
    assert attached is not None
    meta = head[PREFIX.size :]
    with pytest.raises(UnknownRecord):
        list(decode(memoryview(prefixed(meta, attached[:-1]))))


def prefixed(meta: bytes, attached: bytes = b"") -> bytes:
    import google_crc32c

    return PREFIX.pack(len(meta), len(attached), google_crc32c.value(meta + attached)) + meta + attached
