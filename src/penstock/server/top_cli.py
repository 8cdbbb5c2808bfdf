"""`penstock top`: the overview of a server in the terminal, renewed in place."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.server.remote import Remote
from penstock.server.terminal import URL_DEFAULT, Output, OutputOption, Url, show
from penstock.server.times import duration_option

Sort = StrEnum("Sort", ["depth", "ready", "leased", "scheduled", "dead", "published_per_s", "acked_per_s", "name"])
WIDE_COLUMNS = 110
"""The width of a terminal that has room for all columns."""
NO_TERMINAL_COLUMNS = 140
BARS = " ▁▂▃▄▅▆▇█"
_LINES_AROUND = 6
"""Lines of the screen that are not rows of the table."""


def top(
    sort: Annotated[Sort, typer.Option(help="Order of the queues.")] = Sort.depth,
    search: Annotated[str, typer.Option(help="Only queues with this in their path.")] = "",
    interval: Annotated[float, duration_option("Time between two looks.", least_s=0.5, default="2s")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and stop.")] = False,
    output: OutputOption = Output.table,
    url: Url = URL_DEFAULT,
) -> None:
    """Watch rates, backlogs and dead letters of all queues. Ctrl-C ends it; with JSON there is one look.

    Example: penstock top --sort dead
    """
    remote, console = Remote(url), Console(highlight=False)
    if output is not Output.table:
        show(remote.ask("queue_table", sort=sort, search=search or None, limit=50), output)
        return
    if once or not console.is_terminal:
        if not console.is_terminal:
            console.width = NO_TERMINAL_COLUMNS
        console.print(_screen(remote, sort, search, 50, console.width))
        return
    _watch(remote, console, sort, search, interval)


def _watch(remote: Remote, console: Console, sort: str, search: str, interval: float) -> None:
    def look() -> Group:
        rows = max(1, min(console.height - _LINES_AROUND, 500))
        return _screen(remote, sort, search, rows, console.width)

    try:
        with Live(look(), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(look(), refresh=True)
    except KeyboardInterrupt:
        return


def _screen(remote: Remote, sort: str, search: str, rows: int, width: int) -> Group:
    summary = remote.ask("summary")
    table = remote.ask("queue_table", sort=sort, search=search or None, limit=rows)
    return Group(_head(remote.shown_url, summary, table["sum"]["rates"]), "", _rows(table["queues"], width))


def _head(url: str, summary: dict[str, Any], rates: dict[str, float]) -> Text:
    text = Text.assemble(("penstock ", "bold"), (f"{url}\n", "dim"))
    for name, value in (
        ("in/s", f"{rates['published_per_s']:,.1f}"), ("out/s", f"{rates['acked_per_s']:,.1f}"),
        ("backlog", f"{summary['depth']:,}"), ("in flight", f"{summary['leased']:,}"),
        ("scheduled", f"{summary['scheduled']:,}"), ("queues", f"{summary['queues']:,}"),
    ):  # fmt: skip
        text.append(f"{name} ", "dim").append(f"{value}   ", "bold")
    dead = summary["dead"]
    text.append("dead ", "dim").append(f"{dead:,}", "bold red" if dead else "bold")
    for alarm in summary["dead_letter_alarms"]:
        text.append(f"\ndead letters of {alarm} are too many or grow too fast", "red")
    return text


def _rows(queues: list[dict[str, Any]], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("queue", overflow="ellipsis", no_wrap=True, ratio=1)
    is_wide = width >= WIDE_COLUMNS
    for name in ("ready", "in flight", "scheduled", *(["retrying"] if is_wide else []), "dead", "in/s", "out/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=max(6, len(name)))
    if is_wide:
        table.add_column("last hour", no_wrap=True, min_width=20)
    for row in queues:
        counts = [row["ready"], row["leased"], row["scheduled"], *([row["waiting_for_retry"]] if is_wide else [])]
        dead = Text(f"{row['dead']:,}", "red" if row["dead"] else "")
        rates = (f"{row['rates'][name]:,.1f}" for name in ("published_per_s", "acked_per_s"))
        bars = [Text(_bars(row["recent"]), "cyan")] if is_wide else []
        table.add_row(Text(row["queue"]), *(f"{count:,}" for count in counts), dead, *rates, *bars)
    return table


def _bars(values: list[int], width: int = 20) -> str:
    """A column of blocks per few minutes."""
    step = len(values) // width
    sums = [sum(values[at : at + step]) for at in range(0, len(values), step)]
    most = max(sums)
    return "".join(BARS[-(-value * (len(BARS) - 1) // most)] if most else BARS[0] for value in sums)
