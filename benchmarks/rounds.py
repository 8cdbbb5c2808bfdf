"""Peers take turns: A B C, A B C, … in one run, so that whatever else the machine does happens to all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

R = TypeVar("R")

TURN_SECONDS_MAX = 120.0


class Pace(NamedTuple):
    """How often and how long. A quick run shows that everything works; its figures are rough."""

    rounds: int
    seconds: float

    @classmethod
    def of(cls, *, quick: bool) -> Pace:
        return cls(rounds=2, seconds=0.4) if quick else cls(rounds=5, seconds=1.2)


async def take_turns(
    turns: Mapping[str, Callable[[], Awaitable[R]]], rounds: int, *, settle: Callable[[], object] = os.sync
) -> tuple[dict[str, list[R]], dict[str, str]]:
    """`rounds` results of each, after one turn of warm-up; and the error of each that failed, which then sits out.

    `settle` comes before each turn. By default it writes everything dirty to disk, so that nobody pays for what its
    predecessor left in the cache.
    """
    results: dict[str, list[R]] = {name: [] for name in turns}
    errors: dict[str, str] = {}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            if name in errors:
                continue
            settle()
            try:
                result = await asyncio.wait_for(turn(), TURN_SECONDS_MAX)
            except Exception as error:
                errors[name] = describe(error)
                del results[name]
                continue
            if number:
                results[name].append(result)
    return results, errors


def describe(error: BaseException) -> str:
    """One line for a table cell."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
