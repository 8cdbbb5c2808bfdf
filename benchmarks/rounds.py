"""Peers take turns: A B C, A B C, … in one run, so that noise of the machine affects all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

R = TypeVar("R")

TURN_SECONDS_MAX = 120.0


class Pace(NamedTuple):
    """The number and the length of rounds. The figures of a quick run are rough."""

    rounds: int
    seconds: float

    @classmethod
    def of(cls, *, quick: bool) -> Pace:
        return cls(rounds=2, seconds=0.4) if quick else cls(rounds=5, seconds=1.2)


async def take_turns(
    turns: Mapping[str, Callable[[], Awaitable[R]]], rounds: int, *, settle: Callable[[], object] = os.sync
) -> tuple[dict[str, list[R]], dict[str, str]]:
    """`rounds` results of each peer, after one turn of warm-up; and the error of each peer that failed, which is then
    left out.

    `settle` runs before each turn. By default it writes all dirty pages to disk, so that no peer pays for the writes of
    the one before it.
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
