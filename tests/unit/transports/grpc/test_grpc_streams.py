"""LeaseStream, PublishStream and ReadStream: credits, settlements, pipelining, and ended streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import grpc
import pytest
from at_once import at_once
from grpc_served import Refused, Served, run
from structlog.testing import capture_logs

from penstock import limits
from penstock.batch import Batch, build
from penstock.errors import Unavailable
from penstock.transports.grpc import lease_stream
from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerStub


class Consumer:
    """A client of LeaseStream that records its replies."""

    def __init__(self, here: Served, queue: str | None = "orders", call: Any = None, **options: Any):
        self.call = call or here.stub.LeaseStream()
        self._opening = pb.LeaseStreamOpen(queue=queue, **options)
        self.messages: list[pb.Message] = []
        self.settled: dict[int, pb.StreamSettled] = {}
        self.generations: list[int] = []
        self.draining = False
        self.numbers: list[int] = []

    async def open(self, credits: int = 0) -> Consumer:
        await self.call.write(pb.LeaseStreamRequest(open=self._opening, credits=credits))
        return self

    async def send(self, **fields: Any) -> None:
        await self.call.write(pb.LeaseStreamRequest(**fields))

    async def hear(self) -> bool:
        """Read one reply; False at the end."""
        reply = await self.call.read()
        if reply is grpc.aio.EOF:
            return False
        self.messages += reply.messages
        for part in reply.runs:
            for row, payload in enumerate(Batch.open(part.batch).payloads()):
                receipt = f"{part.receipt}{part.offset + row}" if part.HasField("receipt") else ""
                self.messages.append(pb.Message(payload=payload, receipt=receipt, offset=part.offset + row))
        for each in reply.settled:
            self.settled[each.number] = each
            self.numbers.append(each.number)
        if reply.HasField("generation"):
            self.generations.append(reply.generation)
        self.draining |= reply.draining
        return True

    async def until(self, condition: Any) -> None:
        while not condition():
            assert await self.hear(), "the stream ended"

    async def ending(self) -> Refused:
        """Read until the stream ends with an error, and return it."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await self.hear():
                pass
        return Refused(caught.value)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    @property
    def receipts(self) -> list[str]:
        return [message.receipt for message in self.messages]


class Line:
    """A proxied connection that can be cut, as by a crash of the client."""

    def __init__(self, port: int):
        self._port = port
        self._transports: list[asyncio.WriteTransport] = []

    async def __aenter__(self) -> Line:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        address = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = BrokerStub(self._channel)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._listening.close()
        await self._channel.close()
        self.cut()

    def cut(self) -> None:
        for transport in self._transports:
            transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", self._port)
        self._transports += [writer.transport, server[1].transport]
        await asyncio.gather(_forward(reader, server[1]), _forward(server[0], writer))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


# -- credits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [pb.MESSAGES, pb.FRAMES])
def test_deliveries_are_bounded_by_credits(form):
    async def story(here):
        await here.publish("orders", *[b"%d" % number for number in range(10)])
        consumer = await Consumer(here, form=form).open(credits=3)
        await consumer.until(lambda: len(consumer.messages) == 3)
        assert here.leased("orders") == 3
        await consumer.send(credits=4)
        await consumer.until(lambda: len(consumer.messages) == 7)
        assert here.leased("orders") == 7
        assert consumer.payloads == [b"%d" % number for number in range(7)]

    run(story)


def test_waiting_stream_gets_new_messages():
    async def story(here):
        await here.publish("orders", b"0")
        consumer = await Consumer(here).open(credits=100)
        await consumer.until(lambda: len(consumer.messages) == 1)
        await here.until(lambda: here.broker.waiting == 1)
        await here.publish("orders", b"1")
        await consumer.until(lambda: len(consumer.messages) == 2)

    run(story)


