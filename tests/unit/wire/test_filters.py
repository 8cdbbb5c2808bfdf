"""The filter language: its meaning, and its errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire.filters import FIELDS, parse_filter


class Letter:
    FIELDS = {
        "reason": "max_retries", "error": "Read TIMEOUT after 3 s", "group": "default", "consumer": "w-1",
        "attempts": 4, "redriven": 0, "age": 2 * 3_600_000, "id": "01J", "key": None,
    }  # fmt: skip

    def field(self, name):
        return self.FIELDS[name]

    def header(self, name):
        return {"tenant": "acme", "x trace": "7"}.get(name)

    def payload(self):
        return {"order": {"total": 120.5, "lines": [{"sku": "a"}, {"sku": "b"}]}, "paid": True, "note": None, "n": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("   ", True),
        ('reason = "max_retries"', True),
        ('reason = "rejected"', False),
        ('reason != "rejected"', True),
        ('error ~ "timeout"', True),
        ('error ~ "TiMe"', True),
        ('error !~ "refused"', True),
        ("attempts = 4 and attempts>3 and attempts >= 4 and attempts<5 and attempts <= 4", True),
        ("attempts = 4.0", True),
        ("redriven > 0", False),
        ("age > 1h", True),
        ("age > 119m and age <= 7200s and age < 1d and age >= 7200000ms", True),
        ("age > 2h", False),
        ("key = null", True),
        ("key != null", False),
        ('key ~ "x"', False),
        ('key !~ "x"', True),
        ('header.tenant = "acme"', True),
        ('header."x trace" = "7"', True),
        ("header.absent = null", True),
        ("payload.order.total > 100", True),
        ("payload.order.total > 1.205e2", False),
        ('payload.order.lines[1].sku = "b"', True),
        ("payload.order.lines[2].sku = null", True),
        ("payload.order[0] = null", True),
        ("payload.order.lines.sku = null", True),
        ("payload.paid = true", True),
        ("payload.paid = 1", False),
        ("payload.n = true", False),
        ("payload.note = null", True),
        ('payload.n > "a"', False),
        ('not payload.n > "a"', True),
        ("payload != null", True),
        ('reason = "x" or attempts = 4 and key = null', True),
        ('(reason = "x" or attempts = 4) and key != null', False),
        ('not reason = "x" and not (attempts = 1 or attempts = 2)', True),
        ('error = "Read \\u0054IMEOUT after 3 s"', True),
    ],
)
def test_what_it_means(text, expected):
    assert parse_filter(text).matches(Letter()) is expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("colour = 1", 0),
        ("reason", 6),
        ("reason is 3", 7),
        ("reason =", 8),
        ("reason = oops", 9),
        ('reason = "a" "b"', 13),
        ('reason = "a" or', 15),
        ('(reason = "a"', 13),
        (")", 0),
        ("age > 5", 6),
        ("age > 5y", 6),
        ("attempts > 5m", 11),
        ("attempts > null", 11),
        ("attempts ~ 5", 11),
        ("header = 1", 7),
        ("payload[x] = 1", 8),
        ("payload[-1] = 1", 8),
        ("payload[1 = 1", 10),
        ('reason = "no end', 9),
        ('reason = "\\q"', 9),
        ("reason = 'x'", 9),
        ("reason = 5five", 9),
        ("not " * 40 + "key = null", 4 * (limits.FILTER_DEPTH_MAX + 1)),
        ("(" * 40 + "key = null" + ")" * 40, limits.FILTER_DEPTH_MAX + 1),
        ("payload" + ".a" * 40 + " = 1", 7 + 2 * (limits.FILTER_DEPTH_MAX + 1)),
        (" " * (limits.FILTER_CHARS_MAX + 1), limits.FILTER_CHARS_MAX),
    ],
)
def test_mistakes_are_shown_where_they_are(text, position):
    with pytest.raises(InvalidRequest) as caught:
        parse_filter(text)
    assert caught.value.details == {"field": "filter", "position": position}


values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8), st.integers(-10, 10), st.booleans(), st.none()
)


def written(value) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "null" if value is None else str(value).lower()


@st.composite
def trees(draw, depth=3):
    """A filter as text, and what it must say about `Letter`."""
    if depth == 0 or draw(st.booleans()):
        field, value = draw(st.sampled_from(sorted(FIELDS - {"age"}))), draw(values)
        truth = Letter.FIELDS[field]
        same = type(truth) is type(value) and truth == value
        return (
            (f"{field} = {written(value)}", same) if draw(st.booleans()) else (f"{field} != {written(value)}", not same)
        )
    left, left_is = draw(trees(depth - 1))
    kind = draw(st.sampled_from(["and", "or", "not"]))
    if kind == "not":
        return f"not ({left})", not left_is
    right, right_is = draw(trees(depth - 1))
    return f"({left}) {kind} ({right})", (left_is and right_is) if kind == "and" else (left_is or right_is)


@given(trees())
def test_what_is_put_together_means_what_its_parts_mean(tree):
    text, expected = tree
    assert parse_filter(text).matches(Letter()) is expected
