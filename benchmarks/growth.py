"""No cost grows with the past: each figure at three sizes of one dimension, and the ratio largest : smallest.

A module with rows exposes them as `GROWTH`, a tuple of `GrowthRow`; MODULES lists the modules. A row is measured in a
process of its own for each size, so that memory is that of the size, and no size pays for the one before it.

    make bench ARGS="growth --quick"            the two smaller sizes
    python -m benchmarks.growth [row …]         some rows only
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Literal, NamedTuple

from benchmarks import table
from benchmarks.report import Row, failure
from benchmarks.rounds import describe
from benchmarks.targets import at_most

MODULES = ("benchmarks.growth_core", "benchmarks.growth_store", "benchmarks.growth_reads")
RATIO_MAX = 1.5
ROUNDS = 3
"""Measurements of each size; the best one counts, because noise of the machine only adds."""


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


def rows() -> Iterator[tuple[str, GrowthRow]]:
    """(module, row) of all modules that exist."""
    for module in MODULES:
        if importlib.util.find_spec(module) is not None:
            for row in getattr(importlib.import_module(module), "GROWTH", ()):
                yield module, row


def measured(*, quick: bool, names: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of these names, or all. An error is a row, and the next one is measured."""
    for module, row in rows():
        if not names or row.name in names:
            try:
                yield from _measured(module, row, row.sizes[:2] if quick else row.sizes)
            except Exception as error:
                yield failure("growth", row.name, describe(error))


def _measured(module: str, row: GrowthRow, sizes: Sequence[int]) -> list[Row]:
    """Sizes take turns, so that a slow minute of the machine slows all of them."""
    values: dict[int, list[Mapping[str, float]]] = {size: [] for size in sizes}
    for _ in range(row.rounds):
        for size in sizes:
            values[size].append(_in_child(module, row.name, size))
    best = {figure: [min(each[figure] for each in values[size]) for size in sizes] for figure in row.bounds}
    return [_row(row, figure, sizes, best[figure]) for figure in row.bounds]


def _row(row: GrowthRow, figure: str, sizes: Sequence[int], best: Sequence[float]) -> Row:
    bound = row.bounds[figure]
    shown = ", ".join(f"{size:,}: {table.number(value)}" for size, value in zip(sizes, best, strict=True))
    value, unit = (best[-1] / max(best[0], 1e-9), "x") if bound.of == "ratio" else (best[-1], bound.unit)
    target = at_most(bound.most)
    note = f"{shown} {bound.unit}"
    return Row("growth", figure, row.name, unit, value, value, value, str(target), target.met_by(value), note)


def _in_child(module: str, name: str, size: int) -> Mapping[str, float]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        return child.submit(_measure, module, name, size).result()


def _measure(module: str, name: str, size: int) -> Mapping[str, float]:
    gc.set_threshold(50_000, 20, 100)  # as the server does
    (row,) = (row for row in importlib.import_module(module).GROWTH if row.name == name)

    async def figures() -> Mapping[str, float]:
        measured: Mapping[str, float] = await row.measure(size)
        return measured

    return asyncio.run(figures())


if __name__ == "__main__":
    table.show(list(measured(quick=False, names=sys.argv[1:])), table.console())
