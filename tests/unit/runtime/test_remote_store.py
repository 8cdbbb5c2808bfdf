"""Commits whose store is another process: it cannot be reached, or it is unknown whether a frame was written."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from patience import until

from penstock.engines.memory import MemoryEngine
from penstock.errors import Unavailable
from penstock.ids import parse_queue
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import in_process
from sim.store import Fault, Link, RemoteEngine

ORDERS = parse_queue("orders")


class ScriptedLink(Link):
    """Meets these faults, one per call of the store, and then none."""

    def __init__(self) -> None:
        self.faults: list[Fault | None] = []
        super().__init__(Random(1))

    def fault(self) -> Fault | None:
        return self.faults.pop(0) if self.faults else None


def remote(link: ScriptedLink):
    memory = MemoryEngine()
    return lambda: RemoteEngine(memory, link, ManualClock())


@pytest.mark.parametrize(
    "faults",
    [
        ["lost_reply"],
        ["lost_request"],
        ["late_request"],
        ["unavailable", "unavailable"],
        ["lost_request", "lost_request", "unavailable"],
        ["lost_reply", "lost_reply", "lost_reply"],
        ["late_request", "lost_reply"],
        ["lost_request", None, "lost_reply", None, "late_request"],
    ],
    ids=lambda faults: "-".join(map(str, faults)),
)
def test_a_message_is_stored_once_whatever_the_connection_does(faults):
    async def run() -> None:
        link = ScriptedLink()
        async with in_process(remote(link)) as box:
            await box.publish("orders", b"before")
            link.faults = list(faults)
            await box.publish("orders", b"during")
            await box.publish("orders", b"after")
            assert not link.faults and not box.failures
            await box.restart()
            assert [message.payload for message in await box.lease("orders", max=10)] == [
                b"before",
                b"during",
                b"after",
            ]

    asyncio.run(run())


def test_commands_are_refused_while_the_store_cannot_be_reached():
    async def run() -> None:
        link = ScriptedLink()
        async with in_process(remote(link)) as box:
            await box.publish("orders", b"before")
            link.faults = ["unavailable"] * 1_000
            waiting = asyncio.ensure_future(box.publish("orders", b"during"))
            await until(lambda: box.host.loop.suspended is not None)
            assert not box.broker.ready
            with pytest.raises(Unavailable, match="the store cannot be reached"):
                await box.publish("orders", b"refused")
            link.faults.clear()
            await waiting
            assert box.broker.ready
            assert [message.payload for message in await box.lease("orders", max=10)] == [b"before", b"during"]

    asyncio.run(run())


def test_a_shard_whose_journal_another_owner_has_taken_stops():
    async def run() -> None:
        link = ScriptedLink()
        engine = remote(link)
        async with in_process(engine) as box:
            await box.publish("orders", b"before")
            await engine().acquire(0, bytes(16))
            with pytest.raises(Unavailable):
                await box.publish("orders", b"zombie")
            assert box.failures

    asyncio.run(run())
