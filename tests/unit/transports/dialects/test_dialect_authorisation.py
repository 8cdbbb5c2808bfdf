"""Every route of every dialect x every verb x own and other tenant.

A route is allowed exactly as the operation of the contract that it stands for. A route without a row fails.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

import pytest
from boxed import boxed
from tenants import OTHER, OWN, Tenants, code_of, expected, outcome

from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.security.scopes import QUEUE_VERBS, VERBS
from penstock.transports.dialects import DIALECTS, with_dialects
from penstock.transports.dialects.pulsar_proxy.subscription import Subscription
from penstock.transports.dialects.queen.dashboard import Dashboard
from penstock.transports.dialects.sockets import FrameBuffer
from penstock.transports.dialects.table import SOCKETS
from penstock.transports.http import HttpApp
from penstock.wire.keys import KeyRequest
from penstock.wire.operations import OPERATIONS

DATA = {"a": 1}
_numbers = count()


class Row(NamedTuple):
    operation: str
    """Of the contract: the route is allowed as this operation is."""
    target: str
    """With `{tenant}`; `{id}` and `{receipt}` are those of a leased message."""
    body: Any = None
    queue: str = "orders"
    hides: bool = True
    """Objects of the other tenant do not exist. False: the refusal names a scope, and depends on no object."""


def _queen(**fields: Any) -> dict[str, Any]:
    return {"ns": "{tenant}", "task": "default", "queue": "orders", **fields}


TOPIC, HEAP, NEW = "{tenant}/default/orders", "{tenant}/default/heap", "n{number}"
_acked = {"transactionId": "{id}", "status": "completed", "queue": TOPIC}
_failed = {"transactionId": "{id}", "status": "failed", "queue": TOPIC}
_token = {"topic": HEAP, "message_id": "{id}", "lease_token": "{receipt}"}

ROWS: dict[tuple[str, str], list[Row]] = {
    # -- queen
    ("POST", "/api/v1/configure"): [
        Row("patch_queue", "/api/v1/configure", _queen()),
        Row("put_queue", "/api/v1/configure", _queen(queue=NEW)),
    ],
    ("POST", "/api/v1/push"): [
        Row("publish", "/api/v1/push", {"items": [_queen(payload=1)]}),
        Row("publish", "/api/v1/push", {"items": [_queen(payload=1, queue=NEW)]}),
    ],
    ("GET", "/api/v1/pop/ns/{ns}"): [Row("lease", "/api/v1/pop/ns/{tenant}", hides=False)],
    ("GET", "/api/v1/pop/ns/{ns}/task/{task}"): [Row("lease", "/api/v1/pop/ns/{tenant}/task/default", hides=False)],
    ("GET", "/api/v1/pop/ns/{ns}/task/{task}/queue/{queue}"): [
        Row("lease", "/api/v1/pop/ns/{tenant}/task/default/queue/orders")
    ],
    ("POST", "/api/v1/ack"): [
        Row("ack", "/api/v1/ack", _acked),
        Row("nack", "/api/v1/ack", _failed),
        Row("ack", "/api/v1/ack", {"message_ids": ["{id}"], "topic": TOPIC}),
        Row("ack", "/api/v1/ack", {"receipts": ["{receipt}"]}),
    ],
    ("POST", "/api/v1/ack/batch"): [Row("ack", "/api/v1/ack/batch", {"acknowledgments": [_acked, _failed]})],
    ("GET", "/api/v1/analytics/queues"): [Row("queue_table", "/api/v1/analytics/queues")],
    ("GET", "/api/v1/analytics/queue-depths"): [Row("queue_table", "/api/v1/analytics/queue-depths")],
    ("GET", "/api/v1/analytics/throughput"): [Row("queue_table", "/api/v1/analytics/throughput")],
    ("GET", "/api/v1/analytics/ns/{ns}"): [Row("stats", "/api/v1/analytics/ns/{tenant}")],
    ("GET", "/api/v1/analytics/ns/{ns}/task/{task}"): [Row("stats", "/api/v1/analytics/ns/{tenant}/task/default")],
    # -- pulsar-proxy
    ("POST", "/api/v1/messages"): [
        Row("publish", "/api/v1/messages", {"topic": TOPIC, "payload": DATA, "metadata": {"priority": "high"}}),
        Row("publish", "/api/v1/messages", {"topic": "{tenant}/" + NEW, "payload": DATA}),
    ],
    ("POST", "/api/v1/messages/bulk"): [
        Row("publish", "/api/v1/messages/bulk", {"messages": [{"topic": TOPIC, "payload": DATA}]})
    ],
    ("POST", "/api/v1/topics"): [
        Row("patch_queue", "/api/v1/topics", {"topic": TOPIC, "delivery_mode": "at_least_once"}),
        Row("put_queue", "/api/v1/topics", {"topic": "{tenant}/" + NEW, "delivery_mode": "at_least_once"}),
    ],
    ("GET", "/api/v1/poll"): [
        Row("lease", f"/api/v1/poll?timeout=0&topics={TOPIC}"),
        Row("lease", f"/api/v1/poll?timeout=0&topics={TOPIC}&client_id=c"),
        Row("read", f"/api/v1/poll?timeout=0&topics={TOPIC}&since=01JP0000000000000000000000"),
    ],
    # -- disheap
    ("POST", "/v1/heaps"): [Row("put_queue", "/v1/heaps", {"topic": "{tenant}/" + NEW})],
    ("GET", "/v1/heaps"): [Row("queue_table", "/v1/heaps")],
    # One segment of the path: heaps of the namespace `default`, which is no tenant's here.
    ("PATCH", "/v1/heaps/{topic}"): [Row("patch_queue", "/v1/heaps/heap", {}, "")],
    ("DELETE", "/v1/heaps/{topic}"): [Row("delete_queue", "/v1/heaps/heap?force=true", None, "")],
    ("GET", "/v1/stats"): [Row("queue_table", "/v1/stats"), Row("stats", f"/v1/stats?topic={HEAP}")],
    ("POST", "/v1/enqueue"): [Row("publish", "/v1/enqueue", {"topic": HEAP, "payload": "MQ=="})],
    ("POST", "/v1/enqueue:batch"): [
        Row("publish", "/v1/enqueue:batch", {"requests": [{"topic": HEAP, "payload": "MQ=="}]})
    ],
    ("POST", "/v1/ack"): [Row("ack", "/v1/ack", _token, "heap")],
    ("POST", "/v1/nack"): [Row("nack", "/v1/nack", _token, "heap")],
    ("POST", "/v1/extend"): [
        Row("extend", "/v1/extend", {"topic": HEAP, "lease_token": "{receipt}", "extension": "5s"}, "heap")
    ],
    ("GET", "/v1/peek"): [Row("peek", f"/v1/peek?topic={HEAP}")],
    # -- epochqueue
    ("POST", "/namespaces/{ns}/queues/{queue}/messages"): [
        Row("publish", "/namespaces/{tenant}/queues/orders/messages", {"body": "MQ=="})
    ],
    ("POST", "/namespaces/{ns}/queues"): [Row("put_queue", "/namespaces/{tenant}/queues", {"name": NEW})],
    ("GET", "/api/stats"): [Row("queue_table", "/api/stats")],
    ("GET", "/api/stats/summary"): [Row("queue_table", "/api/stats/summary")],
    ("GET", "/health"): [Row("readiness", "/health")],
}
ROUTES = sorted({(route.method, route.path) for routes in DIALECTS.values() for route in routes})
each_route = pytest.mark.parametrize("route", ROUTES, ids=" ".join)


class Dialects(Tenants):
    """Tenants, and every dialect."""

    def __init__(self, box: Any):
        super().__init__(box, HttpApp(box.broker, box.clock, with_dialects(list(DIALECTS))))

    async def filled(self, row: Row, tenant: str) -> tuple[str, Any]:
        """The target and the body of a request about objects of this tenant, which exist."""
        orders, heap = f"{tenant}/default/orders", f"{tenant}/default/heap"
        await self.broker.queues.put(parse_queue(heap), {"order": "heap"})
        await self.box.publish(orders, b"1", b"2")
        await self.box.publish(heap, b"1", b"2")
        values = {"tenant": tenant, "number": str(next(_numbers))}
        if "{id}" in json.dumps(row.body) or "{receipt}" in json.dumps(row.body):
            leased = (await self.box.lease(f"{tenant}/default/{row.queue}"))[0]
            values |= {"id": leased.id, "receipt": leased.receipt}
        return _replaced(row.target, values), _replaced(row.body, values)

    async def code(self, method: str, row: Row, tenant: str, *headers: tuple[bytes, bytes]) -> tuple[str, Any]:
        target, body = await self.filled(row, tenant)
        reply = await self.ask(method, target, body, *headers)
        return _code_of(reply), reply


def _replaced(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(f"{{{name}}}", text)
    elif isinstance(value, dict):
        return {name: _replaced(each, values) for name, each in value.items()}
    elif isinstance(value, list):
        return [_replaced(each, values) for each in value]
    return value


def _code_of(reply: dict[str, Any]) -> str:
    """The code of a refusal, in the form of any dialect."""
    for result in reply.get("results", ()):
        if "error" in result:
            return str(result["error"])
    if isinstance(reply.get("details"), list):
        return str(reply["details"][0]["reason"])
    return code_of(reply)


def test_every_route_has_a_row():
    assert {*ROUTES} == {*ROWS}


@each_route
@boxed
async def test_routes_allow_exactly_as_their_operations(box, route):
    dialects = Dialects(box)
    await dialects.open()
    for row in ROWS[route]:
        operation = OPERATIONS[row.operation]
        for verb in VERBS:
            for tenant in (OWN, OTHER) if row.queue else (OTHER,):
                key = (b"x-api-key", dialects.callers[verb].encode())
                code, reply = await dialects.code(route[0], row, tenant, key)
                assert code not in ("invalid_request", "stale_receipt"), reply
                found = expected(operation, verb, tenant)
                found = {"forbidden"} if "queue_not_found" in found and not row.hides else found
                assert outcome(operation, code) in found, (row, verb, tenant, reply)


@each_route
@boxed
async def test_routes_show_nothing_of_the_other_tenant(box, route):
    """Lists of the own queues have no names of other namespaces, and count none of their messages."""
    dialects = Dialects(box)
    await dialects.open()
    key = (b"x-api-key", dialects.callers["peek"].encode())
    for row in ROWS[route]:
        if row.operation == "queue_table":
            before = (await dialects.code(route[0], row, OWN, key))[1]
            await box.publish("bank/default/orders", b"1", b"2", b"3")
            await dialects.broker.queues.put(parse_queue("bank/default/heap"), {"order": "heap"})
            after = await dialects.ask(route[0], row.target, None, key)
            before.pop("timestamp", None)
            after.pop("timestamp", None)
            assert before == after and "bank" not in json.dumps(after) and after


@boxed
async def test_heap_of_the_default_namespace_needs_queue_admin(box):
    dialects = Dialects(box)
    await dialects.broker.queues.put(parse_queue("heap"), {"order": "heap"})
    for verb in QUEUE_VERBS:
        made = await dialects.broker.keys.create(KeyRequest(verb, [f"{verb}:default/*"]))
        for route in (("PATCH", "/v1/heaps/{topic}"), ("DELETE", "/v1/heaps/{topic}")):
            (row,) = ROWS[route]
            code, reply = await dialects.code(route[0], row, OWN, (b"x-api-key", made.key.encode()))
            allowed = {"", "conflict"}  # a confirmation is asked for
            assert code in (allowed if verb == "queue.admin" else {"forbidden"}), (verb, reply)


@each_route
@boxed
async def test_routes_need_a_credential(box, route):
    dialects = Dialects(box)
    for row in ROWS[route]:
        code, reply = await dialects.code(route[0], row, OWN, (b"x-unrelated", b"1"))
        assert code == "unauthenticated", reply


# -- WebSockets ---------------------------------------------------------------------------------------------------


async def subscribe(tenants: Tenants, verb: str, tenant: str) -> str:
    """The code of the first error of a subscription."""
    output = ListedFrames()
    session = Subscription(_edge(tenants, verb), output)
    await session.receive(json.dumps({"type": "subscribe", "topics": [f"{tenant}/default/orders"], "client_id": "c"}))
    await session.ended(lost=False)
    return next((frame["error"] for frame in output.frames if frame["type"] == "error"), "")


async def watch(tenants: Tenants, verb: str, tenant: str) -> str:
    try:
        await Dashboard(_edge(tenants, verb), ListedFrames()).ended(lost=False)
    except PenstockError as error:
        return error.code
    return ""


def _edge(tenants: Tenants, verb: str) -> Any:
    assert tenants.app.auth is not None
    return tenants.app.edge_for(tenants.app.auth.authenticate(tenants.callers[verb], ""))


class ListedFrames(FrameBuffer):
    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.frames: list[Any] = []

    def offer(self, frame: Any) -> bool:
        self.frames.append(frame)
        return True


SOCKET_ROWS: dict[str, tuple[str, Callable[[Tenants, str, str], Awaitable[str]]]] = {
    "/ws": ("lease", subscribe),
    "/ws/dashboard": ("events_of_all", watch),
}


def test_every_websocket_has_a_row():
    assert {path for paths in SOCKETS.values() for path in paths} == {*SOCKET_ROWS}


@boxed
async def test_subscription_is_allowed_as_a_lease(box):
    tenants = Dialects(box)
    await tenants.open()
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            await box.publish(f"{tenant}/default/orders", b"1")
            code = await subscribe(tenants, verb, tenant)
            assert outcome(OPERATIONS["lease"], code) in expected(OPERATIONS["lease"], verb, tenant), (verb, tenant)


@boxed
async def test_dashboard_of_all_queues_needs_peek_everywhere(box):
    tenants = Dialects(box)
    await tenants.open()
    for verb in VERBS:
        assert await watch(tenants, verb, OWN) == "forbidden", verb
