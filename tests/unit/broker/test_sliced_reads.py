"""Reads of many queues and groups let other requests run, and meet what those have changed."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker import stats
from penstock.core.commands import DeleteGroup, DeleteQueue
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process
from penstock.transports.metrics import Metrics

NAMES = ("shop/a", "shop/b", "shop/c")


@pytest.fixture(autouse=True)
def slices_of_one(monkeypatch):
    monkeypatch.setattr(stats, "ROW_COST", 1_000)
    monkeypatch.setattr(stats, "GROUP_COST", 1_000)


def story(told):
    async def run():
        async with in_process() as box:
            for name in NAMES:
                await box.publish(name, b"1")
            await told(box)

    asyncio.run(run())


async def first_slice(coroutine) -> asyncio.Task:
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    assert not task.done(), "other requests run before it ends"
    return task


def test_queue_that_is_deleted_during_a_list_is_left_out():
    async def told(box):
        reading = await first_slice(box.broker.stats.rows("shop/"))
        box.host.loop.submit(DeleteQueue(box.host.view.queue(parse_queue("shop/b")).number))
        assert [row.queue for row in await reading] == [parse_queue("shop/a"), parse_queue("shop/c")]

    story(told)


def test_group_that_is_deleted_during_a_list_is_left_out():
    async def told(box):
        path = parse_queue("shop/a")
        for name in ("a", "b", "c"):
            await box.broker.groups.create(path, name)
        reading = await first_slice(box.broker.groups.list(path))
        queue = box.host.view.queue(path)
        box.host.loop.submit(DeleteGroup(queue.number, "b", queue.groups["b"]))
        assert [group["group"] for group in (await reading)["groups"]] == ["a", "c"]

    story(told)


def test_queue_that_is_deleted_during_a_scrape_is_left_out():
    async def told(box):
        reading = await first_slice(Metrics().exposition(box.broker))
        box.host.loop.submit(DeleteQueue(box.host.view.queue(parse_queue("shop/c")).number))
        text = (await reading)[0].decode()
        published = [line for line in text.splitlines() if line.startswith("penstock_messages_published_total{")]
        assert [line.rpartition('queue="shop/default/')[2] for line in published] == ['a"} 1.0', 'b"} 1.0']

    story(told)


def test_paths_are_sorted_and_current():
    async def told(box):
        view = box.host.view
        assert view.paths("shop/") == [parse_queue(name) for name in NAMES]
        box.host.loop.submit(DeleteQueue(view.queue(parse_queue("shop/b")).number))
        await box.publish("shop/aa", b"1")
        assert view.paths("shop/") == [parse_queue(name) for name in ("shop/a", "shop/aa", "shop/c")]
        assert view.paths("shop/default/a") == [parse_queue("shop/a"), parse_queue("shop/aa")]
        assert view.paths("shops") == [] and len(view.paths("")) == 3
        await box.restart()
        assert box.host.view.paths("shop/default/c") == [parse_queue("shop/c")]

    story(told)
