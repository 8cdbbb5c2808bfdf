"""`python -m benchmarks [workload…] [--quick] [--save] [--peers …]`."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks import machine, table
from benchmarks.compare import compare
from benchmarks.peers import PEERS
from benchmarks.report import Report, Row, decode, failure, save
from benchmarks.rounds import describe
from benchmarks.workloads import WORKLOADS, Run

WORKLOAD_SECONDS_MAX = 900.0
GROWTH_SECONDS_MAX = 7_200.0
"""Of `growth`, which also bounds each of its measurements."""
RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every workload ran, 1 if one reported an error. A missed target is not an error."""
    options = _parse(arguments)
    console = table.console()
    if options.list:
        _list(console)
        return 0
    if options.compare:
        old, new = (decode(path.read_bytes()) for path in options.compare)
        table.show(compare(old, new), console)
        return 0
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    unknown += [name for name in options.peers or () if name not in PEERS]
    if unknown:
        console.print(f"unknown: {', '.join(unknown)} (see --list)")
        return 2
    # A signal must stop the servers of all peers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The client of every peer uses uvloop, as deployed asyncio services do.
    report = uvloop.run(_measure(options, console))
    if options.save:
        console.print(f"saved {save(report, table.markdown(report), RESULTS)}")
    return 1 if any(row.error and not row.error.startswith("not installed") for row in report.rows) else 0


async def _measure(options: argparse.Namespace, console: Console) -> Report:
    run = Run(quick=options.quick, only=frozenset(options.peers) if options.peers else None)
    report = Report(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=machine.commit(),
        settings={"rounds": run.pace.rounds, "seconds a turn": run.pace.seconds},
        machine=machine.notes(),
        versions=run.versions,
        rows=[],
    )
    for name in options.workloads or WORKLOADS:
        began = time.monotonic()
        rows = await _one(name, run)
        table.show(rows, console)
        console.print(f"{name} took {time.monotonic() - began:.0f} s\n")
        report.rows += rows
    return report


async def _one(name: str, run: Run) -> list[Row]:
    """The rows of one workload; an error is a row, and the next workload runs."""
    try:
        most = GROWTH_SECONDS_MAX if name == "growth" else WORKLOAD_SECONDS_MAX
        return await asyncio.wait_for(WORKLOADS[name](run), most)
    except Exception as error:
        return [failure(name, "all", describe(error))]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Penstock next to real peers.")
    parser.add_argument("workloads", nargs="*", metavar="workload", help="which to run; all if none is named")
    parser.add_argument("--list", action="store_true", help="show workloads and peers, run nothing")
    parser.add_argument("--quick", action="store_true", help="short turns, few rounds: does it work, roughly how fast")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-<commit>.json and .md")
    parser.add_argument("--peers", nargs="+", metavar="peer", help="only these, penstock's ways included")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="two result files, side by side")
    return parser.parse_args(arguments)


def _list(console: Console) -> None:
    for name, workload in WORKLOADS.items():
        summary, _, _ = (inspect.getdoc(workload) or "").partition("\n")
        console.print(f"[bold]{name:22}[/bold] {summary}")
    console.print(f"\npeers: {', '.join(PEERS)}")


if __name__ == "__main__":
    sys.exit(main())
