"""The exception for a violated invariant."""

from __future__ import annotations


class Violation(Exception):
    """An invariant is violated. `invariant` is a number of docs/simulation.md."""

    def __init__(self, invariant: str, detail: str):
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail
