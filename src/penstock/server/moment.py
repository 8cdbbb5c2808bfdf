"""Points in time as people say them: `10m`, back from now or ahead of it, or a time like `2026-01-31T12:00`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import typer

DUE: Any = typer.Option(
    metavar="TIME", help="Deliver no sooner than then: 10m, 2h, 7d from now, or a time like 2031-01-31T12:00."
)
"""An option that `parse_due` reads."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_moment(text: str) -> str:
    """What `read` takes as an offset: `earliest`, or `at:<ms>`. A span lies back; times without a zone are local."""
    if text in ("0", "earliest"):
        return "earliest"
    if (span_s := _span_s(text)) is not None:
        return f"at:{max(0, round((time.time() - span_s) * 1000))}"
    if (at_ms := _time_ms(text)) is not None:
        return f"at:{at_ms}"
    raise typer.BadParameter(f"{text!r} is not 30s, 10m, 2h, 7d, a time like 2026-01-31T12:00, or 0")


def parse_due(text: str) -> int:
    """When to deliver, in epoch milliseconds. A span lies ahead; times without a zone are local."""
    if (span_s := _span_s(text)) is not None:
        return round((time.time() + span_s) * 1000)
    if (at_ms := _time_ms(text)) is not None:
        return max(1, at_ms)  # 0 would be no time at all, and so now
    raise typer.BadParameter(f"{text!r} is not 30s, 10m, 2h, 7d from now, or a time like 2031-01-31T12:00")


def in_utc(ms: int) -> str:
    """For people. In UTC, as the server and everybody else who looks at it can agree on."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _span_s(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)([smhd])", text, re.ASCII)
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _time_ms(text: str) -> int | None:
    try:
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None
