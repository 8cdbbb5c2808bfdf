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


@both_clients
async def test_groups_are_created_moved_and_deleted(broker, client, ask):
    log = await ask(client.create_queue("log", retention={"mode": "keep"}))
    for number in range(4):
        await ask(log.publish(number))
    assert (await ask(log.create_group("audit", start={0: 2})))["offsets"] == {"0": 2}
    dry = await ask(log.seek_group("audit", "latest", dry_run=True))
    assert (dry["dry_run"], dry["skipped"]) == (True, 2)
    moved = await ask(log.seek_group("audit", {0: 1}))
    assert (moved["again"], moved["partitions"][0]["to_offset"]) == (1, 1)
    (group,) = (await ask(log.groups()))["groups"]
    assert (group["group"], group["lag"]) == ("audit", 3)
    with pytest.raises(Conflict) as refused:
        await ask(log.delete_group("audit"))
    await ask(log.delete_group("audit", confirm=refused.value.details["confirm"]))
    assert (await ask(log.groups()))["groups"] == []
