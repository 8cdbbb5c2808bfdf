"""The table of routes: every method of the facade has a row, or is for one shard alone."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from boxed import boxed
from one_shard import OF_ONE_SHARD

from penstock.broker.guarded import RULES, VALUES, VIEWS
from penstock.broker.router import RoutedBroker
from penstock.broker.routes import ROUTES
from penstock.broker.service import Broker
from penstock.testing.inprocess import in_process


def methods_of(broker) -> set[str]:
    rooms = {name: getattr(broker, name) for name in dir(broker) if not name.startswith("_")}
    found = {name for name, value in rooms.items() if inspect.ismethod(value)}
    for name, room in rooms.items():
        found |= {f"{name}.{each}" for each, _ in inspect.getmembers(room, inspect.ismethod) if each[0] != "_"}
    return {name for name in found if not name.startswith("analytics.") and name.partition(".")[0] not in VALUES}


OF_THE_FACADE = {"watch_commits", "stop_waiting", "close", "commit_now"}


@boxed
async def test_every_method_has_a_route_or_is_for_one_shard(box):
    assert methods_of(box.broker) == {*ROUTES, *OF_ONE_SHARD, *OF_THE_FACADE}
    assert not ROUTES.keys() & OF_ONE_SHARD


def test_every_guarded_method_has_a_route():
    guarded = {name for name in (*RULES, *VIEWS) if not name.startswith("analytics.")} - OF_THE_FACADE
    assert guarded <= ROUTES.keys()


def test_every_property_of_a_shard_is_one_of_the_facade():
    properties = {name for name, value in vars(Broker).items() if isinstance(value, property)}
    assert properties == {name for name, value in vars(RoutedBroker).items() if isinstance(value, property)}


def test_methods_without_a_route_cannot_be_called():
    async def story():
        async with in_process(shards=2) as box:
            for name in sorted(OF_ONE_SHARD):
                room, _, method = name.partition(".")
                with pytest.raises(AttributeError):
                    getattr(getattr(box.broker, room), method)

    asyncio.run(story())
