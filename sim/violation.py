"""What a run is looking for."""

from __future__ import annotations


class Violation(Exception):
    """Something that must never happen, happened. `invariant` is a number of docs/simulation.md."""

    def __init__(self, invariant: str, detail: str):
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail
