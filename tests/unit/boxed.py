"""`@boxed`: an async test that gets a broker of its own, in memory and with a clock that moves when told."""

from __future__ import annotations

import asyncio
import functools
import inspect

from penstock.testing.inprocess import in_process


def boxed(test):
    """The broker is the test's first argument; parameters of the test follow."""

    @functools.wraps(test)
    def wrapped(**parameters):
        async def run() -> None:
            async with in_process() as box:
                await test(box, **parameters)

        asyncio.run(run())

    _, *others = inspect.signature(test).parameters.values()
    wrapped.__signature__ = inspect.Signature(others)
    return wrapped
