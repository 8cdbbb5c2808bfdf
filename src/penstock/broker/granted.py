"""A lease that is waited for, by somebody who may not be there any more when it comes."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.core import commands
from penstock.runtime.loop import ShardLoop


async def granted(
    loop: ShardLoop, command: commands.Lease | commands.LeaseScope, wait_ms: int, acked: asyncio.Future[Any] | None
) -> list[commands.LeasedRun]:
    """What is granted, when it and what was acked before it are durable.

    A caller that is cancelled in here leaves nothing behind: what it was granted, and never saw, is given back.
    """
    lease = loop.lease(command, wait_ms)
    try:
        runs: list[commands.LeasedRun] = await lease
        if acked is not None:
            await acked
    except asyncio.CancelledError:
        # Before the lease is durable the loop sees by itself that nobody waits for it.
        if lease.done() and not lease.cancelled() and lease.exception() is None:
            loop.give_back(lease.result())
        raise
    return runs
