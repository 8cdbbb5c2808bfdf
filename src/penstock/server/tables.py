"""Answers of the server as tables for people."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_MAX = 60


def print_table(answer: Any, rows: str | None = None) -> None:
    """A list of objects under the key `rows` as one line each; anything else as name and value."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    console = Console(highlight=False)
    if rows is None:
        table.show_header = False
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in answer.items():
            table.add_row(Text(name), Text(_cell(value)))
    else:
        entries = [_flat(entry) for entry in answer[rows]]
        if not entries:
            console.print(f"no {rows}")
            return
        columns = list(dict.fromkeys(name for entry in entries for name in entry))
        for name in columns:
            table.add_column(name, overflow="ellipsis")
        for entry in entries:
            # Text, not markup: a payload may contain anything, also square brackets.
            table.add_row(*(Text(_cell(entry.get(name, ""))[:_WIDTH_MAX]) for name in columns))
    console.print(table)
    if rows is not None and answer.get("total", 0) > len(answer[rows]):
        console.print(f"page {answer['page']}, {len(answer[rows])} of {answer['total']}", style="dim")


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """One level of objects laid open, so that each of their fields is a column."""
    flat: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, dict) and name != "payload":
            flat |= {key: each for key, each in value.items() if not isinstance(each, dict | list)}
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return "".join(letter if letter.isprintable() else "�" for letter in text)
