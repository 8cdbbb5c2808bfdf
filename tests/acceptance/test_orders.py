"""Delivery orders through the SDK: lanes, heaps, ordered keys, fair shares, more partitions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from http_server import running

from penstock import Conflict, InvalidRequest, sync

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("orders") / "data") as running_server:
        yield running_server


@pytest.fixture
def client(server):
    with sync.Client(server.url) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A queue that no other test uses."""
    return f"orders/q{next(_numbers)}"


@pytest.fixture
def call(server):
    def post(path: str, **body: Any) -> dict[str, Any]:
        answer = server.ask("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    return post


def drained(queue, **options) -> list:
    """Everything that is ready, in the order in which it is delivered, one lease at a time; acked."""
    values = []
    for message in queue.consume(prefetch=1, wait=0.0, **options):
        with message:
            values.append(message.value)
    return values


def test_lanes_share_by_weight_and_critical_goes_first(client, name):
    queue = client.create_queue(name, order="lanes", lane_weights=[3, 2, 1, 1, 1])
    queue.publish_many(range(25), priorities=[row % 5 for row in range(25)])
    lanes = [value % 5 for value in drained(queue)]
    assert lanes[:8] == [0, 0, 0, 1, 1, 2, 3, 4]
    assert lanes[8:15] == [0, 0, 1, 1, 2, 3, 4]


def test_a_heap_gives_out_the_lowest_or_the_highest_first(client, name):
    priorities = [5, -3, 2**63 - 1, 0, -(2**63), 5]
    for mode in ("min", "max"):
        queue = client.create_queue(f"{name}-{mode}", order="heap", heap_mode=mode, partitions=3)
        queue.publish_many(range(6), priorities=priorities, keys=[str(row) for row in range(6)])
        values = [priorities[value] for value in drained(queue)]
        assert values == sorted(priorities, reverse=mode == "max")


def test_a_failing_message_holds_back_its_own_key_only(client, call, name):
    queue = client.create_queue(name, ordered_keys=True, backoff={"kind": "none"}, max_retries=5)
    queue.publish_many([["a", 1], ["a", 2], ["b", 1], ["a", 3], ["b", 2]], keys=["a", "a", "b", "a", "b"])
    first, second = call("/v1/lease", queue=name, max=10)["messages"]
    assert (first["payload"], second["payload"]) == (["a", 1], ["b", 1]), "one of each key"
    call("/v1/nack", receipts=[first["receipt"]], delay_ms=60_000)
    call("/v1/ack", receipts=[second["receipt"]])
    assert [message["payload"] for message in call("/v1/lease", queue=name, max=10)["messages"]] == [["b", 2]]
    assert queue.stats().groups[0].blocked_keys == 1


def test_tenants_take_turns_regardless_of_backlog(client, call, name):
    queue = client.create_queue(name, fair_share={"enabled": True, "weights": {"big": 2}})
    queue.publish_many(range(20), tenant="flood")
    queue.publish_many(range(3), tenant="small")
    queue.publish_many(range(6), tenant="big")
    order = [message["tenant"] for message in call("/v1/lease", queue=name, max=12)["messages"]]
    assert order == ["flood", "small", "big", "big"] * 3


def test_a_tenant_at_its_cap_is_passed_over(client, call, name):
    queue = client.create_queue(name, fair_share={"enabled": True, "max_in_flight": 2})
    queue.publish_many(range(5), tenant="flood")
    queue.publish_many(range(1), tenant="small")
    held = call("/v1/lease", queue=name, max=10)["messages"]
    assert sorted(message["tenant"] for message in held) == ["flood", "flood", "small"]
    assert call("/v1/lease", queue=name, max=10)["messages"] == []
    call("/v1/ack", receipts=[next(message["receipt"] for message in held if message["tenant"] == "flood")])
    assert [message["payload"] for message in call("/v1/lease", queue=name, max=10)["messages"]] == [2]


def test_more_partitions_keep_the_order_of_every_key(client, name):
    queue = client.create_queue(name, ordered_keys=True)
    keys = [f"k{row % 7}" for row in range(70)]
    queue.publish_many(range(70), keys=keys)
    client.create_queue(name, ordered_keys=True, partitions=4)
    queue.publish_many(range(70, 140), keys=keys)
    seen: dict[str, list[int]] = {}
    for message in queue.consume(prefetch=16, wait=0.2):
        with message:
            seen.setdefault(message.key, []).append(message.value)
    assert seen == {key: [row for row in range(140) if keys[row % 70] == key] for key in set(keys)}


def test_bad_input_is_refused_by_the_name_of_its_field_and_changes_nothing(client, name):
    queue = client.create_queue(name, order="lanes")
    for wrong in (-1, 5):
        with pytest.raises(InvalidRequest, match="lane") as caught:
            queue.publish_many([1, 2], priorities=[0, wrong])
        assert caught.value.details == {"row": 1, "field": "priority"}
    assert queue.stats().depth == 0
    queue.publish(1, priority=4)
    with pytest.raises(Conflict) as refused:
        client.create_queue(name, order="heap")
    assert refused.value.details["field"] == "order"
    with pytest.raises(InvalidRequest) as unknown:
        client.create_queue(name, order="stack")
    assert unknown.value.details["field"] == "order"


def test_lane_of_a_message_without_priority_is_normal(client, server, name):
    queue = client.create_queue(name, order="lanes")
    queue.publish("sdk")
    queue.publish_many(["low", "many", "critical"], priorities=[3, None, 0])
    with pytest.raises(InvalidRequest, match="not a lane"):
        queue.publish("wrong", priority=5)
    server.publish(name, "http")
    client.transact(publish=[(name, "transacted"), (name, "urgent", {"priority": 0})])
    assert drained(queue) == ["critical", "urgent", "sdk", "many", "http", "transacted", "low"]


@pytest.mark.parametrize("atomic", [True, False])
def test_priority_in_a_fifo_queue_is_named_in_the_reply(server, name, atomic):
    def published(**options):
        body = {"queue": name, "atomic": atomic, "messages": [{"payload": 1, **options}]}
        return server.ask("POST", "/v1/publish", body).json

    assert published(priority=3)["ignored"] == ["priority"]
    assert "ignored" not in published(priority=0) and "ignored" not in published()
    assert [message["priority"] for message in server.lease(name)] == [3, 0, 0]


def test_client_logs_a_priority_without_effect_once(server, name, caplog):
    for url in (server.url, f"grpc://{server.grpc}"):
        with sync.Client(url) as client:
            caplog.clear()
            for _ in range(2):
                client.queue(f"{name}-{url[:4]}").publish(1, priority=3)
            said = [record.getMessage() for record in caplog.records if "priority has no effect" in record.getMessage()]
            assert len(said) == 1 and "the order of the queue is fifo" in said[0]
