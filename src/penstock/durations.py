"""Durations as people write and read them: `250ms`, `30s`, `10m`, `2h`, `7d`, or joined as in `1h30m`."""

from __future__ import annotations

import re

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|[smhd])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_duration_ms(text: str) -> float | None:
    """Milliseconds; None if the text is not a duration. A number alone has no unit and is not one."""
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))


def duration_text(ms: float) -> str:
    """The duration in its two largest units: `2d 3h`, `1h 30m`, `45s`, `2.5s`, `80ms`."""
    if ms < 1_000:
        return f"{round(ms)}ms"
    if ms < 9_950:
        return f"{ms / 1000:.1f}s".replace(".0s", "s")
    left = round(ms / 1000)
    parts: list[tuple[int, str]] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, UNITS_MS[unit] // 1000)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count}{unit}" for count, unit in parts[:2] if count)
