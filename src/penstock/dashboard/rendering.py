"""Templates, and the filters that turn numbers and times into text.

Every value is escaped when it is inserted: payloads, keys, headers, names and errors are text, never markup.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader
from jinja2.ext import Extension
from markupsafe import Markup

from penstock._version import __version__
from penstock.dashboard.assets import asset_url, assets

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_MOST_COMPACT = 10_000
SPARK_WIDTH, SPARK_HEIGHT = 96, 20
_POSTED_FORM = re.compile(r'<form\b[^>]*\bmethod="post"[^>]*>')


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def duration(ms: float | None) -> str:
    """A length of time in its largest unit: `3 min`."""
    if ms is None:
        return "–"
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms / size:.0f} {unit}" if ms >= 10 * size or ms % size == 0 else f"{ms / size:.1f} {unit}"
    return f"{ms:.0f} ms"


def fine(ms: float) -> str:
    """A short length of time with its fractions: `0.42 ms`."""
    return f"{ms:.2f} ms" if ms < 10 else duration(ms)


def relative(at_ms: int, now: int | None = None) -> str:
    ahead = at_ms - (now_ms() if now is None else now)
    if abs(ahead) < 1_000:
        return "now"
    size, unit = next((size, unit) for size, unit in _UNITS if abs(ahead) >= size)
    text = f"{abs(ahead) // size} {unit}"
    return f"in {text}" if ahead > 0 else f"{text} ago"


def absolute(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"


def day(at_ms: int) -> str:
    return absolute(at_ms)[:10]


def clock(at_ms: int, reference_ms: int) -> str:
    """The time of the day, with the date if it is another day than that of the reference."""
    text = absolute(at_ms)
    return text[11:23] if text[:10] == day(reference_ms) else text[:23]


def when(at_ms: int | None) -> Markup:
    """A time relative to now, with the absolute time as its title."""
    if at_ms is None:
        return Markup('<span class="muted">never</span>')
    return Markup('<time data-ms="{}" title="{}">{}</time>').format(at_ms, absolute(at_ms), relative(at_ms))


def number(value: float | None) -> str:
    """A count with separators; large ones are shortened."""
    if value is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, _MOST_COMPACT):
            return f"{value / size:.1f}{unit}" if abs(value) < 100 * size else f"{value / size:.0f}{unit}"
    return f"{value:,.0f}"


_ZERO = Markup('<span class="zero">0</span>')


def amount(value: int) -> str:
    """A count in a table: the exact number is the title of one that is shortened."""
    if not value:
        return _ZERO
    if value < _MOST_COMPACT:
        return f"{value:,}"
    return Markup('<span title="{}">{}</span>').format(f"{value:,}", number(value))


def rate(value: float | None) -> str:
    if value is None:
        return "–"
    return "0" if value < 0.005 else f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else number(value)


def size(count: int) -> str:
    for bound, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count} B"


def short(queue: str) -> str:
    """A queue path without its default parts, as the API also accepts it."""
    namespace, _, rest = queue.partition("/")
    task, _, name = rest.partition("/")
    if not name or task != "default":
        return queue
    return name if namespace == "default" else f"{namespace}/{name}"


def queue_url(queue: str, *rest: str) -> str:
    return "/ui/q/" + "/".join(quote(part, safe="/") for part in (queue, *rest))


def spark(values: Sequence[int] | None) -> Markup:
    """A small line of values, oldest first, as SVG."""
    return _drawn(tuple(values or ()))


@lru_cache(maxsize=1_000)
def _drawn(values: tuple[int, ...]) -> Markup:
    top, floor = max(values, default=0), SPARK_HEIGHT - 1.5
    places = [f"0,{floor} {SPARK_WIDTH},{floor}"]
    if top:
        step = SPARK_WIDTH / max(1, len(values) - 1)
        places = [f"{at * step:.1f},{floor - value / top * (SPARK_HEIGHT - 3):.1f}" for at, value in enumerate(values)]
    svg = Markup('<svg class="spark{}" width="{}" height="{}" aria-hidden="true"><polyline points="{}"/></svg>')
    return svg.format("" if top else " flat", SPARK_WIDTH, SPARK_HEIGHT, " ".join(places))


def pretty(value: Any) -> str:
    """JSON with indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class CsrfFields(Extension):
    """Gives every form that is posted the token of the visitor's session, so that no template can forget it."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002
        return _POSTED_FORM.sub(r"\g<0>{{ csrf_field(visit) }}", source)


def csrf_field(visit: Any) -> Markup:
    token = visit.session.get("csrf")
    return Markup('<input type="hidden" name="csrf" value="{}">').format(token) if token else Markup("")


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("penstock.dashboard"), autoescape=True, extensions=[CsrfFields],
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    found.filters.update(
        amount=amount, duration=duration, when=when, number=number, rate=rate, size=size, short=short,
        spark=spark, pretty=pretty, absolute=absolute, fine=fine, day=day, clock=clock,
    )  # fmt: skip
    found.globals.update(
        csrf_field=csrf_field, asset=asset_url, queue_url=queue_url, version=__version__, now_ms=now_ms
    )
    return found


def render(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(context)


def load() -> None:
    """Compile every template and read every asset."""
    assets()
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