def test_reply_is_bounded_by_max():
    async def story(here):
        await here.publish("orders", *[b"x"] * 10)
        call = here.stub.LeaseStream()
        await call.write(pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders", max=4), credits=10))
        counts = []
        while sum(counts) < 10:
            counts.append(len((await call.read()).messages))
        # Replies that are ready together may be joined, so only the sum is checked.
        assert max(counts) <= 8

    run(story)


@pytest.mark.parametrize("credits", [-1, limits.STREAM_CREDITS_MAX + 1])
def test_credits_have_bounds(credits):
    async def story(here):
        await here.publish("orders", b"1")
        consumer = await Consumer(here).open()
        await consumer.send(credits=credits)
        ended = await consumer.ending()
        assert (ended.status, ended.details) == ("INVALID_ARGUMENT", {"field": "credits"})

    run(story)


# -- settling -----------------------------------------------------------------------------------------------------


def test_settlements_are_answered_by_number():
    async def story(here):
        await here.publish("orders", *[b"%d" % number for number in range(6)])
        consumer = await Consumer(here).open(credits=6)
        await consumer.until(lambda: len(consumer.messages) == 6)
        receipts = consumer.receipts
        await consumer.send(
            number=7,
            ack=pb.AckRequest(receipts=receipts[:1]),
            nack=[pb.NackRequest(receipts=receipts[1:2], delay_ms=60_000, error="e")],
            reject=[pb.RejectRequest(receipts=receipts[2:3], error="e")],
            extend=[pb.ExtendRequest(receipts=receipts[3:4], lease_ms=60_000)],
            release=pb.ReleaseRequest(receipts=receipts[4:5]),
        )
        await consumer.send(number=8, ack=pb.AckRequest(receipts=receipts[:1]))
        await consumer.until(lambda: 8 in consumer.settled)
        assert consumer.numbers == [7, 8]
        assert [(result.receipt, result.status) for result in consumer.settled[7].results] == list(
            zip(receipts, ["acked", "retrying", "dead_lettered", "extended", "released"], strict=False)
        )
        assert [result.status for result in consumer.settled[8].results] == ["stale"]

    run(story)


def test_range_receipt_is_one_result():
    async def story(here):
        await here.publish("orders", *[b"x"] * 1_000)
        consumer = await Consumer(here, form=pb.FRAMES).open(credits=1_000)
        await consumer.until(lambda: len(consumer.messages) == 1_000)
        prefix = consumer.receipts[0].rpartition(".")[0]
        await consumer.send(number=1, ack=pb.AckRequest(receipts=[f"{prefix}.0-999"]))
        await consumer.until(lambda: 1 in consumer.settled)
        assert [(result.receipt, result.status) for result in consumer.settled[1].results] == [
            (f"{prefix}.0-999", "acked")
        ]
        assert here.leased("orders") == 0

    run(story)


def test_refused_settlement_does_not_end_the_stream(monkeypatch):
    async def story(here):
        await here.publish("orders", b"1", b"2")
        consumer = await Consumer(here).open(credits=2)
        await consumer.until(lambda: len(consumer.messages) == 2)

        async def fail(*_, **__):
            raise Unavailable("busy", retry_after_ms=5)

        with monkeypatch.context() as patched:
            patched.setattr(here.broker.messages, "nack", fail)
            await consumer.send(
                number=1,
                ack=pb.AckRequest(receipts=consumer.receipts[:1]),
                nack=[pb.NackRequest(receipts=consumer.receipts[1:])],
            )
            await consumer.until(lambda: 1 in consumer.settled)
        answer = consumer.settled[1]
        assert (answer.error.code, answer.error.retry_after_ms) == ("unavailable", 5)
        assert [result.status for result in answer.results] == ["acked"]
        await consumer.send(number=2, ack=pb.AckRequest(receipts=consumer.receipts[1:]))
        await consumer.until(lambda: 2 in consumer.settled)

    run(story)


# -- what is wrong with a request -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([pb.LeaseStreamRequest(credits=1)], "open"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"))] * 2, "open"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen())], "queue"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders!"))], "queue"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders", max=0))], "max"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders", form=7))], "form"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders", lease_ms=1))], "lease_ms"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), generation=3)], "generation"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), extend=[pb.ExtendRequest(receipts=["x"])])],
         "lease_ms"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), ack=pb.AckRequest(receipts=["x" * 300]))],
         "receipts"),
        ([pb.LeaseStreamRequest(open=pb.LeaseStreamOpen(queue="orders"), ack=pb.AckRequest(receipts=["x"] * 6_000),
                                nack=[pb.NackRequest(receipts=["x"] * 6_000)])], "receipts"),
    ],
)  # fmt: skip
def test_invalid_request_ends_the_stream_with_its_field(requests, field):
    async def story(here):
        await here.publish("orders", b"1")
        consumer = Consumer(here)
        for request in requests:
            await consumer.call.write(request)
        ended = await consumer.ending()
        assert (ended.status, ended.details["field"]) == ("INVALID_ARGUMENT", field)

    run(story)


