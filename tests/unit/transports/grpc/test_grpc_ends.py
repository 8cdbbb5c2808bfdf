"""Cancelled calls, deadlines and server shutdown: no waiter and no lease is left behind."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from at_once import at_once
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_served import Refused, refusal, run

from penstock.batch import build
from penstock.server import config, lifecycle
from penstock.server.config import Address
from penstock.transports.grpc import server as server_module
from penstock.v1 import broker_pb2 as pb

# -- callers --------------------------------------------------------------------------------------------------------


def test_cancelled_lease_leaves_no_waiter_and_no_lease():
    async def story(here):
        await here.stub.PutQueue(pb.PutQueueRequest(queue="orders"))
        for _ in range(5):
            call = here.stub.Lease(pb.LeaseRequest(queue="orders", wait_ms=60_000))
            await here.until(lambda: here.broker.waiting == 1)
            call.cancel()
            await here.until(lambda: here.broker.waiting == 0)
        await here.publish("orders", b"1")
        assert (here.ready("orders"), here.leased("orders")) == (1, 0)
        text = (await here.metrics.exposition(here.broker))[0].decode()
        assert 'penstock_grpc_calls_total{operation="lease",status="CANCELLED"} 5.0' in text

    run(story)


def test_wait_ends_before_the_deadline():
    async def story(here):
        await here.stub.PutQueue(pb.PutQueueRequest(queue="orders"))
        reply = await here.stub.Lease(pb.LeaseRequest(queue="orders", wait_ms=60_000), timeout=0.5)
        assert not reply.messages
        read = await here.stub.Read(pb.ReadRequest(queue="orders", offset="latest", wait_ms=60_000), timeout=0.5)
        assert not read.messages and here.broker.waiting == 0

    run(story)


def test_cancelled_read_stream_ends():
    async def story(here):
        await here.publish("orders", b"1")
        call = here.stub.ReadStream(pb.ReadStreamRequest(queue="orders"))
        await call.read()
        call.cancel()
        await here.until(lambda: 'operation="read_stream",status="CANCELLED"' in exposition(here))

    run(story)


def exposition(here):
    return at_once(here.metrics.exposition(here.broker))[0].decode()


def test_connections_are_counted():
    async def story(here):
        await here.publish("orders", b"1")
        assert 'penstock_connections{transport="grpc"} 1.0' in exposition(here)
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(here.target, options=own) as other:
            await other.channel_ready()  # the client is ready a moment before the server has listed its connection
            await here.until(lambda: 'penstock_connections{transport="grpc"} 2.0' in exposition(here))
        await here.until(lambda: 'penstock_connections{transport="grpc"} 1.0' in exposition(here))

    run(story)


# -- the server -----------------------------------------------------------------------------------------------------


async def drain(here, grace_s=10):
    """Drain and stop, in the order of the server process."""
    await here.server.drain()
    here.broker.stop_waiting()
    await here.server.stop(grace_s)


def test_health_is_not_serving_during_drain():
    async def story(here):
        stub = health_pb2_grpc.HealthStub(here.channel)
        states = health_pb2.HealthCheckResponse
        for service in ("", "penstock.v1.Broker"):
            assert (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status == states.SERVING
        assert (await refusal(stub.Check(health_pb2.HealthCheckRequest(service="no")))).status == "NOT_FOUND"
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="penstock.v1.Broker"))
        assert (await watch.read()).status == states.SERVING
        await here.server.drain()
        assert (await watch.read()).status == states.NOT_SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == states.NOT_SERVING
        await here.publish("orders", b"1")  # what is open is still served

    run(story)


def test_health_of_all_services_is_listed(caplog):
    async def story(here):
        stub = health_pb2_grpc.HealthStub(here.channel)
        states = health_pb2.HealthCheckResponse

        async def statuses():
            listed = await stub.List(health_pb2.HealthListRequest())
            return {service: response.status for service, response in listed.statuses.items()}

        assert await statuses() == {"": states.SERVING, "penstock.v1.Broker": states.SERVING}
        await here.server.drain()
        assert set((await statuses()).values()) == {states.NOT_SERVING}
        assert not caplog.records

    run(story)


def test_health_watch_does_not_delay_stop():
    async def story(here):
        watch = health_pb2_grpc.HealthStub(here.channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        async with asyncio.timeout(8):
            await drain(here, grace_s=600)

    run(story)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_the_services(version):
    async def story(here):
        async def ask(**question):
            call = here.channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )()
            await call.write(reflection_pb2.ServerReflectionRequest(**question))
            answer = await call.read()
            await call.done_writing()
            return answer

        listed = await ask(list_services="")
        assert {each.name for each in listed.list_services_response.service} == {
            "penstock.v1.Broker", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
            "grpc.reflection.v1.ServerReflection",
        }  # fmt: skip
        for service in listed.list_services_response.service:
            found = (await ask(file_containing_symbol=service.name)).file_descriptor_response.file_descriptor_proto
            files = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in found]
            assert service.name in {f"{file.package}.{each.name}" for file in files for each in file.service}

    run(story)


def test_drain_ends_waits_and_streams():
    async def story(here):
        await here.publish("orders", b"1", b"2")
        waiting = asyncio.ensure_future(here.stub.Lease(pb.LeaseRequest(queue="orders", group="g2", max=2, wait_ms=1)))
        await waiting
        long_poll = here.stub.Lease(pb.LeaseRequest(queue="orders", group="g2", wait_ms=60_000))
        publisher = here.stub.PublishStream()
        await publisher.write(pb.PublishStreamRequest(publish=pb.PublishRequest(queue="other", batch=build([b"1"]))))
        assert (await publisher.read()).HasField("published")
        reader = here.stub.ReadStream(pb.ReadStreamRequest(queue="orders"))
        await reader.read()
        consumer = here.stub.LeaseStream()
        await consumer.write(pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), credits=10))
        messages = (await consumer.read()).messages
        assert len(messages) == 2
        await here.until(lambda: here.broker.waiting == 2)
        ending = asyncio.ensure_future(drain(here))
        assert not (await long_poll).messages
        assert (await consumer.read()).draining
        # There is time to settle what it has.
        acks = pb.AckRequest(receipts=[message.receipt for message in messages])
        await consumer.write(pb.LeaseStreamRequest(number=1, ack=acks))
        (settled,) = (await consumer.read()).settled
        assert [result.status for result in settled.results] == ["acked", "acked"]
        for call in (consumer, publisher, reader):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                assert await call.read() is not None and await call.read()
            refused = Refused(caught.value)
            assert (refused.status, refused.code, refused.error.retryable) == ("UNAVAILABLE", "unavailable", True)
        async with asyncio.timeout(8):
            await ending

    run(story)


def test_drain_releases_unsettled_messages(monkeypatch):
    monkeypatch.setattr("penstock.limits.STREAM_DRAIN_MS", 50)

    async def story(here):
        await here.publish("orders", b"1")
        consumer = here.stub.LeaseStream()
        await consumer.write(pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), credits=10))
        await consumer.read()
        await drain(here)
        assert (here.ready("orders"), here.leased("orders")) == (1, 0)

    run(story)


def test_closed_stream_ends_with_ok():
    async def story(here):
        await here.publish("orders", b"1")
        consumer = here.stub.LeaseStream()
        await consumer.write(pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), credits=10))
        await consumer.read()
        ending = asyncio.ensure_future(drain(here))
        assert (await consumer.read()).draining
        await consumer.done_writing()
        assert await consumer.read() is grpc.aio.EOF
        assert await consumer.code() == grpc.StatusCode.OK
        await ending

    run(story)


def test_port_in_use_is_an_error():
    async def story(here):
        with pytest.raises(OSError, match="bind"):
            server_module.GrpcServer(here.target)

    run(story)


@pytest.mark.parametrize("asked", ["auto", "address"])
def test_only_the_default_port_is_replaced_if_in_use(asked, monkeypatch):
    async def story(here):
        taken = Address("127.0.0.1", here.server.port)
        monkeypatch.setattr(config, "GRPC_DEFAULT", taken)
        if asked == "auto":
            bound = lifecycle.bind_grpc(config.Settings())
            assert bound is not None and bound.port not in (0, taken.port)
            await bound.stop(0)
        else:
            with pytest.raises(config.ConfigError, match=f"grpc: cannot listen on {taken}"):
                lifecycle.bind_grpc(config.Settings(grpc=str(taken)))

    run(story)


def test_server_that_was_never_started_can_be_stopped():
    async def story(here):
        bound = server_module.GrpcServer("127.0.0.1:0")
        assert bound.port > 0
        await bound.stop(0)

    run(story)
