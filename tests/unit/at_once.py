"""A coroutine that waits for nothing but its next turn, from a place that cannot await."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end, without a turn of the event loop, and return its result."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("it waits for something")