def test_stream_of_a_missing_or_deleted_queue_ends():
    async def story(here):
        ended = await (await Consumer(here, queue="none").open(credits=1)).ending()
        assert (ended.status, ended.code) == ("NOT_FOUND", "queue_not_found")
        await here.publish("orders", b"1")
        consumer = await Consumer(here).open(credits=10)
        await consumer.until(lambda: consumer.messages)
        await here.until(lambda: here.broker.waiting == 1)
        refused = None
        try:
            await here.stub.DeleteQueue(pb.DestroyRequest(queue="orders"))
        except grpc.aio.AioRpcError as error:
            refused = Refused(error)
        await here.stub.DeleteQueue(pb.DestroyRequest(queue="orders", confirm=refused.details["confirm"]))
        assert (await consumer.ending()).code == "queue_not_found"

    run(story)


def test_unparsable_stream_request_is_an_invalid_argument():
    async def story(here):
        for method in ("LeaseStream", "PublishStream"):
            call = here.channel.stream_stream(f"/penstock.v1.Broker/{method}")()
            await call.write(b"\xff\xff")
            if method == "PublishStream":
                reply = pb.PublishStreamReply.FromString(await call.read())
                assert reply.error.code == "invalid_request"
                await call.done_writing()
                assert await call.code() == grpc.StatusCode.OK
            else:
                assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(story)


# -- the end of a stream --------------------------------------------------------------------------------------------


async def retrying_at_once(here, **config):
    backoff = pb.Backoff(kind="none")
    await here.stub.PutQueue(pb.PutQueueRequest(queue="orders", config=pb.QueueConfig(backoff=backoff, **config)))


@pytest.mark.parametrize(("end", "attempt"), [("cancelled", 1), ("deadline", 1), ("half-closed", 1), ("lost", 2)])
def test_ended_stream_returns_only_unsettled_messages(end, attempt):
    """A lost connection counts an attempt; other ends release the messages."""

    async def story(here):
        async with Line(here.server.port) as line:
            await ended(here, line)

    async def ended(here, line):
        await retrying_at_once(here)
        await here.publish("orders", *[b"%d" % number for number in range(10)])
        timeout = 2 if end == "deadline" else None
        consumer = await Consumer(here, call=line.stub.LeaseStream(timeout=timeout)).open(credits=10)
        await consumer.until(lambda: len(consumer.messages) == 10)
        await consumer.send(number=1, ack=pb.AckRequest(receipts=consumer.receipts[:4]))
        await consumer.until(lambda: 1 in consumer.settled)
        if end == "cancelled":
            consumer.call.cancel()
        elif end == "lost":
            line.cut()
        elif end == "half-closed":
            await consumer.call.done_writing()
        await here.until(lambda: here.ready("orders") == 6)
        assert here.leased("orders") == 0
        again = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=10))
        assert [message.payload for message in again.messages] == [b"%d" % number for number in range(4, 10)]
        assert {message.attempt for message in again.messages} == {attempt}

    run(story)


