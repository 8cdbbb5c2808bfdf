"""WebSocket sessions of dialects without sockets: frames in a list and a manual clock."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from patience import until

from penstock.broker.feed import NAMED_MAX
from penstock.errors import Conflict
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process
from penstock.transports.dialects.pulsar_proxy.subscription import WINDOW, Subscription
from penstock.transports.dialects.queen.dashboard import STALE_WORKER_MS, Dashboard
from penstock.transports.dialects.sockets import UNSENT_FRAMES_MAX, DialectConnection, FrameBuffer, frame_bytes
from penstock.transports.http.edge import Edge
from penstock.transports.metrics import Metrics

ORDERS = parse_queue("orders")


class PausedBuffer(FrameBuffer):
    """A frame buffer whose client reads only when the test calls `read`."""

    def __init__(self):
        super().__init__(lambda frame: None)
        self.pause()

    @property
    def frames(self):
        return [json.loads(text) for text in self._unsent]

    def read(self):
        return [json.loads(self.take()) for _ in range(len(self._unsent))]


def story(steps):
    async def run():
        async with in_process() as box:
            await steps(SimpleNamespace(box=box, edge=Edge(box.broker, box.clock, Metrics()), output=PausedBuffer()))

    asyncio.run(asyncio.wait_for(run(), 60))


# -- connections ----------------------------------------------------------------------------------------------------


class Session:
    """Records its frames; a frame waits for `go_on`."""

    def __init__(self, edge, output):
        self.output = output
        self.frames = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def receive(self, text):
        await self.go_on.wait()
        if text == "break":
            raise RuntimeError("a bug")
        self.frames.append(text)
        await self.output.send(text)

    async def ended(self, *, lost):
        self.frames.append("lost" if lost else "left")


class FakeSocket:
    closed_by_client = False

    def __init__(self):
        self.written, self.closed, self.freed_count = [], None, 0

    def write(self, data):
        self.written.append(data)

    def close(self, close):
        self.closed = close.code
        self.connection.ended()

    def freed(self):
        self.freed_count += 1


def talk(steps):
    async def run():
        socket = FakeSocket()
        socket.connection = DialectConnection(None, Session, socket)
        await steps(socket, socket.connection, socket.connection._session)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_frames_are_handled_one_after_the_other():
    async def steps(socket, connection, session):
        session.go_on.clear()
        connection.receive(b"first")
        assert connection.busy
        session.go_on.set()
        await until(lambda: socket.freed_count)
        assert session.frames == ["first"] and socket.written == [frame_bytes(b'"first"')] and not connection.busy

    talk(steps)


def test_output_is_buffered_while_paused():
    async def steps(socket, connection, session):
        connection.paused()
        connection.receive(b"1")
        await until(lambda: socket.freed_count)
        assert socket.written == []
        connection.resumed()
        assert socket.written == [frame_bytes(b'"1"')]

    talk(steps)


@pytest.mark.parametrize(("frame", "code"), [(b"\xff", 1007), (b"break", 1011)])
def test_invalid_frame_or_crash_ends_the_connection(frame, code):
    async def steps(socket, connection, session):
        connection.receive(frame)
        await until(lambda: session.frames == ["lost"])
        assert socket.closed == code
        connection.receive(b"more")
        assert not connection.busy

    talk(steps)


def test_session_learns_whether_the_connection_was_lost():
    async def steps(socket, connection, session):
        session.go_on.clear()
        connection.receive(b"never finished")
        socket.closed_by_client = True
        connection.ended()
        connection.ended()
        await until(lambda: session.frames)
        await asyncio.sleep(0)
        assert session.frames == ["left"]

    talk(steps)

    async def stopped(socket, connection, session):
        connection.drain()
        await until(lambda: session.frames == ["left"])
        assert socket.closed == 1012

    talk(stopped)


# -- the dashboard --------------------------------------------------------------------------------------------------


def of(frames, event):
    return [frame["data"] for frame in frames if frame["event"] == event]


def test_idle_worker_is_disconnected():
    async def steps(at):
        dashboard = Dashboard(at.edge, at.output)
        await at.box.publish("orders", b"1", b"2")
        await at.box.lease("orders", consumer="w")
        await until(lambda: of(at.output.frames, "worker.connected"))
        now_ms = at.box.clock.now_ms()
        await dashboard.tick(now_ms + STALE_WORKER_MS - 1)
        assert not of(at.output.frames, "worker.disconnected")
        await dashboard.tick(now_ms + STALE_WORKER_MS)
        assert [data["workerId"] for data in of(at.output.read(), "worker.disconnected")] == ["w"]
        await at.box.lease("orders", consumer="w")
        await until(lambda: of(at.output.frames, "worker.connected"))
        await dashboard.ended(lost=True)

    story(steps)


def test_events_over_the_buffer_are_dropped_and_counted():
    async def steps(at):
        dashboard = Dashboard(at.edge, at.output)
        for _ in range(4):
            await at.box.publish("orders", *[b"x"] * NAMED_MAX)
        await until(lambda: len(at.output.frames) == UNSENT_FRAMES_MAX)
        await asyncio.sleep(0)
        at.output.read()
        await dashboard.tick(at.box.clock.now_ms())
        # One event is queue.created.
        assert at.output.read()[-1] == {"event": "events.dropped", "data": {"count": 401 - UNSENT_FRAMES_MAX}}
        await dashboard.tick(at.box.clock.now_ms())
        assert at.output.read() == []
        await dashboard.ended(lost=False)

    story(steps)


def test_feed_names_the_first_messages_of_a_large_batch():
    async def steps(at):
        happenings = []
        stop = at.box.broker.feed.watch(happenings.extend)
        await at.box.publish("orders", *[b"x"] * 1000, id=[b"%d" % number for number in range(1000)])
        leased = await at.box.lease("orders", max=1000, consumer="w")
        await at.box.broker.messages.ack([message.receipt for message in leased])
        await until(lambda: len(happenings) == 4)
        assert [each.kind for each in happenings] == ["queue_created", "published", "leased", "acked"]
        assert {(each.total, each.messages) for each in happenings[1:]} == {
            (1000, tuple(str(number) for number in range(NAMED_MAX)))
        }
        stop()
        await at.box.publish("orders", b"x")
        await asyncio.sleep(0)
        assert len(happenings) == 4
        assert at.box.host.loop.on_facts is None, "without watchers the feed does nothing"

    story(steps)


def test_feed_reports_every_end_of_a_message():
    async def steps(at):
        await at.box.broker.queues.put(ORDERS, {"max_retries": 0})
        happenings = []
        at.box.broker.feed.watch(happenings.extend)
        await at.box.publish("orders", b"1", b"2", b"3", delay_ms=[0, 60_000, 0], ttl_ms=[0, 0, 1_000])
        (first,) = await at.box.lease("orders")
        await at.box.broker.messages.nack([first.receipt], error="broken")
        runs = (await at.box.broker.log.read(ORDERS, offset="1", max=1)).runs
        await at.box.broker.scheduled.cancel(ORDERS, ids=[ulid_text(runs[0].id)])
        await at.box.advance(2_000)
        with pytest.raises(Conflict) as asked:
            await at.box.broker.queues.delete(ORDERS)
        await at.box.broker.queues.delete(ORDERS, confirm=asked.value.details["confirm"])
        await until(lambda: happenings[-1].kind == "queue_deleted")
        kinds = [each.kind for each in happenings]
        assert kinds == ["published", "leased", "dead_lettered", "cancelled", "expired", "queue_deleted"]
        assert happenings[2].error == "broken" and {each.queue for each in happenings} == {str(ORDERS)}

    story(steps)


# -- subscriptions --------------------------------------------------------------------------------------------------


async def subscribed(at):
    subscription = Subscription(at.edge, at.output)
    await subscription.receive('{"type": "subscribe", "topics": ["orders"], "client_id": "me"}')
    assert at.output.read()[0]["type"] == "subscribed"
    return subscription


def test_unacked_messages_are_bounded_by_the_window():
    async def steps(at):
        subscription = await subscribed(at)
        await at.box.publish("orders", *[b"{}"] * (WINDOW + 10))
        await until(lambda: len(at.output.frames) == WINDOW)
        for _ in range(20):
            await asyncio.sleep(0)
        sent = at.output.read()
        assert len(sent) == WINDOW
        for frame in sent[:3]:
            await subscription.receive(json.dumps({"type": "ack", "message_id": frame["message_id"]}))
        await until(lambda: len(at.output.frames) == 3)
        await subscription.ended(lost=False)
        stats = await at.box.broker.stats.queue(ORDERS)
        assert (stats["leased"], stats["depth"]) == (0, WINDOW + 7)

    story(steps)


def test_lost_connection_counts_an_attempt_and_closed_one_does_not():
    async def steps(at):
        for lost, attempt in ((False, 1), (True, 2)):
            subscription = await subscribed(at)
            if not lost:
                await at.box.publish("orders", b"{}")
            await until(lambda: at.output.frames)
            at.output.read()
            await subscription.ended(lost=lost)
            await at.box.advance(60_000)
            (message,) = await at.box.lease("orders", group="me")
            assert message.attempt == attempt
            await at.box.broker.messages.release([message.receipt])

    story(steps)


def test_end_during_a_lease_releases_it():
    async def steps(at):
        subscription = await subscribed(at)
        await until(lambda: at.box.broker.waiting)
        publishing = asyncio.ensure_future(at.box.publish("orders", b"{}"))
        await asyncio.sleep(0)
        await subscription.ended(lost=False)
        await publishing
        await asyncio.sleep(0)
        assert len(await at.box.lease("orders", group="me")) == 1

    story(steps)


def test_unsent_frames_are_bounded_in_bytes():
    async def steps(at):
        subscription = await subscribed(at)
        await at.box.publish("orders", *[b"x" * 700_000] * 4)
        await until(lambda: len(at.output.frames) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(at.output.frames) == 2, "the second frame started below the bound"
        at.output.read()
        await until(lambda: len(at.output.frames) == 2)
        await subscription.ended(lost=False)

    story(steps)


def test_send_waits_while_the_buffer_is_full():
    async def steps(at):
        subscription = Subscription(at.edge, at.output)
        for _ in range(UNSENT_FRAMES_MAX):
            await subscription.receive('{"type": "ping"}')
        stuck = asyncio.ensure_future(subscription.receive('{"type": "ping"}'))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not stuck.done() and len(at.output.frames) == UNSENT_FRAMES_MAX
        at.output.read()
        await stuck

    story(steps)
