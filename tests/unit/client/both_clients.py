"""Runs a test with the asyncio client and with the blocking one."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest

from penstock.testing import MemoryBroker


def both_clients(test):
    """Runs the test with the asyncio client and with the blocking one; `ask` gets a result from either."""

    def run_blocking():
        async def ask(result):
            return result

        with MemoryBroker() as broker, broker.sync_client() as client:
            asyncio.run(test(broker, client, ask))

    def run_async():
        async def ask(result):
            return await result if inspect.isawaitable(result) else result

        async def run():
            async with broker.client() as client:
                await test(broker, client, ask)

        with MemoryBroker() as broker:
            asyncio.run(run())

    @pytest.mark.parametrize("run", [run_async, run_blocking], ids=["async", "blocking"])
    @functools.wraps(test)
    def wrapped(run):
        run()

    wrapped.__signature__ = inspect.Signature([inspect.Parameter("run", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    return wrapped
