"""Outgoing messages: options become columns, values become frames, and what is wrong is refused before it is sent."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.batch import Batch, layout
from penstock.batch.check import check_client_frame
from penstock.client.publish.frames import PLAIN, frame_of_rows, frames, make_options, row
from penstock.errors import InvalidRequest, TooLarge

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def opened(frame):
    return check_client_frame(Batch.open(frame.data))


@given(st.lists(JSON_VALUES | st.binary(), min_size=1, max_size=20))
def test_values_come_out_of_the_frame_as_they_went_in(values):
    (frame,) = frames(values)
    together = opened(frame)
    one_by_one = opened(frame_of_rows([row(value, PLAIN) for value in values]))
    assert frame.rows == together.count == len(values)
    for batch in (together, one_by_one):
        for at, value in enumerate(values):
            assert batch.is_json(at) == (not isinstance(value, bytes))
            decoded = msgspec.json.decode(batch.payload(at)) if batch.is_json(at) else batch.payload(at)
            assert decoded == value


def test_options_become_columns_and_unused_ones_cost_nothing():
    options = make_options(
        key="k", delay=1.5, ttl=2, priority=-3, id="mine", headers={"a": "b"}, max_retries=0
    )  # fmt: skip
    batch = opened(frame_of_rows([row(1, options), row(2, PLAIN)]))
    assert batch.integers(layout.PRIORITY).tolist() == [-3, 0]
    assert batch.integers(layout.HAS_PRIORITY).tolist() == [1, 0]
    assert batch.integers(layout.DELAY_MS).tolist() == [1500, 0]
    assert batch.integers(layout.TTL_MS).tolist() == [2000, 0]
    assert batch.integers(layout.MAX_RETRIES).tolist() == [0, -1]
    assert batch.strings(layout.KEY) == [b"k", b""] and batch.strings(layout.ID) == [b"mine", b""]
    assert batch.strings(layout.HEADERS) == [b'{"a":"b"}', b""]
    assert not batch.has(layout.DELIVER_AT_MS)
    assert opened(frame_of_rows([row(1, make_options())])).columns == 0


def test_a_moment_is_an_aware_datetime_or_epoch_seconds():
    moment = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    for given_as in (moment, moment.timestamp()):
        assert make_options(deliver_at=given_as).deliver_at_ms == 1893553445678
    with pytest.raises(InvalidRequest, match="time zone"):
        make_options(deliver_at=datetime(2030, 1, 1))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"delay": 1, "deliver_at": 1}, "deliver_at"),
        ({"ttl": 0}, "ttl"),
        ({"priority": 2**63}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"max_retries": -1}, "max_retries"),
        ({"key": "ä" * 200}, "key"),
        ({"key": b"k"}, "key"),
        ({"key": ""}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"id": "x" * 129}, "id"),
        ({"headers": {"a": 1}}, "headers"),
        ({"headers": {str(n): "" for n in range(65)}}, "headers"),
        ({"headers": {"a": "x" * limits.HEADERS_BYTES_MAX}}, "headers"),
    ],
)
def test_a_wrong_option_is_named(options, field):
    with pytest.raises(InvalidRequest) as caught:
        make_options(**options)
    assert caught.value.details["field"] == field and field in str(caught.value)


def test_a_value_that_is_not_json_is_a_type_error_and_one_that_is_too_large_is_said_to_be():
    with pytest.raises(TypeError):
        row(object(), PLAIN)
    for make in (lambda v: row(v, PLAIN), lambda v: list(frames([v])), lambda v: list(frames([v, {}]))):
        with pytest.raises(TooLarge):
            make(b"x" * (limits.PAYLOAD_BYTES_MAX + 1))


def test_many_values_are_cut_at_the_limits_and_keep_their_columns():
    count = limits.BATCH_MESSAGES_MAX + 1
    made = list(frames(range(count), keys=(f"k{n}" for n in range(count)), priorities=range(count)))
    assert [frame.rows for frame in made] == [limits.BATCH_MESSAGES_MAX, 1]
    last = opened(made[1])
    assert (last.payloads(), last.strings(layout.KEY)) == ([b"10000"], [b"k10000"])
    assert last.integers(layout.PRIORITY).tolist() == [10000]


@given(
    st.lists(st.sampled_from([0, 10, 500_000, limits.PAYLOAD_BYTES_MAX]), min_size=1, max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_no_frame_is_over_the_limit_and_nothing_is_lost(sizes, with_keys, mixed):
    values = [b"%c" % (65 + at % 26) * size for at, size in enumerate(sizes)]
    if mixed:
        values[0] = 7
    keys = ["k" * 200] * len(values) if with_keys else None
    made = list(frames(values, make_options(headers={"h": "v" * 1000}), keys=keys, ids=[None] * len(values)))
    assert all(len(frame.data) <= limits.BATCH_BYTES_MAX for frame in made)
    payloads = [payload for frame in made for payload in opened(frame).payloads()]
    assert payloads == [b"7" if value == 7 else value for value in values]


def test_frames_are_made_while_the_values_are_read():
    read = []

    def values():
        for number in range(3 * limits.BATCH_MESSAGES_MAX):
            read.append(number)
            yield number

    made = frames(values())
    next(made)
    assert len(read) == limits.BATCH_MESSAGES_MAX


@pytest.mark.parametrize("sides", [{"keys": ["a"]}, {"keys": ["a", "b", "c"]}, {"ids": []}, {"priorities": [1, 2, 3]}])
def test_sides_are_as_long_as_the_values(sides):
    with pytest.raises(InvalidRequest, match="than values"):
        list(frames([1, 2], **sides))


def test_no_values_are_no_frames():
    assert list(frames([])) == []


@dataclasses.dataclass
class Reading:
    celsius: float | None


@pytest.mark.parametrize(
    "value", [float("nan"), [1, float("inf")], {"a": {"b": (2.0, float("-inf"))}}, Reading(float("nan"))], ids=repr
)
def test_numbers_that_json_does_not_have_are_refused_and_not_changed(value):
    with pytest.raises(InvalidRequest, match="NaN") as refused:
        row(value, PLAIN)
    assert refused.value.details == {"field": "value"}
    with pytest.raises(InvalidRequest, match="NaN"):
        list(frames([1, value, None], PLAIN))


def test_nothing_is_something_that_json_has():
    assert row({"a": None, "b": "null", "c": 1.5}, PLAIN).payload == b'{"a":null,"b":"null","c":1.5}'
    assert row(Reading(None), PLAIN).payload == b'{"celsius":null}'


def test_text_that_is_no_text_is_refused():
    with pytest.raises(InvalidRequest, match="Unicode"):
        row({"name": "\ud800"}, PLAIN)
