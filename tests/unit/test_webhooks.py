"""Webhooks through the broker: delivered, retried, given up, in order, over restarts and rotations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from patience import until
from webhook_endpoint import answering, endpoint, taken

from penstock import limits
from penstock.broker.vault import Vault
from penstock.errors import Conflict, InvalidRequest, NotFound, Unavailable
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.webhooks import endpoint as room
from penstock.transports.webhooks.breaker import FAILURES_IN_A_ROW, REST_S
from penstock.transports.webhooks.courier import WebhookCourier
from penstock.transports.webhooks.guard import Guard, parse_networks
from penstock.transports.webhooks.sender import Sender
from penstock.wire.webhooks import RETRY_DELAYS_MS, WebhookChanges, WebhookRequest

ORDERS = parse_queue("orders")
DAY_MS = 86_400_000


def asked(url: str, **values: object) -> WebhookRequest:
    return msgspec.convert({"queue": "orders", "url": url, **values}, WebhookRequest)


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


@asynccontextmanager
async def delivering(box: InProcess, allow: str = "127.0.0.0/8") -> AsyncIterator[WebhookCourier]:
    guard = Guard(parse_networks(allow))
    courier = WebhookCourier(box.broker, guard, Sender(guard), box.clock)
    courier.start()
    try:
        yield courier
    finally:
        courier.stop()
        box.host.loop.waiters.dismiss()
        await courier.close(1)


def stats(box: InProcess) -> dict:
    return box.broker.stats(ORDERS)


def test_messages_arrive_and_are_acked():
    async def story():
        async with in_process() as box, delivering(box) as courier, endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url))
            await box.publish(
                "orders", b"\x00raw", b'{"n":1}', headers=[b"", b'{"traceparent":"00-1-2-01","cookie":"x"}']
            )
            first, second = sorted(await here.wait_for(2), key=lambda each: each.id)
            assert (first.body, first.headers["content-type"]) == (b"\x00raw", "application/octet-stream")
            assert first.headers["penstock-queue"] == ORDERS and first.headers["penstock-attempt"] == "1"
            assert second.headers["traceparent"] == "00-1-2-01" and "cookie" not in second.headers
            await until(lambda: stats(box)["totals"]["acked"] == 2)
            status = box.broker.webhooks.get(made.id).delivery
            assert (status.delivered, status.failed, status.circuit) == (2, 0, "closed")
            assert courier.outcomes == {"delivered": 2}
            attempts = box.broker.webhooks.attempts(made.id, 1).attempts
            assert [attempt.outcome for attempt in attempts] == ["delivered"]

    run(story)


def test_what_fails_is_tried_again_by_its_schedule_and_given_up_with_the_last_error():
    async def story():
        async with in_process() as box, endpoint() as here:
            await box.broker.put_queue(ORDERS, {"max_retries": 0})
            here.answer = answering(500, 404, 503)
            async with delivering(box):
                made = await box.broker.webhooks.create(asked(here.url, retry_delays_ms=[5_000, 60_000]))
                await box.publish("orders", b"1")
                for count, delay_ms in ((1, 5_000), (2, 60_000)):
                    await here.wait_for(count)
                    await until(lambda: stats(box)["waiting_for_retry"] == 1)
                    (attempt,) = box.broker.webhooks.attempts(made.id, 1).attempts
                    wait_ms = attempt.retry_at_ms - box.clock.now_ms()
                    assert 0.8 * delay_ms <= wait_ms <= 1.2 * delay_ms
                    explained = (await box.broker.explain(ORDERS, id=here.deliveries[0].id))["messages"][0]
                    assert f"Attempt {count} failed (webhook: the endpoint answered" in explained["text"]
                    await box.advance(wait_ms - 1)
                    assert len(here.deliveries) == count
                    await box.advance(1)
                await here.wait_for(3)
                await until(lambda: stats(box)["dead"] == 1)
            assert len({delivery.id for delivery in here.deliveries}) == 1
            assert [delivery.headers["penstock-attempt"] for delivery in here.deliveries] == ["1", "2", "3"]
            times = [int(delivery.headers["webhook-timestamp"]) for delivery in here.deliveries]
            assert times == sorted(set(times))
            (letter,) = (await box.broker.dead_letters(ORDERS))["dead_letters"]
            assert (letter.letter.reason, letter.letter.attempts) == ("rejected", 3)
            assert letter.letter.error == "webhook: the endpoint answered 503 (Service Unavailable)"

    run(story)


@pytest.mark.parametrize("final_snapshot", [True, False])
def test_a_message_that_waits_for_its_retry_survives_a_restart(final_snapshot):
    async def story():
        async with in_process() as box, endpoint() as here:
            async with delivering(box):
                here.answer = answering(500)
                made = await box.broker.webhooks.create(asked(here.url, retry_delays_ms=[5_000] * 9))
                await box.publish("orders", b"1")
                await here.wait_for(1)
                await until(lambda: stats(box)["waiting_for_retry"] == 1)
            await box.restart(final_snapshot=final_snapshot)
            here.answer = taken
            async with delivering(box):
                await box.advance(6_000)
                await here.wait_for(2)
                await until(lambda: stats(box)["depth"] == 0)
            first, second = here.deliveries
            assert (first.id, second.headers["penstock-attempt"]) == (second.id, "2")
            assert box.broker.webhooks.get(made.id).url == here.url

    run(story)


def test_a_sender_that_dies_costs_an_attempt_and_not_the_message():
    """The lease of a dead process runs out. The queue's own budget is long used up, the webhook's is not."""

    async def story():
        async with in_process() as box, endpoint() as here:
            await box.broker.put_queue(ORDERS, {"max_retries": 0, "backoff": {"kind": "none"}})
            async with delivering(box):
                await box.broker.webhooks.create(asked(here.url, paused=True))
                await box.publish("orders", b"1")
                for _ in range(3):
                    assert len(await box.lease("orders", consumer="webhook:dead", lease_ms=1_000)) == 1
                    await box.advance(1_000)
                assert stats(box)["dead"] == 0
                (webhook,) = box.broker.webhooks.list(queue="orders", page=1, limit=9).webhooks
                await box.broker.webhooks.resume(webhook.id)
                (delivery,) = await here.wait_for(1)
                assert delivery.headers["penstock-attempt"] == "4"
                await until(lambda: stats(box)["totals"]["acked"] == 1)

    run(story)


def test_an_endpoint_that_asks_for_patience_is_left_alone():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            here.answer = answering(429, 204, retry_after="3600")
            made = await box.broker.webhooks.create(asked(here.url, concurrency=1, retry_delays_ms=[5_000] * 9))
            await box.publish("orders", b"1", b"2")
            await here.wait_for(1)
            await until(lambda: stats(box)["waiting_for_retry"] == 1)
            (attempt,) = box.broker.webhooks.attempts(made.id, 9).attempts
            assert (attempt.outcome, attempt.retry_at_ms - attempt.at_ms) == ("throttled", 3_600_000)
            status = box.broker.webhooks.get(made.id).delivery
            assert (status.circuit, status.next_at_ms) == ("open", attempt.retry_at_ms)
            assert len(here.deliveries) == 1, "the other message is not sent either"
            await box.advance(3_600_000)
            await box.broker.webhooks.resume(made.id)
            await wake(box, made.id)
            await here.wait_for(3)
            await until(lambda: stats(box)["depth"] == 0)

    run(story)


async def wake(box: InProcess, id: str) -> None:
    """Real time does not pass in these tests; any change makes an endpoint look at the clock."""
    await box.broker.webhooks.change(id, WebhookChanges(description=str(box.clock.now_ms())))


def test_failures_in_a_row_open_the_circuit():
    async def story():
        async with in_process() as box, delivering(box) as courier, endpoint() as here:
            here.answer = answering(500)
            made = await box.broker.webhooks.create(asked(here.url, concurrency=1, retry_delays_ms=[DAY_MS]))
            published = await box.publish("orders", *[b"%d" % number for number in range(20)])
            await until(lambda: box.broker.webhooks.get(made.id).delivery.circuit == "open")
            await until(lambda: stats(box)["leased"] == 0)
            assert len(here.deliveries) == FAILURES_IN_A_ROW and courier.outcomes == {"failed": FAILURES_IN_A_ROW}
            assert stats(box)["ready"] == 20 - FAILURES_IN_A_ROW, "the others have all their attempts left"
            last = ulid_text(published.runs[0].id + 19)
            told = (await box.broker.explain(ORDERS, id=last))["messages"][0]
            assert told["reasons"][-1]["kind"] == "webhook_rests" and "is tried again in 15.0 s" in told["text"]
            here.answer = taken
            box.clock.advance(round(REST_S * 1000))
            assert box.broker.webhooks.get(made.id).delivery.circuit == "probing"
            courier._endpoints[made.id]._changed.set()
            await here.wait_for(20)
            await until(lambda: stats(box)["totals"]["acked"] == 20 - FAILURES_IN_A_ROW)
            assert box.broker.webhooks.get(made.id).delivery.circuit == "closed"

    run(story)


def test_an_endpoint_that_is_gone_is_not_asked_again():
    async def story():
        async with in_process() as box, endpoint() as here:
            async with delivering(box):
                here.answer = answering(410)
                made = await box.broker.webhooks.create(asked(here.url, concurrency=1))
                await box.publish("orders", b"1", b"2")
                await until(lambda: box.broker.webhooks.get(made.id).state == "disabled")
                await until(lambda: stats(box)["ready"] == 2)
            shown = box.broker.webhooks.get(made.id)
            assert shown.reason == "the endpoint answered 410 (Gone)"
            with pytest.raises(Conflict):
                await box.broker.webhooks.pause(made.id)
            await box.restart(final_snapshot=False)
            here.answer = taken
            async with delivering(box):
                await asyncio.sleep(0)
                assert len(here.deliveries) == 1 and stats(box)["ready"] == 2
                assert (await box.broker.webhooks.resume(made.id)).state == "active"
                await here.wait_for(3)
                assert here.deliveries[1].headers["penstock-attempt"] == "1", "that was no fault of the message"
                await until(lambda: stats(box)["depth"] == 0)

    run(story)


def test_ordered_keys_keep_their_order_while_one_of_them_fails():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            await box.broker.put_queue(ORDERS, {"ordered_keys": True})
            failed = set()

            async def answer(delivery):
                if delivery.body in (b"a1", b"a3") and delivery.body not in failed:
                    failed.add(delivery.body)
                    return web.Response(status=500)
                return web.Response(status=200)

            here.answer = answer
            await box.broker.webhooks.create(asked(here.url, retry_delays_ms=[1_000] * 3))
            bodies = [b"a1", b"b1", b"a2", b"b2", b"a3", b"b3", b"a4", b"b4"]
            await box.publish("orders", *bodies, key=[body[:1] for body in bodies])
            await until(lambda: stats(box)["totals"]["acked"] == 4 and stats(box)["waiting_for_retry"] == 1)
            assert [each.body for each in here.deliveries if each.body[:1] == b"b"] == [b"b1", b"b2", b"b3", b"b4"]
            assert [each.body for each in here.deliveries if each.body[:1] == b"a"] == [b"a1"]
            await box.advance(2_000)
            await until(lambda: stats(box)["totals"]["acked"] == 6 and stats(box)["waiting_for_retry"] == 1)
            await box.advance(2_000)
            await until(lambda: stats(box)["depth"] == 0)
            assert [each.body for each in here.deliveries if each.body[:1] == b"a"] == [
                b"a1", b"a1", b"a2", b"a3", b"a3", b"a4",
            ]  # fmt: skip

    run(story)


def test_not_more_at_once_than_was_agreed():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            release = asyncio.Event()

            async def slow(_delivery):
                await release.wait()
                return web.Response()

            here.answer = slow
            await box.broker.webhooks.create(asked(here.url, concurrency=3))
            await box.publish("orders", *[b"x"] * 12)
            await here.wait_for(3)
            await until(lambda: here.in_flight == 3)
            assert stats(box)["leased"] == 3, "what cannot be sent is not taken"
            release.set()
            await until(lambda: stats(box)["depth"] == 0)
            assert here.in_flight_max == 3 and len(here.deliveries) == 12

    run(story)


def test_a_lease_is_renewed_while_an_attempt_runs(monkeypatch):
    monkeypatch.setattr(room, "RENEW_S", 0.001)

    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            release = asyncio.Event()

            async def slow(_delivery):
                await release.wait()
                return web.Response()

            here.answer = slow
            await box.broker.webhooks.create(asked(here.url))
            await box.publish("orders", b"1")
            await here.wait_for(1)
            for _ in range(5):
                await box.advance(room.LEASE_MS - 1_000)
                (lease,) = box.host.loop.shard.leases.values()
                await until(lambda lease=lease: lease.held[0].deadline == box.clock.now_ms() + room.LEASE_MS)
            release.set()
            await until(lambda: stats(box)["totals"]["acked"] == 1)
            assert len(here.deliveries) == 1 and stats(box)["totals"]["redelivered"] == 0

    run(story)


def test_paused_it_sends_nothing_and_loses_nothing():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url, paused=True))
            assert made.state == "paused"
            await box.publish("orders", b"1")
            head = (await box.broker.explain(ORDERS))["messages"][0]
            assert head["text"] == f"Ready; its group is read by webhook {made.id}, which is paused."
            await box.broker.webhooks.resume(made.id)
            await here.wait_for(1)
            assert (await box.broker.webhooks.pause(made.id)).state == "paused"
            # A consumer that waits for messages may still be given some: they go back, untouched.
            await box.publish("orders", b"2")
            await until(lambda: stats(box)["totals"]["acked"] == 1 and stats(box)["ready"] == 1)
            assert len(here.deliveries) == 1
            await box.broker.webhooks.resume(made.id)
            await here.wait_for(2)
            assert here.deliveries[1].headers["penstock-attempt"] == "1"
            await until(lambda: stats(box)["depth"] == 0)

    run(story)


def test_a_rotation_signs_with_both_for_a_day():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url))
            rotated = await box.broker.webhooks.rotate(made.id, limits.WEBHOOK_OVERLAP_MS)
            assert rotated.secrets == 2 and rotated.secret != made.secret
            await box.publish("orders", b"1")
            await here.wait_for(1)
            await box.advance(DAY_MS)
            await box.publish("orders", b"2")
            await here.wait_for(2)
            both, alone = here.deliveries
            assert len(both.headers["webhook-signature"].split()) == 2
            assert len(alone.headers["webhook-signature"].split()) == 1
            assert box.broker.webhooks.get(made.id).secrets == 1
            assert not isinstance(box.broker.webhooks.get(made.id).secret, str)

    run(story)


def test_what_takes_too_long_at_the_end_is_given_back():
    async def story():
        async with in_process() as box, endpoint() as here:
            here.answer = lambda _delivery: asyncio.sleep(30)
            async with delivering(box) as courier:
                await box.broker.webhooks.create(asked(here.url))
                await box.publish("orders", b"1")
                await here.wait_for(1)
                courier.stop()
                box.host.loop.waiters.dismiss()
                await courier.close(0)
            (again,) = await box.lease("orders")
            assert (again.payload, again.attempt) == (b"1", 1)

    run(story)


def test_a_test_is_a_delivery_that_is_no_message():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url, paused=True))
            reply = await box.broker.webhooks.test(made.id)
            (delivery,) = here.deliveries
            assert (reply.outcome, reply.status, reply.message_id) == ("delivered", 204, delivery.id)
            assert delivery.id.startswith("test_") and msgspec.json.decode(delivery.body)["type"] == "penstock.test"
            here.answer = answering(500)
            assert (
                await box.broker.webhooks.test(made.id)
            ).error == "the endpoint answered 500 (Internal Server Error)"
            assert stats(box)["totals"]["delivered"] == 0

    run(story)


def test_a_name_that_leads_nowhere_allowed_is_an_attempt_that_was_refused():
    async def story():
        async with in_process() as box, endpoint() as here:
            async with delivering(box):
                made = await box.broker.webhooks.create(asked(here.url, paused=True))
                await box.publish("orders", b"1")
            async with delivering(box, allow="10.0.0.0/8"):
                assert (await box.broker.webhooks.test(made.id)).outcome == "refused"
                await box.broker.webhooks.resume(made.id)
                await until(lambda: box.broker.webhooks.attempts(made.id, 1).attempts)
                (attempt,) = box.broker.webhooks.attempts(made.id, 1).attempts
                assert attempt.outcome == "refused" and "127" not in attempt.error
            assert here.deliveries == []

    run(story)


def test_a_lost_key_stops_what_it_sealed_and_nothing_else():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            lost = await box.broker.webhooks.create(asked(here.url))
            box.broker.webhooks._vault = Vault(lambda: b"\7" * 32)
            other = await box.broker.webhooks.create(asked(here.url, group="other"))
            await wake(box, lost.id)
            await box.publish("orders", b"1")
            await until(lambda: box.broker.webhooks.get(other.id).delivery.delivered == 1)
            with pytest.raises(Unavailable, match=r"webhook\.key"):
                await box.broker.webhooks.test(lost.id)
            await box.broker.webhooks.rotate(lost.id, 0)
            await until(lambda: box.broker.webhooks.get(lost.id).delivery.delivered == 1)

    run(story)


def test_a_webhook_of_a_queue_that_is_gone_waits_for_it():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url))
            token = None
            try:
                await box.broker.delete_queue(ORDERS)
            except Conflict as conflict:
                token = conflict.details["confirm"]
            await box.broker.delete_queue(ORDERS, confirm=token)
            box.host.loop.waiters.dismiss()
            await until(lambda: box.broker.webhooks.get(made.id).delivery.trouble)
            assert "no queue" in box.broker.webhooks.get(made.id).delivery.trouble
            await box.publish("orders", b"1")
            await wake(box, made.id)
            await here.wait_for(1)

    run(story)


def test_one_webhook_for_a_group_and_every_group_gets_everything():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here, endpoint() as there:
            first = await box.broker.webhooks.create(asked(here.url, group="a"))
            with pytest.raises(Conflict, match=first.id):
                await box.broker.webhooks.create(asked(there.url, group="a"))
            await box.broker.webhooks.create(asked(there.url, group="b"))
            await until(lambda: len(stats(box)["groups"]) == 2)
            await box.publish("orders", b"1")
            await here.wait_for(1)
            await there.wait_for(1)
            assert here.deliveries[0].id == there.deliveries[0].id
            await box.broker.webhooks.remove(first.id)
            with pytest.raises(NotFound):
                box.broker.webhooks.get(first.id)

    run(story)


def test_what_is_refused_leaves_nothing_behind():
    async def story():
        async with in_process() as box, delivering(box, allow=""):
            for url in ("http://127.0.0.1/", "https://10.0.0.1/", "https://user@example.com/"):
                with pytest.raises(InvalidRequest):
                    await box.broker.webhooks.create(asked(url))
            with pytest.raises(InvalidRequest):
                await box.broker.webhooks.create(asked("https://example.com", group="not a group"))
            assert box.broker.list_queues()["total"] == 0
            assert box.broker.webhooks.list(queue=None, page=1, limit=9).total == 0
            made = await box.broker.webhooks.create(asked("https://example.com/", paused=True))
            with pytest.raises(InvalidRequest):
                await box.broker.webhooks.change(made.id, WebhookChanges(url="https://127.0.0.1/"))
            assert box.broker.webhooks.get(made.id).url == "https://example.com/"

    run(story)


def test_the_usual_schedule_is_that_of_the_specification():
    assert len(RETRY_DELAYS_MS) == 9
    assert sum(RETRY_DELAYS_MS) == 75 * 3_600_000 + 35 * 60_000 + 5_000


def test_endpoints_are_told_apart_from_what_they_say():
    """The body of an answer is nobody's business: it is in no error, log or reply."""

    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:

            async def talkative(_delivery):
                return web.Response(status=400, text="canary", reason="canary")

            here.answer = talkative
            made = await box.broker.webhooks.create(asked(here.url, retry_delays_ms=[]))
            assert "canary" not in str(await box.broker.webhooks.test(made.id))
            await box.publish("orders", b"1")
            await until(lambda: stats(box)["dead"] == 1)
            assert "canary" not in str(box.broker.webhooks.attempts(made.id, 9))
            assert "canary" not in str((await box.broker.dead_letters(ORDERS))["dead_letters"])

    run(story)
