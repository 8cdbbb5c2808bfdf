"""Every operation of the contract x every verb x own and other tenant, over gRPC: its methods, `Call`, and streams."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_served import Refused, Served, run_once, served
from tenants import OTHER, OWN, WITHOUT_CREDENTIAL, Asked, Tenants, code_of, expected, outcome

from penstock.security.scopes import VERBS
from penstock.transports.grpc.methods import REPLIES, SERVICE, STREAMS, UNARY
from penstock.v1 import broker_pb2 as pb
from penstock.wire.operations import OPERATIONS, Operation

Metadata = tuple[tuple[str, str], ...]
NOT_ACCEPTED: tuple[Metadata, ...] = ((), (("authorization", "Basic x"),))

each_operation = pytest.mark.parametrize("name", OPERATIONS)
each_method = pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.grpc])


@asynccontextmanager
async def tenants_served() -> AsyncIterator[tuple[Served, Tenants]]:
    made: list[Tenants] = []
    async with served(prepare=lambda box, app: made.append(Tenants(box, app))) as here:
        (tenants,) = made
        await tenants.open()
        yield here, tenants


def story(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def wrapped(name: str) -> None:
        async def whole() -> None:
            async with tenants_served() as (here, tenants):
                await test(here, tenants, name)

        run_once(whole())

    del wrapped.__wrapped__  # pytest would take its parameters for fixtures
    return wrapped


def message_of(asked: Asked) -> Message:
    kind: type[Message] = getattr(pb, SERVICE.methods_by_name[asked.operation.grpc_method].input_type.name)
    return ParseDict(_in_proto(asked.fields), kind())


def _in_proto(value: Any) -> Any:
    """A payload of any JSON value is the text `json`."""
    if isinstance(value, dict):
        return {
            **{name: _in_proto(each) for name, each in value.items() if name != "payload"},
            **({"json": json.dumps(value["payload"])} if "payload" in value else {}),
        }
    return [_in_proto(each) for each in value] if isinstance(value, list) else value


async def code_of_call(call: Awaitable[Any]) -> str:
    """The code of a refusal; empty: there is none."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return Refused(error).code or error.code().name
    return ""


def key_of(tenants: Tenants, verb: str) -> Metadata:
    return (("x-api-key", tenants.callers[verb]),)


@each_method
@story
async def test_methods_allow_exactly_as_the_contract_says(here, tenants, name):
    operation = OPERATIONS[name]
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            asked = await tenants.request(operation, tenant)
            call = getattr(here.stub, operation.grpc_method)(message_of(asked), metadata=key_of(tenants, verb))
            code = await code_of_call(call)
            assert code != "invalid_request", asked
            assert outcome(operation, code) in expected(operation, verb, tenant), (verb, tenant, code)


async def carried(here: Served, operation: Operation, asked: Asked, metadata: Metadata) -> str:
    body = b"" if asked.body is None else json.dumps(asked.body).encode()
    request = pb.CallRequest(method=operation.method, target=asked.target, content_type="application/json", body=body)
    reply = await here.stub.Call(request, metadata=metadata)
    return code_of(json.loads(reply.body)) if reply.body[:1] == b"{" else ""


@each_operation
@story
async def test_call_allows_exactly_as_the_contract_says(here, tenants, name):
    operation = OPERATIONS[name]
    if name == "event_stream":
        return  # it has no single reply
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            asked = await tenants.request(operation, tenant)
            code = await carried(here, operation, asked, key_of(tenants, verb))
            assert outcome(operation, code) in expected(operation, verb, tenant), (verb, tenant, code)


def test_every_method_is_in_the_contract():
    """A method that is not derived from an operation has no row in the table that the tests above walk through."""
    derived = {each.grpc_method for each in OPERATIONS.values() if each.grpc}
    streams = {f"{each.grpc_method}Stream" for each in OPERATIONS.values() if each.streams}
    assert {each.name for each in SERVICE.methods} == derived | streams | {"Call"}
    assert {*UNARY} == derived and {*STREAMS, *REPLIES} == streams


def test_without_a_credential_only_health_and_login_answer():
    async def whole() -> None:
        async with tenants_served() as (here, tenants):
            for operation in OPERATIONS.values():
                asked = await tenants.request(operation, OWN)
                for metadata in NOT_ACCEPTED:
                    if operation.grpc:
                        call = getattr(here.stub, operation.grpc_method)(message_of(asked), metadata=metadata)
                        assert await code_of_call(call) == "unauthenticated", operation.name
                    code = await carried(here, operation, asked, metadata)
                    if operation.name == "login":
                        assert code in ("unauthenticated", "rate_limited")
                        continue
                    allowed = operation.name in WITHOUT_CREDENTIAL
                    assert code == ("" if allowed else "unauthenticated"), operation.name
            for metadata in NOT_ACCEPTED:
                for open_stream in STREAM_CALLS.values():
                    assert await open_stream(here, "shop/default/orders", "", metadata) == "unauthenticated"
            # Probes of the gRPC protocol itself: whether the process serves, as /healthz.
            health = health_pb2_grpc.HealthStub(here.channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1

    run_once(whole())


# -- streams ------------------------------------------------------------------------------------------------------


async def publish_stream(here: Served, queue: str, _: str, metadata: Metadata) -> str:
    request = pb.PublishRequest(queue=queue, messages=[pb.NewMessage(json="1")])
    return await first_code(
        here.stub.PublishStream(iter([pb.PublishStreamRequest(publish=request)]), metadata=metadata)
    )


async def read_stream(here: Served, queue: str, _: str, metadata: Metadata) -> str:
    return await first_code(here.stub.ReadStream(pb.ReadStreamRequest(queue=queue), metadata=metadata))


async def lease_stream(here: Served, queue: str, _: str, metadata: Metadata) -> str:
    opened = pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue=queue), credits=1)
    return await first_code(here.stub.LeaseStream(iter([opened]), metadata=metadata))


async def settle_in_stream(here: Served, queue: str, receipt: str, metadata: Metadata) -> str:
    """A stream that may be open, with the receipt of another queue."""
    opened = pb.LeaseStreamOpen(queue="shop/default/orders")
    request = pb.LeaseStreamRequest(open=opened, number=7, ack=pb.AckRequest(receipts=[receipt]))
    return await first_code(here.stub.LeaseStream(iter([request]), metadata=metadata))


async def first_code(call: Any) -> str:
    """The code of the first reply, or of the refusal of the stream."""
    try:
        async for reply in call:
            found = reply.error.code if isinstance(reply, pb.PublishStreamReply) else ""
            for settled in getattr(reply, "settled", ()):
                found = settled.error.code
            return found
    except grpc.aio.AioRpcError as error:
        return Refused(error).code or error.code().name
    finally:
        call.cancel()
    return ""


STREAM_CALLS = {
    "publish": publish_stream,
    "read": read_stream,
    "lease": lease_stream,
    "ack": settle_in_stream,
}
"""By the operation that a request of the stream is."""


@pytest.mark.parametrize("name", STREAM_CALLS)
@story
async def test_streams_allow_exactly_as_their_operations(here, tenants, name):
    operation = OPERATIONS[name]
    for verb in VERBS:
        for tenant in (OWN, OTHER):
            queue = f"{tenant}/default/orders"
            await here.box.publish(queue, b"1")
            receipt = (await here.box.lease(queue))[0].receipt if name == "ack" else ""
            await here.box.publish(queue, b"1")
            code = await STREAM_CALLS[name](here, queue, receipt, key_of(tenants, verb))
            assert outcome(operation, code) in expected(operation, verb, tenant), (verb, tenant, code)
