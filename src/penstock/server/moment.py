"""A point of the log as people say it: `10m` ago, `2026-01-31T12:00`, or `0` for the beginning."""

from __future__ import annotations

import re
import time
from datetime import datetime

import typer

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_moment(text: str) -> str:
    """What `read` takes as an offset: `earliest`, or `at:<ms>`. Times without a zone are local."""
    if text in ("0", "earliest"):
        return "earliest"
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return f"at:{max(0, round((time.time() - float(found[1]) * _SECONDS[found[2]]) * 1000))}"
    try:
        return f"at:{max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))}"
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text!r} is not 30s, 10m, 2h, 7d, a time like 2026-01-31T12:00, or 0") from None
