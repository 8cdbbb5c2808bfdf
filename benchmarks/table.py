"""The rows as a table in the terminal, and in Markdown beside the result file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.report import Report, Row

COLUMNS = ("figure", "system", "median", "lowest - highest", "target", "verdict", "note")
PLAIN_WIDTH = 160


def console() -> Console:
    """The width of the terminal, or wide enough for whole lines without one."""
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


def cells(row: Row) -> tuple[str, ...]:
    """One row as text, in the order of COLUMNS."""
    if row.median is None:
        return (row.figure, row.system, "-", "", row.target, "not measured", row.error)
    spread = "" if row.low == row.high else f"{number(row.low)} - {number(row.high)}"
    verdict = "" if row.met is None else ("met" if row.met else "NOT MET")
    return (row.figure, row.system, f"{number(row.median)} {row.unit}", spread, row.target, verdict, row.note)


def number(value: float | None) -> str:
    """Three significant digits; whole numbers from a hundred on, with separators."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def show(rows: Sequence[Row], screen: Console) -> None:
    """A table for each workload, and below it a line for each contender that could not be measured."""
    for workload, group in groupby(rows, key=lambda row: row.workload):
        table = Table(title=workload, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        for column in COLUMNS:
            table.add_column(column, justify="right" if column in ("median", "lowest - highest") else "left")
        missing = []
        for row in group:
            if row.median is None:
                missing.append(f"{row.system}: not measured: {row.error}")
            else:
                table.add_row(*cells(row), style={True: "green", False: "red", None: None}[row.met])
        if table.row_count:
            screen.print(table)
        else:
            screen.print(f"[bold]{workload}[/bold]")
        for line in missing:
            screen.print(f"  {escape(line)}", style="yellow", highlight=False)


def markdown(report: Report) -> str:
    """The whole report; headings are the workloads, in the order they ran."""
    facts = {"commit": report.commit, **report.machine, **report.versions, **report.settings}
    parts = [
        f"# Benchmarks of {report.taken_at[:10]}, commit {report.commit}",
        "How these are measured and how to read them: `docs/benchmarks.md`.",
        _markdown_table(("what", "value"), [(name, str(value)) for name, value in facts.items()]),
    ]
    for workload, group in groupby(report.rows, key=lambda row: row.workload):
        parts += [f"## {workload}", _markdown_table(COLUMNS, [cells(row) for row in group])]
    return "\n\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    return "\n".join(head + ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines])
