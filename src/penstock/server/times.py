"""Parse points in time: a duration like `10m`, before or after now, or a time like `2026-01-31T12:00`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import typer

DUE: Any = typer.Option(
    metavar="TIME", help="Time of the delivery: 10m, 2h, 7d from now, or a time like 2031-01-31T12:00."
)
"""The option whose value `parse_deliver_at` parses."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_start_offset(text: str) -> str:
    """An offset for `read`: `earliest` or `at:<ms>`. A duration counts back from now; times without a zone are
    local."""
    if text in ("0", "earliest"):
        return "earliest"
    if (span_s := _span_s(text)) is not None:
        return f"at:{max(0, round((time.time() - span_s) * 1000))}"
    if (at_ms := _time_ms(text)) is not None:
        return f"at:{at_ms}"
    raise typer.BadParameter(f"{text!r} is not 30s, 10m, 2h, 7d, a time like 2026-01-31T12:00, or 0")


def parse_deliver_at(text: str) -> int:
    """A delivery time in epoch milliseconds. A duration counts from now; times without a zone are local."""
    if (span_s := _span_s(text)) is not None:
        return round((time.time() + span_s) * 1000)
    if (at_ms := _time_ms(text)) is not None:
        return max(1, at_ms)  # 0 would mean "now" to the server
    raise typer.BadParameter(f"{text!r} is not 30s, 10m, 2h, 7d from now, or a time like 2031-01-31T12:00")


def utc_text(ms: int) -> str:
    """The time in UTC, as text."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _span_s(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)([smhd])", text, re.ASCII)
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _time_ms(text: str) -> int | None:
    try:
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None
