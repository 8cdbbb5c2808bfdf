"""What WebSocket connections of dialects mean, without sockets: frames in a list, and time that moves when told."""

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
from penstock.transports.dialects.sockets import UNSENT_FRAMES_MAX, Conversation, Outlet, sealed
from penstock.transports.http.edge import Edge
from penstock.transports.metrics import Metrics

ORDERS = parse_queue("orders")


class Heard(Outlet):
    """An outlet whose client reads when the test says so."""

    def __init__(self):
        super().__init__(lambda frame: None)
        self.pause()

    @property
    def frames(self):
        return [json.loads(text) for text in self._unsent]

    def read(self):
        return [json.loads(self.take()) for _ in range(len(self._unsent))]


def story(told):
    async def run():
        async with in_process() as box:
            await told(SimpleNamespace(box=box, edge=Edge(box.broker, box.clock, Metrics()), heard=Heard()))

    asyncio.run(asyncio.wait_for(run(), 60))


# -- the line -------------------------------------------------------------------------------------------------------


class Session:
    """Notes what it is told, and takes its time if it is told to."""

    def __init__(self, edge, outlet):
        self.outlet = outlet
        self.told = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def receive(self, text):
        await self.go_on.wait()
        if text == "break":
            raise RuntimeError("a bug")
        self.told.append(text)
        await self.outlet.send(text)

    async def ended(self, *, lost):
        self.told.append("lost" if lost else "left")


class Line:
    goodbye = False

    def __init__(self):
        self.written, self.closed, self.freed_count = [], None, 0

    def write(self, sealed):
        self.written.append(sealed)

    def close(self, close):
        self.closed = close.code
        self.conversation.ended()

    def freed(self):
        self.freed_count += 1


def talk(story_of):
    async def run():
        line = Line()
        line.conversation = Conversation(None, Session, line)
        await story_of(line, line.conversation, line.conversation._session)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_frames_are_taken_one_after_the_other():
    async def told(line, conversation, session):
        session.go_on.clear()
        conversation.receive(b"first")
        assert conversation.busy
        session.go_on.set()
        await until(lambda: line.freed_count)
        assert session.told == ["first"] and line.written == [sealed(b'"first"')] and not conversation.busy

    talk(told)


def test_while_output_is_paused_it_is_kept_and_then_sent():
    async def told(line, conversation, session):
        conversation.paused()
        conversation.receive(b"1")
        await until(lambda: line.freed_count)
        assert line.written == []
        conversation.resumed()
        assert line.written == [sealed(b'"1"')]

    talk(told)


@pytest.mark.parametrize(("frame", "code"), [(b"\xff", 1007), (b"break", 1011)])
def test_what_cannot_be_taken_ends_the_connection(frame, code):
    async def told(line, conversation, session):
        conversation.receive(frame)
        await until(lambda: session.told == ["lost"])
        assert line.closed == code
        conversation.receive(b"more")
        assert not conversation.busy

    talk(told)


def test_how_a_connection_ended():
    async def told(line, conversation, session):
        session.go_on.clear()
        conversation.receive(b"never finished")
        line.goodbye = True
        conversation.ended()
        conversation.ended()
        await until(lambda: session.told)
        await asyncio.sleep(0)
        assert session.told == ["left"]

    talk(told)

    async def stopped(line, conversation, session):
        conversation.drain()
        await until(lambda: session.told == ["left"])
        assert line.closed == 1012

    talk(stopped)


# -- the dashboard --------------------------------------------------------------------------------------------------


def of(frames, event):
    return [frame["data"] for frame in frames if frame["event"] == event]


def test_a_worker_that_was_not_seen_for_a_while_is_gone():
    async def told(at):
        dashboard = Dashboard(at.edge, at.heard)
        await at.box.publish("orders", b"1", b"2")
        await at.box.lease("orders", consumer="w")
        await until(lambda: of(at.heard.frames, "worker.connected"))
        now_ms = at.box.clock.now_ms()
        dashboard.tick(now_ms + STALE_WORKER_MS - 1)
        assert not of(at.heard.frames, "worker.disconnected")
        dashboard.tick(now_ms + STALE_WORKER_MS)
        assert [data["workerId"] for data in of(at.heard.read(), "worker.disconnected")] == ["w"]
        await at.box.lease("orders", consumer="w")
        await until(lambda: of(at.heard.frames, "worker.connected"))
        await dashboard.ended(lost=True)

    story(told)


def test_what_a_slow_dashboard_cannot_take_is_dropped_and_counted():
    async def told(at):
        dashboard = Dashboard(at.edge, at.heard)
        for _ in range(4):
            await at.box.publish("orders", *[b"x"] * NAMED_MAX)
        await until(lambda: len(at.heard.frames) == UNSENT_FRAMES_MAX)
        await asyncio.sleep(0)
        at.heard.read()
        dashboard.tick(at.box.clock.now_ms())
        # One of them says that the queue is new.
        assert at.heard.read()[-1] == {"event": "events.dropped", "data": {"count": 401 - UNSENT_FRAMES_MAX}}
        dashboard.tick(at.box.clock.now_ms())
        assert at.heard.read() == []
        await dashboard.ended(lost=False)

    story(told)