def test_message_that_crashes_its_consumers_becomes_a_dead_letter():
    async def story(here):
        await retrying_at_once(here, max_retries=2)
        await here.publish("orders", b"poison")
        for attempt in (1, 2, 3):
            async with Line(here.server.port) as line:
                consumer = await Consumer(here, call=line.stub.LeaseStream()).open(credits=1)
                await consumer.until(lambda consumer=consumer: consumer.messages)
                assert consumer.messages[0].attempt == attempt
                line.cut()
        await here.until(lambda: at_once(here.broker.stats.queue("default/default/orders"))["dead"] == 1)
        (letter,) = (await here.stub.DeadLetters(pb.DeadLettersRequest(queue="orders"))).messages
        assert "lost" in letter.error

    run(story)


def test_unsent_messages_of_a_lost_stream_count_no_attempt():
    """Messages that the client never received cannot have crashed it."""

    async def story(here):
        await retrying_at_once(here)
        for _ in range(30):
            await here.publish("orders", *[b"x" * 500_000] * 2)
        async with Line(here.server.port) as line:
            await Consumer(here, call=line.stub.LeaseStream(), form=pb.FRAMES).open(credits=60)
            await here.until(lambda: here.leased("orders") == 60 or here.leased("orders") > 20)
            line.cut()
            await here.until(lambda: here.ready("orders") == 60)
        attempts = Counter()
        while here.ready("orders"):
            reply = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=1))
            attempts.update(message.attempt for message in reply.messages)
        assert attempts[1] > attempts[2] > 0

    run(story)


def test_ack_just_before_a_lost_connection_counts():
    async def story(here):
        await here.publish("orders", *[b"x"] * 100)
        consumer = await Consumer(here).open(credits=100)
        await consumer.until(lambda: len(consumer.messages) == 100)
        await consumer.send(ack=pb.AckRequest(receipts=consumer.receipts[:50]))
        await consumer.call.done_writing()
        await here.until(lambda: here.ready("orders") == 50)
        assert (await here.broker.stats.queue("default/default/orders"))["totals"]["acked"] == 50

    run(story)


def test_closed_stream_sends_the_last_results():
    async def story(here):
        await here.publish("orders", b"1", b"2")
        consumer = await Consumer(here).open(credits=2)
        await consumer.until(lambda: len(consumer.messages) == 2)
        await consumer.send(number=1, ack=pb.AckRequest(receipts=consumer.receipts[:1]))
        await consumer.call.done_writing()
        while await consumer.hear():
            pass
        assert await consumer.call.code() == grpc.StatusCode.OK
        assert [result.status for result in consumer.settled[1].results] == ["acked"]
        await here.until(lambda: here.ready("orders") == 1)

    run(story)


def test_stream_without_requests_ends_with_ok():
    async def story(here):
        call = here.stub.LeaseStream()
        await call.done_writing()
        assert await call.code() == grpc.StatusCode.OK

    run(story)


def test_retryable_error_does_not_end_the_stream(monkeypatch):
    async def story(here):
        await here.publish("orders", b"1")
        lease, refusals = here.broker.messages.lease, [Unavailable("busy", retry_after_ms=1) for _ in range(3)]

        async def sometimes(*given, **more):
            if refusals:
                raise refusals.pop()
            return await lease(*given, **more)

        monkeypatch.setattr(here.broker.messages, "lease", sometimes)
        consumer = await Consumer(here).open(credits=1)
        await consumer.until(lambda: consumer.messages)
        assert not refusals

    run(story)


def test_large_delivery_is_split_over_replies():
    async def story(here):
        for _ in range(4):
            await here.publish("orders", *[b"x" * 700_000] * 3)
        consumer = await Consumer(here, form=pb.FRAMES).open(credits=100)
        await consumer.until(lambda: len(consumer.messages) == 12)
        assert here.leased("orders") == 12

    run(story)


