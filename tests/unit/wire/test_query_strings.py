"""The query string of a request: read as the standard library would, or refused."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.wire.messages import PublishEventQuery, PublishFrameQuery, QueueQuery, ReadQuery
from penstock.wire.parse import _pairs, parse_query


@given(st.text(st.sampled_from("ab=&;?é %+2"), max_size=30).map(str.encode))
@example(b"a=1&" * 31 + b"a=1")
@example(b"a=1&" * 32 + b"a=1")
@example(b"a=%ff")
@example(b"\xff=1")
def test_as_the_standard_library_reads_it(query):
    try:
        expected = parse_qsl(
            query.decode(), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=32
        )
    except ValueError:
        with pytest.raises(InvalidRequest, match="percent-encoded UTF-8"):
            _pairs(query)
    else:
        assert list(_pairs(query)) == expected


def test_what_is_escaped_is_read():
    query = f"queue=orders&producer={quote('a b+c/é')}&epoch=1&seq=2".encode()
    assert parse_query(PublishFrameQuery, query).producer == "a b+c/é"


def test_a_name_that_is_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="queue is given twice"):
        parse_query(PublishFrameQuery, b"queue=a&queue=b")


@pytest.mark.parametrize("query", [b"queue=a&until=null", b"queue=a&max=NULL", b"queue=a&wait_ms=1&until=Null"])
def test_null_is_not_a_value_of_a_query(query):
    """The schema has no null there: a parameter that is left out stands for it."""
    with pytest.raises(InvalidRequest) as refused:
        parse_query(ReadQuery, query)
    assert refused.value.details["field"] in ("until", "max")


def test_text_may_be_the_word_null():
    assert parse_query(ReadQuery, b"queue=null&client_id=null").client_id == "null"


@pytest.mark.parametrize("value", ["0", "1", "True", "FALSE", "no", "", "null"])
def test_truth_values_are_written_as_in_json(value):
    with pytest.raises(InvalidRequest) as refused:
        parse_query(PublishEventQuery, f"queue=a&dedup={value}".encode())
    assert refused.value.details == {"field": "dedup"}
    assert parse_query(PublishEventQuery, b"queue=a&dedup=false").dedup is False
    assert parse_query(PublishEventQuery, b"queue=a&dedup=true").dedup is True


def test_path_parameters_are_not_given_again():
    assert parse_query(QueueQuery, b"", {"queue": "a"}).queue == "a"
    with pytest.raises(InvalidRequest):
        parse_query(QueueQuery, b"queue=b", {"queue": "a"})
