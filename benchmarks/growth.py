"""No cost grows with the past: each figure at three sizes of one dimension, and the ratio largest : smallest.

A module with rows exposes them as `GROWTH`, a tuple of `GrowthRow`; MODULES lists the modules. A row is measured in a
process of its own for each size, so that memory is that of the size, and no size pays for the one before it. Each
measurement is reported on standard error as it ends.

    make bench ARGS="growth --quick"            the two smaller sizes
    python -m benchmarks.growth [row …]         some rows only
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from benchmarks import table
from benchmarks.report import Row, failure
from benchmarks.rounds import describe
from benchmarks.targets import at_most
from penstock import limits

MODULES = (
    "benchmarks.growth_core", "benchmarks.growth_store", "benchmarks.growth_reads", "benchmarks.growth_access",
)  # fmt: skip
RATIO_MAX = 1.5
ROUNDS = 3
"""Measurements of each size; the best one counts, because noise of the machine only adds."""


CHILD = "--measure"
"""Argument of a child process, before a row and a size."""
MEASUREMENT_SECONDS_MAX = 900.0
"""Of one size of one row."""


class Bound(NamedTuple):
    """The bound of one figure: of the ratio largest : smallest, or of the figure at the largest size."""

    unit: str
    most: float = RATIO_MAX
    of: Literal["ratio", "largest"] = "ratio"


class GrowthRow(NamedTuple):
    name: str
    sizes: tuple[int, ...]
    """Ascending, three of them."""
    measure: Callable[[int], Awaitable[Mapping[str, float]]]
    """Size -> figure -> value."""
    bounds: Mapping[str, Bound]
    """Figure -> bound. Other figures are left out."""
    rounds: int = ROUNDS


def rows() -> Iterator[GrowthRow]:
    """The rows of all modules."""
    for module in MODULES:
        yield from importlib.import_module(module).GROWTH


async def measured(*, quick: bool, names: Sequence[str] = ()) -> AsyncIterator[Row]:
    """The rows of these names, or all. An error is a row, and the next one is measured."""
    began = time.monotonic()
    chosen = [row for row in rows() if not names or row.name in names]
    for number, row in enumerate(chosen, 1):
        try:
            found = await _measured(row, row.sizes[:2] if quick else row.sizes)
        except Exception as error:
            found = [failure("growth", row.name, describe(error))]
        for each in found:
            verdict = each.error or ("met" if each.met else "NOT MET")
            _report(f"{each.system}: {each.figure} {table.number(each.median)} {each.unit} {each.target}: {verdict}")
            yield each
        _report(f"row {number} of {len(chosen)} after {time.monotonic() - began:.0f} s")


async def _measured(row: GrowthRow, sizes: Sequence[int]) -> list[Row]:
    """Sizes take turns, so that a slow minute of the machine slows all of them."""
    values: dict[int, list[Mapping[str, float]]] = {size: [] for size in sizes}
    for turn in range(row.rounds):
        for size in sizes:
            found = await _in_child(row.name, size)
            values[size].append(found)
            shown = ", ".join(f"{figure} {table.number(value)}" for figure, value in found.items())
            _report(f"  {row.name}, {size:,}, {turn + 1} of {row.rounds}: {shown}")
    best = {figure: [min(each[figure] for each in values[size]) for size in sizes] for figure in row.bounds}
    return [_row(row, figure, sizes, best[figure]) for figure in row.bounds]


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _row(row: GrowthRow, figure: str, sizes: Sequence[int], best: Sequence[float]) -> Row:
    bound = row.bounds[figure]
    shown = ", ".join(f"{size:,}: {table.number(value)}" for size, value in zip(sizes, best, strict=True))
    value, unit = (best[-1] / max(best[0], 1e-9), "x") if bound.of == "ratio" else (best[-1], bound.unit)
    target = at_most(bound.most)
    note = f"{shown} {bound.unit}"
    return Row("growth", figure, row.name, unit, value, value, value, str(target), target.met_by(value), note)


async def _in_child(name: str, size: int) -> Mapping[str, float]:
    command = (sys.executable, "-m", "benchmarks.growth", CHILD, name, str(size))
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        output, errors = await asyncio.wait_for(child.communicate(), MEASUREMENT_SECONDS_MAX)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise RuntimeError(f"{size:,}: {errors.decode().strip().rpartition(chr(10))[2]}")
    return msgspec.json.decode(output, type=dict[str, float])


def _measure(name: str, size: int) -> Mapping[str, float]:
    gc.set_threshold(*limits.GC_THRESHOLDS)  # as the server does
    (row,) = (row for row in rows() if row.name == name)

    async def figures() -> Mapping[str, float]:
        return await row.measure(size)

    return asyncio.run(figures())


def resident_bytes() -> int:
    """Memory of this process, without what the C library keeps of freed memory: the server gives it back after each
    round of upkeep."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _show(names: Sequence[str]) -> None:
    table.show([row async for row in measured(quick=False, names=names)], table.console())


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        print(msgspec.json.encode(_measure(sys.argv[2], int(sys.argv[3]))).decode())
    else:
        asyncio.run(_show(sys.argv[1:]))
