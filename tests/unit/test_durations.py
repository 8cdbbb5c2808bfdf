"""Durations as text."""

from __future__ import annotations

import pytest

from penstock.durations import duration_text, parse_duration_ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (80, "80ms"), (1_000, "1s"), (2_500, "2.5s"), (9_960, "10s"), (45_400, "45s"), (59_999, "1m"),
     (90_000, "1m 30s"), (3_600_000, "1h"), (5_400_000, "1h 30m"), (3_601_000, "1h"), (97_200_000, "1d 3h"),
     (31 * 86_400_000, "31d")],
)  # fmt: skip
def test_text_has_the_two_largest_units(ms, text):
    assert duration_text(ms) == text


@pytest.mark.parametrize("text", ["1d", "1d3h", "1h30m", "45s", "80ms", "2.5s"])
def test_text_is_parsed_back(text):
    ms = parse_duration_ms(text)
    assert ms is not None and duration_text(ms).replace(" ", "") == text
