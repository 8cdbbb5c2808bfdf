"""Parse durations like `10m`, and points in time: a duration before or after now, or a time like `2026-01-31T12:00`."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime
from typing import Any

import typer

from penstock.durations import parse_duration_ms

FORMS = "30s, 10m, 2h, 7d"


def duration_option(help: str, *, least_s: float = 0.0, most_s: float = math.inf, default: str | None = None) -> Any:
    """An option whose value is a duration, in seconds as a float. `default` is how the help shows the default value."""

    def parse(value: str | float) -> float:
        seconds = parse_seconds(str(value))
        if not least_s <= seconds <= most_s:
            bound = f"less than {least_s:g}" if seconds < least_s else f"more than {most_s:g}"
            raise typer.BadParameter(f"{value} is {bound} seconds")
        return seconds

    shown = "" if default is None else f"  \\[default: {default}]"
    return typer.Option(parser=parse, metavar="DURATION", help=f"{help} Like 30s or 10m.{shown}", show_default=False)


DUE: Any = typer.Option(
    metavar="TIME", help=f"Time of the delivery: {FORMS} from now, or a time like 2031-01-31T12:00."
)
"""The option whose value `parse_deliver_at` parses."""


def parse_seconds(text: str) -> float:
    """A duration, or a number of seconds."""
    if re.fullmatch(r"\d{1,15}(\.\d{1,15})?", text, re.ASCII):
        return float(text)
    if (ms := parse_duration_ms(text)) is not None:
        return ms / 1000
    raise typer.BadParameter(f"{text!r} is not a duration like {FORMS} or 1h30m, nor a number of seconds")


def parse_start_offset(text: str) -> str:
    """An offset for `read`: `earliest` or `at:<ms>`. A duration counts back from now; times without a zone are
    local."""
    if text in ("0", "earliest"):
        return "earliest"
    if (span_ms := parse_duration_ms(text)) is not None:
        return f"at:{max(0, round(time.time() * 1000 - span_ms))}"
    if (at_ms := _time_ms(text)) is not None:
        return f"at:{at_ms}"
    raise typer.BadParameter(f"{text!r} is not earliest, {FORMS} ago, or a time like 2026-01-31T12:00")


def parse_deliver_at(text: str) -> int:
    """A delivery time in epoch milliseconds. A duration counts from now; times without a zone are local."""
    if (span_ms := parse_duration_ms(text)) is not None:
        return round(time.time() * 1000 + span_ms)
    if (at_ms := _time_ms(text)) is not None:
        return max(1, at_ms)  # 0 would mean "now" to the server
    raise typer.BadParameter(f"{text!r} is not {FORMS} from now, or a time like 2031-01-31T12:00")


def utc_text(ms: int) -> str:
    """The time in UTC, as text."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _time_ms(text: str) -> int | None:
    try:
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None
