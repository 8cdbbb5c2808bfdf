"""Wait for conditions without an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 30
"""Far more than anything takes; a test that waits longer has failed."""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  it is a fact about a socket or a fake, and no event is set for it
            await asyncio.sleep(0.002)
