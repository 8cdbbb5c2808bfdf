"""Rows of figures and the result file.

A result file is JSON with `format` 1: fields are only added. Scripts compare `benchmarks/results/<date>-<commit>.json`;
the `.md` beside it has the same tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.stats import Spread
from benchmarks.targets import TARGETS

FORMAT = 1


class Row(msgspec.Struct, omit_defaults=True):
    """One figure of one contender, or of one pair of them (`a / b`, unit `x`)."""

    workload: str
    figure: str
    system: str = msgspec.field(name="who")
    unit: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""
    error: str = ""


class Report(msgspec.Struct):
    """One run: the rows, the machine and the commit."""

    taken_at: str
    commit: str
    settings: dict[str, Any]
    machine: dict[str, str]
    versions: dict[str, str]
    rows: list[Row]
    format: int = FORMAT

    @property
    def file_stem(self) -> str:
        return f"{self.taken_at[:10]}-{self.commit}"


def figure(workload: str, name: str, system: str, unit: str, value: Spread | float, note: str = "") -> Row:
    """A row with its verdict, if there is a target for it."""
    spread = value if isinstance(value, Spread) else Spread(value, value, value)
    target = TARGETS.get((workload, name, system))
    return Row(
        workload, name, system, unit, *spread, note=note,
        target=str(target) if target else "",
        met=target.met_by(spread.median) if target else None,
    )  # fmt: skip


def failure(workload: str, system: str, error: str) -> Row:
    """The row of a failed measurement: without it, a failure would look like success."""
    return Row(workload, "", system, error=error)


def encode(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def decode(text: bytes) -> Report:
    """Inverse of `encode`. Raises ValueError for another format."""
    report = msgspec.json.decode(text, type=Report)
    if report.format != FORMAT:
        raise ValueError(f"result format {report.format} is not known here (known: {FORMAT})")
    return report


def save(report: Report, markdown: str, directory: Path) -> Path:
    """Writes both files and returns the path of the JSON. A second run on one commit and day replaces the first."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report.file_stem}.json"
    path.write_bytes(encode(report))
    path.with_suffix(".md").write_text(markdown)
    return path
