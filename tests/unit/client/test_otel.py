"""Spans of the SDK as an OpenTelemetry SDK sees them: names, kinds, attributes, and one trace from end to end."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock import Client, Conflict, Message, ProducerSeq, Reject
from penstock.otel import LINKS_MAX, instrument
from penstock.testing import MemoryBroker

ORDERS = "default/default/orders"


class Traced:
    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def instrument(self, client):
        return instrument(client, self.provider)

    def spans(self, operation=None):
        found = self.exporter.get_finished_spans()
        return [span for span in found if operation in (None, span.attributes.get("messaging.operation.name"))]

    def one(self, operation):
        (span,) = self.spans(operation)
        return span


@pytest.fixture
def traced():
    return Traced()


@pytest.fixture
def broker():
    with MemoryBroker() as broker:
        yield broker


def run(test):
    async def main():
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


def attributes(span) -> dict:
    return {name.removeprefix("messaging."): value for name, value in span.attributes.items()}


def is_child(span, parent) -> bool:
    return (span.context.trace_id, span.parent and span.parent.span_id) == (
        parent.context.trace_id,
        parent.context.span_id,
    )


def test_one_trace_from_the_publisher_to_the_handler(traced, broker):
    async def test():
        async with traced.instrument(broker.client()) as client:
            orders = client.queue("orders")
            with traced.tracer.start_as_current_span("request") as request:
                placed = await orders.publish({"n": 1}, headers={"mine": "kept"})
            async for message in orders.consume("billing", wait=0.05):
                async with message:
                    assert set(message.headers) == {"mine", "traceparent"}
                    traced.tracer.start_span("inside").end()
        publish, receive, process, ack = map(traced.one, ("publish", "receive", "process", "ack"))
        assert is_child(publish, request) and is_child(process, publish)
        (inside,) = [span for span in traced.spans() if span.name == "inside"]
        assert is_child(inside, process)
        assert (publish.name, publish.kind) == (f"publish {ORDERS}", SpanKind.PRODUCER)
        assert attributes(publish) == {
            "system": "penstock", "operation.name": "publish", "operation.type": "send", "destination.name": ORDERS,
            "message.body.size": 7, "message.id": placed.id, "destination.partition.id": "0",
        }  # fmt: skip
        assert (process.name, process.kind) == (f"process {ORDERS}", SpanKind.CONSUMER)
        assert attributes(process) == {
            "system": "penstock", "operation.name": "process", "operation.type": "process", "destination.name": ORDERS,
            "consumer.group.name": "billing", "message.id": placed.id, "message.body.size": 7,
            "destination.partition.id": "0",
        }  # fmt: skip
        assert (receive.kind, receive.parent, attributes(receive)["operation.type"]) == (
            SpanKind.CLIENT,
            None,
            "receive",
        )
        assert [link.context.span_id for link in receive.links] == [publish.context.span_id]
        assert (ack.kind, ack.parent) == (SpanKind.CLIENT, None)
        assert attributes(ack)["operation.type"] == "settle" and attributes(ack)["batch.message_count"] == 1

    run(test)


def test_a_batch_links_to_all_it_came_from(traced, broker):
    async def test():
        async with traced.instrument(broker.client()) as client:
            orders = client.queue("orders")
            await orders.publish_many([1, 2])
            await orders.publish(3)
            async for batch in orders.consume_batches(wait=0.05):
                async with batch:
                    pass
            many, single = traced.spans("publish")
            assert attributes(many)["batch.message_count"] == 2
            process = traced.one("process")
            assert attributes(process)["batch.message_count"] == 3
            origins = [many.context.span_id, many.context.span_id, single.context.span_id]
            assert [link.context.span_id for link in process.links] == origins
            await orders.publish_many(range(LINKS_MAX + 1))
            async for batch in orders.consume_batches(wait=0.05):
                await batch.ack()
            assert len(traced.spans("receive")[-1].links) == LINKS_MAX

    run(test)


def test_failures_are_on_their_spans(traced, broker):
    async def test():
        async with traced.instrument(broker.client()) as client:
            orders = await client.create_queue("orders", max_retries=0)
            await orders.publish("bad")
            with pytest.raises(ValueError, match="no"):
                async for message in orders.consume(wait=0.05):
                    async with message:
                        raise ValueError("no")
            process, nack = traced.one("process"), traced.one("nack")
            assert (process.status.status_code, process.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
            assert attributes(nack)["operation.type"] == "settle"
            with pytest.raises(Conflict):
                await orders.publish_many([1], sequence=ProducerSeq("p", 5, 0))
                await orders.publish_many([1], sequence=ProducerSeq("p", 4, 0))
            assert traced.spans("publish")[-1].attributes["error.type"] == "fenced_producer"

    run(test)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_worker_is_traced_and_its_failure_too(traced, broker, in_thread):
    async def test():
        async with traced.instrument(broker.client()) as client:

            def look(value):
                traced.tracer.start_span("inside").end()
                if value == "bad":
                    raise Reject("hopeless")

            async def look_asynchronously(value, message: Message):
                look(value)

            client.worker("orders")(look if in_thread else look_asynchronously)
            await client.queue("orders").publish("good")
            await client.queue("orders").publish("bad")
            await client.run_workers(wait=0.05, signals=False)
        good, bad = traced.spans("process")
        assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
        assert bad.attributes["error.type"] == "Reject"
        insides = [span for span in traced.spans() if span.name == "inside"]
        assert is_child(insides[0], good) and is_child(insides[1], bad)
        assert is_child(traced.one("reject"), bad)

    run(test)


def test_the_blocking_twin_is_traced_alike(traced, broker):
    with traced.instrument(broker.sync_client()) as client:
        orders = client.queue("orders")
        placed = orders.publish(1)
        orders.publish_many([2, 3])
        for message in orders.consume(wait=0.0):
            with message:
                pass
        with orders.consume(wait=0.0) as rest:
            assert list(rest) == []

        @client.worker("worked")
        def work(value):
            pass

        client.queue("worked").publish(4)
        client.run_workers(wait=0.05, signals=False)
    first, many, _ = traced.spans("publish")
    assert attributes(first)["message.id"] == placed.id
    processed = traced.spans("process")
    assert [is_child(span, parent) for span, parent in zip(processed, (first, many, many), strict=False)] == [True] * 3
    assert len(processed) == 4
    assert sum(span.attributes["messaging.batch.message_count"] for span in traced.spans("ack")) == 4
    assert sum(span.attributes["messaging.batch.message_count"] for span in traced.spans("receive")) == 4


def test_a_transaction_is_processing_and_settling(traced, broker):
    async def test():
        async with traced.instrument(broker.client()) as client:
            orders = client.queue("orders")
            await orders.publish(1)
            message = await anext(orders.consume())
            async with message.transaction() as tx:
                tx.publish("out", 2)
        assert is_child(traced.one("transact"), traced.one("process"))

    run(test)


def test_a_context_that_the_caller_sets_is_left_alone(traced, broker):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def test():
        async with traced.instrument(broker.client()) as client:
            await client.queue("orders").publish(1, headers={"traceparent": given})
            message = await anext(client.queue("orders").consume())
            assert message.headers == {"traceparent": given}
            async with message:
                span = trace.get_current_span()
                assert f"{span.get_span_context().trace_id:032x}" in given
        assert trace.get_current_span() is trace.INVALID_SPAN

    run(test)


def test_spans_name_the_server_only_if_instrumented(traced):
    client = traced.instrument(Client("http://127.0.0.1:7400"))
    assert client._carrier.tracing._constant == {
        "messaging.system": "penstock", "server.address": "127.0.0.1", "server.port": 7400,
    }  # fmt: skip
    assert Client("http://127.0.0.1:7400")._carrier.tracing is None
