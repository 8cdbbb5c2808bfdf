"""Spark looks for modules of this kind by their name: `format("penstock")` needs no registering.

Spark imports this in every session, whether Penstock is used or not, so nothing is loaded before the first use.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from penstock.pipeline.source import PenstockDataSource

        return PenstockDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