def test_settlements_are_answered_one_by_one(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_REQUESTS_MAX", 2)

    async def story(here):
        await here.publish("orders", *[b"x"] * 50)
        consumer = await Consumer(here, form=pb.FRAMES).open(credits=50)
        await consumer.until(lambda: len(consumer.messages) == 50)
        for number, receipt in enumerate(consumer.receipts):
            await consumer.send(number=number + 1, ack=pb.AckRequest(receipts=[receipt]))
        await consumer.until(lambda: len(consumer.settled) == 50)
        assert consumer.numbers == list(range(1, 51))

    run(story)


def test_at_most_once_messages_are_not_returned():
    async def story(here):
        await here.stub.PutQueue(pb.PutQueueRequest(queue="orders", config=pb.QueueConfig(delivery="at_most_once")))
        await here.publish("orders", b"1")
        consumer = await Consumer(here).open(credits=5)
        await consumer.until(lambda: consumer.messages)
        assert consumer.receipts == [""]
        await consumer.call.done_writing()
        assert await consumer.call.code() == grpc.StatusCode.OK
        assert here.ready("orders") == 0

    run(story)


def test_streams_lost_at_any_time_leave_no_lease_and_no_log_entry():
    """A connection that is lost during a write, a read or a settlement is not logged as a failure."""

    async def story(here):
        await retrying_at_once(here, max_retries=100)
        total = 8_000  # at most half of it is acked
        for _ in range(8):
            batch = build([b"x" * 200] * 1_000)
            await here.stub.Publish(pb.PublishRequest(queue="orders", batch=batch))
        with capture_logs() as logged:
            for turn in range(40):
                call = here.stub.LeaseStream()
                opening = pb.LeaseStreamOpen(queue="orders", form=pb.FRAMES, max=50)
                await call.write(pb.LeaseStreamRequest(open=opening, credits=1_000))
                for _ in range(turn % 5):
                    reply = await call.read()
                    receipts = [f"{part.receipt}{part.offset}-{part.offset + part.count - 1}" for part in reply.runs]
                    await call.write(pb.LeaseStreamRequest(ack=pb.AckRequest(receipts=receipts[:1]), credits=50))
                for _ in range(turn):
                    await asyncio.sleep(0)
                call.cancel()
            await here.until(lambda: here.leased("orders") == 0 and here.broker.waiting == 0)
        stats = await here.broker.stats.queue("default/default/orders")
        assert stats["ready"] + stats["totals"]["acked"] == total and stats["totals"]["acked"] > 0
        assert not [entry for entry in logged if entry["log_level"] in ("error", "critical")]

    run(story)


def test_output_to_a_client_that_does_not_read_is_bounded():
    async def story(here):
        for _ in range(30):
            await here.publish("orders", *[b"x" * 500_000] * 2)
        consumer = await Consumer(here, form=pb.FRAMES).open(credits=1_000)
        held = limits.STREAM_BYTES_MAX + limits.LEASE_REPLY_BYTES_MAX
        before = -1
        while here.leased("orders") != before:
            before = here.leased("orders")
            await asyncio.sleep(0.2)
        assert 0 < before * 500_000 <= held
        await consumer.until(lambda: len(consumer.messages) == 60)

    run(story)


# -- members --------------------------------------------------------------------------------------------------------


def test_member_receives_a_new_generation_and_continues():
    async def story(here):
        stub = here.stub
        await stub.PutQueue(pb.PutQueueRequest(queue="orders", config=pb.QueueConfig(partitions=2)))
        first = await stub.JoinGroup(pb.JoinGroupRequest(queue="orders", group="g", member="a"))
        consumer = await Consumer(here, group="g", member="a", generation=first.generation).open(credits=100)
        await here.until(lambda: here.broker.waiting == 1)
        second = await stub.JoinGroup(pb.JoinGroupRequest(queue="orders", group="g", member="b"))
        await consumer.until(lambda: consumer.generations)
        assert consumer.generations == [second.generation]
        share = await stub.Heartbeat(
            pb.HeartbeatRequest(queue="orders", group="g", member="a", generation=first.generation)
        )
        await consumer.send(generation=share.generation)
        await here.until(lambda: here.broker.waiting == 1)
        await stub.Publish(
            pb.PublishRequest(queue="orders", messages=[pb.NewMessage(payload=b"x", key=f"{n}") for n in range(50)])
        )
        await consumer.until(lambda: consumer.messages)
        assert {message.partition for message in consumer.messages} == set(share.assigned)

    run(story)


# -- publish --------------------------------------------------------------------------------------------------------


def test_publishes_and_refusals_are_answered_in_order():
    async def story(here):
        call = here.stub.PublishStream()
        requests = [
            pb.PublishRequest(queue="orders", batch=build([b"%d" % number])) if number % 3 else pb.PublishRequest()
            for number in range(30)
        ]
        for request in requests:
            await call.write(pb.PublishStreamRequest(publish=request))
        await call.done_writing()
        replies = [reply async for reply in call]
        assert await call.code() == grpc.StatusCode.OK
        assert [reply.WhichOneof("outcome") for reply in replies] == [
            "published" if number % 3 else "error" for number in range(30)
        ]
        assert [reply.published.runs[0].offset for reply in replies if reply.HasField("published")] == list(range(20))

    run(story)


def test_publisher_waits_at_the_byte_limit_without_loss(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_REQUESTS_MAX", 3)
    monkeypatch.setattr(limits, "STREAM_BYTES_MAX", 10_000)

    async def story(here):
        call = here.stub.PublishStream()
        frame = build([b"x" * 4_000])

        async def write():
            for _ in range(50):
                await call.write(pb.PublishStreamRequest(publish=pb.PublishRequest(queue="orders", batch=frame)))
            await call.done_writing()

        writing = asyncio.ensure_future(write())
        replies = [reply async for reply in call]
        await writing
        assert [reply.published.runs[0].offset for reply in replies] == list(range(50))

    run(story)


def test_received_publish_is_stored_after_a_disconnect():
    async def story(here):
        call = here.stub.PublishStream()
        await call.write(pb.PublishStreamRequest(publish=pb.PublishRequest(queue="orders", batch=build([b"1"]))))
        assert (await call.read()).HasField("published")
        call.cancel()
        assert here.ready("orders") == 1

    run(story)


# -- the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [pb.MESSAGES, pb.FRAMES])
def test_read_stream_follows_the_log(form):
    async def story(here):
        await here.publish("orders", b"0", b"1")
        call = here.stub.ReadStream(pb.ReadStreamRequest(queue="orders", offset="1", form=form))
        first = await call.read()
        assert (first.next_offset, len(first.messages) + len(first.runs)) == (2, 1)
        for number in range(2, 5):
            await here.publish("orders", b"%d" % number)
            reply = await call.read()
            assert (reply.next_offset, reply.end_offset) == (number + 1, number + 1)
        call.cancel()

    run(story)


def test_read_stream_at_the_end_first_sends_its_offset():
    async def story(here):
        await here.publish("orders", b"0")
        call = here.stub.ReadStream(pb.ReadStreamRequest(queue="orders", offset="latest"))
        assert ((await call.read()).next_offset) == 1
        await here.publish("orders", b"1")
        assert [message.payload for message in (await call.read()).messages] == [b"1"]
        call.cancel()

    run(story)


def test_read_stream_of_a_missing_queue_is_refused():
    async def story(here):
        call = here.stub.ReadStream(pb.ReadStreamRequest(queue="none"))
        assert await call.code() == grpc.StatusCode.NOT_FOUND

    run(story)


def test_queued_deliveries_fit_the_byte_limit():
    assert lease_stream._DELIVERIES_AHEAD * limits.LEASE_REPLY_BYTES_MAX <= limits.STREAM_BYTES_MAX
