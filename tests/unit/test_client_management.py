"""Managing queues and groups with the SDK: both clients make the same calls and raise the same errors."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest

from penstock import Conflict
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


@both_clients
async def test_create_queue_changes_only_the_named_settings(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    await ask(log.publish("kept"))
    await ask(client.create_queue("log", lease_ms=5_000))
    config = (await ask(log.config()))["config"]
    assert (config["lease_ms"], config["retention"]["mode"]) == (5_000, "keep")


@both_clients
async def test_destructive_change_needs_the_token(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    await ask(log.publish("kept"))
    for change in (functools.partial(client.create_queue, "log"), log.configure):
        with pytest.raises(Conflict) as refused:
            await ask(change(retention={"mode": "until_acked"}))
        assert refused.value.details["would_lose"]["messages_sooner"] == 1
        await ask(change(retention={"mode": "until_acked"}, confirm=refused.value.details["confirm"]))
        await ask(log.configure(retention={"mode": "keep"}))
