"""The uuid of a queue names one incarnation of it: a queue that is deleted and created again has another uuid."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from http_fake import Http

from penstock.clock import SystemClock
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process
from penstock.transports.http import HttpApp
from penstock.wire.events import EventRangesQuery, EventsQuery
from penstock.wire.holds import HoldRequest

JOBS = parse_queue("jobs")


def run(story):
    asyncio.run(story())


async def delete(broker, queue):
    with pytest.raises(Conflict) as refused:
        await broker.queues.delete(queue)
    await broker.queues.delete(queue, confirm=refused.value.details["confirm"])


async def recreate(box):
    """Returns the uuid before, and the uuid after."""
    await box.publish("jobs", b"1", b"2")
    before = box.broker.queues.get(JOBS)["uuid"]
    await delete(box.broker, JOBS)
    await box.publish("jobs", b"3")
    return before, box.broker.queues.get(JOBS)["uuid"]


def test_recreated_queue_has_another_uuid():
    async def story():
        async with in_process() as box:
            before, after = await recreate(box)
            assert before != after and len(before) == len(after) == 36

    run(story)


def test_uuid_survives_a_restart(tmp_path):
    async def story():
        async with in_process(lambda: LocalEngine(str(tmp_path / "data"))) as box:
            _, known = await recreate(box)
            await box.restart()
            assert box.broker.queues.get(JOBS)["uuid"] == known
            await box.restart(final_snapshot=False)
            assert box.broker.queues.get(JOBS)["uuid"] == known

    run(story)


def test_uuid_and_broker_id_are_the_same_in_all_replies():
    async def story():
        async with in_process() as box:
            former, uuid = await recreate(box)
            broker = box.broker
            assert (await broker.queues.list())["queues"][0]["uuid"] == uuid
            assert (await broker.stats.queue(JOBS))["uuid"] == uuid
            extent = broker.log.extent(JOBS)
            assert (extent.uuid, extent.broker) == (uuid, broker.id)
            assert (await broker.stats.summary())["broker"] == broker.id and len(broker.id) == 26
            assert (await broker.events.ranges(EventRangesQuery())).broker == broker.id
            meta = (await broker.events.read_bulk(EventsQuery())).meta
            assert meta.broker == broker.id
            assert {names.uuid for names in meta.names.values()} == {former, uuid}

    run(story)


def test_read_of_another_incarnation_is_refused():
    async def story():
        async with in_process() as box:
            former, uuid = await recreate(box)
            assert (await box.broker.log.read(JOBS, uuid=uuid)).end_offset == 1
            with pytest.raises(Conflict) as refused:
                await box.broker.log.read(JOBS, uuid=former)
            assert refused.value.details == {"field": "uuid", "uuid": uuid}

    run(story)


def test_hold_on_another_incarnation_is_refused_and_changes_nothing():
    async def story():
        async with in_process() as box:
            former, uuid = await recreate(box)
            held = await box.broker.holds.set("lake", HoldRequest(queues={"jobs": {"0": 1}}), {"jobs": JOBS})
            assert held.uuids == {JOBS: uuid}
            wrong = HoldRequest(queues={"jobs": {"0": 0}}, uuids={"jobs": former})
            with pytest.raises(Conflict):
                await box.broker.holds.set("lake", wrong, {"jobs": JOBS})
            assert box.broker.holds.get("lake").queues == {JOBS: {"0": 1}}
            right = HoldRequest(queues={"jobs": {"0": 0}}, uuids={"jobs": uuid})
            assert (await box.broker.holds.set("lake", right, {"jobs": JOBS})).queues == {JOBS: {"0": 0}}

    run(story)


def test_malformed_and_foreign_uuids_are_refused_over_http():
    async def story():
        async with in_process() as box:
            await box.publish("jobs", b"1")
            http = Http()
            http.app = HttpApp(box.broker, SystemClock())
            assert (await http.ask("GET", "/v1/read?queue=jobs&uuid=x")).status == 400
            known = (await http.ask("GET", "/v1/queues")).json["queues"][0]["uuid"]
            assert (await http.ask("GET", f"/v1/read?queue=jobs&uuid={known}")).status == 200
            other = await http.ask("GET", f"/v1/read?queue=jobs&uuid={UUID(int=0)}")
            assert (other.status, other.json["error"]["code"]) == (409, "conflict")

    run(story)
