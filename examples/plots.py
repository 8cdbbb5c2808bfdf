"""Line charts over time as SVG, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 340, 64, 160, 40, 44
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed")


class Line(NamedTuple):
    name: str
    xs: Sequence[float]
    ys: Sequence[float]


def plot(path: Path, title: str, below: str, lines: Sequence[Line]) -> Path:
    """Writes the file and returns its path."""
    top = _round_up(max((y for line in lines for y in line.ys), default=1) or 1)
    end = max((x for line in lines for x in line.xs), default=1) or 1
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * x / end, TOP + high * (1 - y / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(below)}</text>',
    ]
    for tick in range(5):
        value = top * tick / 4
        _, y = at(0, value)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in (end * tick / 5 for tick in range(6)):
        place, _ = at(x, 0)
        parts.append(f'<text x="{place:.1f}" y="{TOP + high + 18}" text-anchor="middle">{x:.3g}</text>')
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in zip(line.xs, line.ys, strict=True)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in places]
        label = TOP + 16 + 20 * number
        parts.append(f'<text x="{LEFT + wide + 14}" y="{label}" fill="{colour}">{escape(line.name)}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
    return path


def _round_up(value: float) -> float:
    """Round up to a number that can be divided by four."""
    unit = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next(unit * each for each in (1, 2, 4, 6, 8, 10, 20) if unit * each >= value)
