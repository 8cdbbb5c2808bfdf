"""Names: what is one, what is not, and that text and value are the same thing."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.ids import (
    check_group,
    parse_offsets,
    parse_queue,
    parse_receipt_prefix,
    receipt_prefix,
    ulid_tails,
    ulid_text,
    ulid_texts,
    ulid_value,
)

ulids = st.integers(0, 2**128 - 1)


@given(ulids)
def test_a_ulid_survives_its_text(value):
    text = ulid_text(value)
    assert len(text) == 26
    assert ulid_value(text) == ulid_value(text.lower()) == value


@given(ulids, ulids)
def test_texts_sort_like_values(one, other):
    assert (ulid_text(one) < ulid_text(other)) == (one < other)


@given(st.integers(0, 2**127), st.integers(1, 50), st.booleans())
def test_texts_of_a_run_are_the_texts_of_its_ids(first, count, at_an_edge):
    if at_an_edge:
        first = (first >> 20 << 20) + (1 << 20) - 3  # the run crosses the end of a block with a common prefix
    texts = [ulid_text(first + row) for row in range(count)]
    assert ulid_texts(first, count) == texts
    shared, tails = ulid_tails(first, count)
    assert [shared + tail.decode() for tail in tails] == texts


@given(st.text(max_size=40))
@example("8ZZZZZZZZZZZZZZZZZZZZZZZZZ")  # 130 bits
@example("01JP0000000000000000000U00")  # U is not in the alphabet
@example("ſ1JP000000000000000000000000"[:26])  # its upper case is a letter of the alphabet
def test_what_is_not_a_ulid_is_the_callers_mistake(text):
    try:
        value = ulid_value(text)
    except InvalidRequest as error:
        assert error.details == {"field": "id"}
    else:
        assert ulid_text(value) == text.upper()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", "default/default/orders"),
        ("email/high", "email/default/high"),
        ("email/notifications/high", "email/notifications/high"),
        ("0", "default/default/0"),
        ("Shop_1.EU/eu-west.1/Orders_v2", "Shop_1.EU/eu-west.1/Orders_v2"),
        ("a" * 64, f"default/default/{'a' * 64}"),
    ],
)
def test_queue_paths(text, path):
    assert parse_queue(text) == path
    assert parse_queue(path) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "a/b/c/d",
        "-a",
        "_a",
        ".a",
        "..",
        "a/../b",
        "a:b",
        "a%2Fb",
        "a~b",
        "a" * 65,
        "ä",
        "a\n",
        "a b",
        "٣",
        None,
        7,
    ],
)
def test_what_is_not_a_queue_path_is_refused_by_the_rule(text):
    with pytest.raises(InvalidRequest, match="one to three segments") as caught:
        parse_queue(text)
    assert caught.value.details == {"field": "queue"}


@pytest.mark.parametrize("text", ["", "a b", ".a", "x" * 129, "é", "a\n"])
def test_what_is_not_a_group_name_is_refused(text):
    assert check_group("Billing.v2:eu_1-a") == "Billing.v2:eu_1-a"
    with pytest.raises(InvalidRequest, match="not a group name"):
        check_group(text)


@given(st.integers(0, 9999), st.integers(1, 2**60), st.integers(0, 2**64 - 1), st.integers(0, 2**53))
def test_a_receipt_says_what_it_was_made_of(shard, lease, nonce, offset):
    prefix, _, tail = f"{receipt_prefix(shard, lease, nonce)}{offset}".rpartition(".")
    assert parse_receipt_prefix(prefix) == (shard, lease, nonce)
    assert parse_offsets(tail) == (offset, offset)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("0", (0, 0)), ("12-99", (12, 99)), ("7-7", (7, 7)), ("9-8", None), ("", None), ("-", None), ("-1", None),
        ("1-", None), ("1-2-3", None), ("1 ", None), ("+1", None), ("0x1", None), ("٣", None), ("1_0", None),
        ("²", None), ("9" * 41, None), ("a", None),
    ],
)  # fmt: skip
def test_offsets_of_a_receipt(text, offsets):
    assert parse_offsets(text) == offsets


@pytest.mark.parametrize("prefix", ["", "r1", "r2.0.1.a", "r1.0.1", "r1.0.1.a.b", "r1.x.1.a", "r1.0.x.a", "r1.0.1.g",
                                    "r1.0.1." + "a" * 90])  # fmt: skip
def test_what_was_never_a_receipt_of_ours(prefix):
    assert parse_receipt_prefix(prefix) is None
