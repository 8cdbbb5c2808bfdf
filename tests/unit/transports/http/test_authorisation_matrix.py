"""Every operation of the contract x every verb x own and other tenant, over HTTP and over frames of a WebSocket."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from boxed import boxed
from tenants import OTHER, OWN, WITHOUT_CREDENTIAL, Tenants, code_of, expected, outcome
from websocket_fake import Client

from penstock.security.scopes import VERBS
from penstock.transports.http.request import Peer
from penstock.transports.websocket import WebSockets
from penstock.transports.websocket.sockets import Admitted
from penstock.wire.operations import OPERATIONS

each_operation = pytest.mark.parametrize("name", OPERATIONS)


@each_operation
@boxed
async def test_http_allows_exactly_as_the_contract_says(box, name):
    operation, tenants = OPERATIONS[name], Tenants(box)
    await tenants.open()
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            asked = await tenants.request(operation, tenant)
            key = (b"x-api-key", tenants.callers[verb].encode())
            reply = await tenants.ask(operation.method, asked.target, asked.body, key)
            found = outcome(operation, code_of(reply))
            assert found in expected(operation, verb, tenant), (verb, tenant, asked.target, reply)


@each_operation
@boxed
async def test_http_without_a_credential_has_only_health_and_login(box, name):
    operation, tenants = OPERATIONS[name], Tenants(box)
    asked = await tenants.request(operation, OWN)
    for header in ((b"x-api-key", b""), (b"x-unrelated", b"1"), (b"cookie", b"penstock_session=x")):
        reply = await tenants.ask(operation.method, asked.target, asked.body, header)
        if name == "login":
            assert reply["error"]["message"] == "the email or the password is wrong"
        else:
            found = outcome(operation, code_of(reply))
            assert found == ("allowed" if name in WITHOUT_CREDENTIAL else "unauthenticated"), header


def connected(tenants: Tenants, key: str) -> Client:
    principal = tenants.auth.authenticate(key, "")
    edge = tenants.app.edge_for(principal)
    sockets = WebSockets(tenants.broker, tenants.box.clock, tenants.app.metrics, tenants.app.ask)
    return Client(sockets, admitted=Admitted(principal, Peer("", ()), edge.broker, {}, tenants.auth))


@each_operation
@boxed
async def test_websocket_calls_are_allowed_exactly_as_the_contract_says(box, name):
    operation, tenants = OPERATIONS[name], Tenants(box)
    await tenants.open()
    if name == "event_stream":
        return  # a stream of its own: not a frame
    for verb in VERBS:
        client = connected(tenants, tenants.callers[verb])
        for tenant in (OWN, OTHER):
            asked = await tenants.request(operation, tenant)
            frame = {"method": operation.method, "path": asked.path, "query": urlencode(asked.query)}
            reply = await client.ask(type="call", **frame, **({} if asked.body is None else {"body": asked.body}))
            body = reply.get("body")
            found = outcome(operation, code_of(body if isinstance(body, dict) else {}))
            assert found in expected(operation, verb, tenant), (verb, tenant, asked.target, reply)
        client.close_quietly()


FRAMES = {
    "publish": ("publish", lambda queue, _: {"queue": queue, "messages": [{"payload": 1}]}),
    "reader": ("peek", lambda queue, _: {"type": "subscribe", "role": "reader", "queue": queue}),
    "consumer": ("consume", lambda queue, _: {"type": "subscribe", "role": "consumer", "queue": queue, "credit": 1}),
    "ack": ("consume", lambda _, receipt: {"receipts": [receipt]}),
    "nack": ("consume", lambda _, receipt: {"receipts": [receipt]}),
    "reject": ("consume", lambda _, receipt: {"receipts": [receipt]}),
    "release": ("consume", lambda _, receipt: {"receipts": [receipt]}),
    "extend": ("consume", lambda _, receipt: {"receipts": [receipt], "lease_ms": 1000}),
}


@pytest.mark.parametrize("kind", FRAMES)
@boxed
async def test_websocket_frames_are_allowed_as_their_operations(box, kind):
    tenants, (needed, frame_of) = Tenants(box), FRAMES[kind]
    await tenants.open()
    for verb in VERBS:
        client = connected(tenants, tenants.callers[verb])
        for tenant in (OWN, OTHER):
            queue = f"{tenant}/default/orders"
            await box.publish(queue, b"1")
            receipt = (await box.lease(queue))[0].receipt
            reply = await client.ask(**{"type": kind, **frame_of(queue, receipt)})
            code = code_of(reply) or code_of(reply.get("body") or {})
            if kind == "consumer" and not code and verb != needed:
                # Any verb sees the queue; the lease behind the subscription is what needs `consume`.
                code = code_of(await client.take("ended"))
            allowed = verb == needed and tenant == OWN
            assert (code == "") == allowed, (verb, tenant, reply)
            assert allowed or code in ("forbidden", "queue_not_found")
            assert allowed or tenant == OWN or verb not in ("publish", "peek", "consume") or code == "queue_not_found"
        client.close_quietly()