def test_of_a_large_batch_the_first_messages_are_named():
    async def told(at):
        happenings = []
        stop = at.box.broker.feed.watch(happenings.extend)
        await at.box.publish("orders", *[b"x"] * 1000, id=[b"%d" % number for number in range(1000)])
        leased = await at.box.lease("orders", max=1000, consumer="w")
        await at.box.broker.ack([message.receipt for message in leased])
        await until(lambda: len(happenings) == 4)
        assert [each.kind for each in happenings] == ["queue_created", "published", "leased", "acked"]
        assert {(each.total, each.messages) for each in happenings[1:]} == {
            (1000, tuple(str(number) for number in range(NAMED_MAX)))
        }
        stop()
        await at.box.publish("orders", b"x")
        await asyncio.sleep(0)
        assert len(happenings) == 4
        assert at.box.host.loop.on_facts is None, "nobody watches, nothing is done"

    story(told)


def test_every_end_of_a_message_is_told():
    async def told(at):
        await at.box.broker.put_queue(ORDERS, {"max_retries": 0})
        happenings = []
        at.box.broker.feed.watch(happenings.extend)
        await at.box.publish("orders", b"1", b"2", b"3", delay_ms=[0, 60_000, 0], ttl_ms=[0, 0, 1_000])
        (first,) = await at.box.lease("orders")
        await at.box.broker.nack([first.receipt], error="broken")
        runs = (await at.box.broker.read(ORDERS, offset="1", max=1)).runs
        await at.box.broker.cancel(ORDERS, ids=[ulid_text(runs[0].id)])
        await at.box.advance(2_000)
        with pytest.raises(Conflict) as asked:
            await at.box.broker.delete_queue(ORDERS)
        await at.box.broker.delete_queue(ORDERS, confirm=asked.value.details["confirm"])
        await until(lambda: happenings[-1].kind == "queue_deleted")
        kinds = [each.kind for each in happenings]
        assert kinds == ["published", "leased", "dead_lettered", "cancelled", "expired", "queue_deleted"]
        assert happenings[2].error == "broken" and {each.queue for each in happenings} == {str(ORDERS)}

    story(told)


# -- subscriptions --------------------------------------------------------------------------------------------------


async def subscribed(at):
    subscription = Subscription(at.edge, at.heard)
    await subscription.receive('{"type": "subscribe", "topics": ["orders"], "client_id": "me"}')
    assert at.heard.read()[0]["type"] == "subscribed"
    return subscription


def test_a_client_is_given_no_more_than_it_may_hold():
    async def told(at):
        subscription = await subscribed(at)
        await at.box.publish("orders", *[b"{}"] * (WINDOW + 10))
        await until(lambda: len(at.heard.frames) == WINDOW)
        for _ in range(20):
            await asyncio.sleep(0)
        sent = at.heard.read()
        assert len(sent) == WINDOW
        for frame in sent[:3]:
            await subscription.receive(json.dumps({"type": "ack", "message_id": frame["message_id"]}))
        await until(lambda: len(at.heard.frames) == 3)
        await subscription.ended(lost=False)
        stats = at.box.broker.stats(ORDERS)
        assert (stats["leased"], stats["depth"]) == (0, WINDOW + 7)

    story(told)


def test_what_a_lost_client_held_is_a_failed_attempt_and_what_a_leaving_one_held_is_not():
    async def told(at):
        for lost, attempt in ((False, 1), (True, 2)):
            subscription = await subscribed(at)
            if not lost:
                await at.box.publish("orders", b"{}")
            await until(lambda: at.heard.frames)
            at.heard.read()
            await subscription.ended(lost=lost)
            await at.box.advance(60_000)
            (message,) = await at.box.lease("orders", group="me")
            assert message.attempt == attempt
            await at.box.broker.release([message.receipt])

    story(told)


def test_whoever_stops_in_the_middle_of_a_lease_holds_nothing():
    async def told(at):
        subscription = await subscribed(at)
        await until(lambda: at.box.broker.waiting)
        publishing = asyncio.ensure_future(at.box.publish("orders", b"{}"))
        await asyncio.sleep(0)
        await subscription.ended(lost=False)
        await publishing
        await asyncio.sleep(0)
        assert len(await at.box.lease("orders", group="me")) == 1

    story(told)


def test_what_waits_for_a_client_is_bounded_in_bytes():
    async def told(at):
        subscription = await subscribed(at)
        await at.box.publish("orders", *[b"x" * 700_000] * 4)
        await until(lambda: len(at.heard.frames) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(at.heard.frames) == 2, "the second began while there was room"
        at.heard.read()
        await until(lambda: len(at.heard.frames) == 2)
        await subscription.ended(lost=False)

    story(told)


def test_a_client_that_reads_nothing_is_waited_for():
    async def told(at):
        subscription = Subscription(at.edge, at.heard)
        for _ in range(UNSENT_FRAMES_MAX):
            await subscription.receive('{"type": "ping"}')
        stuck = asyncio.ensure_future(subscription.receive('{"type": "ping"}'))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not stuck.done() and len(at.heard.frames) == UNSENT_FRAMES_MAX
        at.heard.read()
        await stuck

    story(told)
