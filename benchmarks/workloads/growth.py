"""Costs and memory as the state of the broker grows. The rows are in `benchmarks/growth_*.py`."""

from __future__ import annotations

from benchmarks.growth import measured
from benchmarks.report import Row
from benchmarks.workloads.run import Run


async def growth(run: Run) -> list[Row]:
    """Each dimension at three sizes: cost per message, stops of the event loop, memory; ratios largest : smallest."""
    return [row async for row in measured(quick=run.quick)]
