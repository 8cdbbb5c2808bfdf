"""Print replies of the server as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

_CELL_CHARS_MAX = 60
_NO_TERMINAL_COLUMNS = 10_000
_COLUMN_MIN = 5
_GAP = 2
"""Characters between two columns: the padding of a table without a box."""
_IDS = ("id", "redrive_id", "queue")
_YEAR_9999_MS = 253_370_764_800_000


class Listing(NamedTuple):
    """The list of a reply that a table shows, and the fields of its rows; `a.b` is field b of object a."""

    entries: str
    columns: tuple[str, ...]
    if_empty: str = ""
    """Printed instead of a table without rows."""


def print_listing(answer: dict[str, Any], listing: Listing) -> None:
    """Print one line per entry, and the page number if there are more."""
    console = _console()
    entries = [_flat(entry) for entry in answer[listing.entries]]
    if not entries:
        console.print(listing.if_empty or f"no {listing.entries}")
        return
    columns = [name for name in listing.columns if any(name in entry for entry in entries)]
    console.print(_table(console, entries, columns))
    more = (answer.get("total") or 0) > len(entries)
    if answer.get("next"):
        console.print(f"{len(entries)} shown; for more: --after {answer['next']}", style="dim")
    elif more and "page" in answer:
        console.print(f"page {answer['page']}: {len(entries)} of {answer['total']}", style="dim")


def print_group(group: dict[str, Any], of_members: Sequence[str], of_partitions: Sequence[str]) -> None:
    """Print a consumer group: a summary line, its members if it has any, and its partitions."""
    console = _console()
    kind = f"{group['kind']}, generation {group['generation']}" if group["members"] else group["kind"]
    asked = _formatted("last_asked_at_ms", group["last_asked_at_ms"]) or "not since the server started"
    holds = f", alone with {group['held']} messages" if group["held"] else ""
    console.print(
        Text.assemble(
            (group["group"], "bold"),
            f"  {kind}, lag {group['lag']}, leased {group['leased']}{holds}, last asked {asked}",
        )
    )
    for entries, columns in ((group["members"], of_members), (group["partitions"], of_partitions)):
        if entries:
            console.print(_table(console, entries, list(columns)))
    console.print()


def print_object(answer: dict[str, Any]) -> None:
    """Print one line per field; lists of objects follow as tables."""
    console = _console()
    fields = _flat(answer)
    lists = {name: value for name, value in fields.items() if _is_table(value)}
    lines = Table(box=None, pad_edge=False, show_header=False)
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    for name, value in fields.items():
        if name not in lists:
            lines.add_row(_text(_title(name)), _text(_formatted(name, value)))
    console.print(lines)
    for name, value in lists.items():
        entries = [_flat(entry) for entry in value]
        columns = list(dict.fromkeys(column for entry in entries for column in entry))
        console.print()
        console.print(Text(name, style="bold"))
        console.print(_table(console, entries, [column for column in columns if not _is_table(entries[0].get(column))]))


def _console() -> Console:
    """A console of the terminal's width; unbounded if the output is a pipe, so that ids are not cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _NO_TERMINAL_COLUMNS)


def _table(console: Console, entries: list[dict[str, Any]], columns: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = [_text(_title(name).rpartition(".")[2]) for name in columns]
    rows = [[_text(_formatted(name, entry.get(name)), _CELL_CHARS_MAX) for name in columns] for entry in entries]
    widths = [max(cell.cell_len for cell in cells) for cells in zip(titles, *rows, strict=True)]
    for title, width in zip(titles, _narrowed(widths, columns, console.width), strict=True):
        table.add_column(title, overflow="ellipsis", no_wrap=True, min_width=width, max_width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _narrowed(widths: list[int], columns: list[str], room: int) -> list[int]:
    """Narrow the widest columns until the table fits. Ids stay whole: other commands take them as arguments."""
    widths = list(widths)
    cuttable = [at for at, name in enumerate(columns) if name.rpartition(".")[2] not in _IDS]
    while sum(widths) + _GAP * (len(widths) - 1) > room and cuttable:
        widest = max(cuttable, key=widths.__getitem__)
        if widths[widest] <= _COLUMN_MIN:
            break
        widths[widest] -= 1
    return widths


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """Flatten inner objects to fields `outer.inner`; a payload stays one field."""
    flat: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, dict) and value and name not in ("payload", "headers"):
            flat |= {f"{name}.{inner}": each for inner, each in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _is_time(name: str) -> bool:
    return name.rpartition(".")[2] == "at_ms" or name.endswith("_at_ms")


def _title(name: str) -> str:
    return name.removesuffix("_ms") if _is_time(name) else name


def _formatted(name: str, value: Any) -> Any:
    """The value as text; times in UTC."""
    if _is_time(name) and isinstance(value, int) and 0 < value < _YEAR_9999_MS:
        moment = datetime.fromtimestamp(value / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _text(value: Any, chars_max: int | None = None) -> Text:
    """Rich text without markup and control characters: messages carry untrusted text."""
    text = value if isinstance(value, str) else "-" if value is None else msgspec.json.encode(value).decode()
    return Text(printable(text[:chars_max]))


def printable(text: str) -> str:
    """The text with control characters escaped."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
