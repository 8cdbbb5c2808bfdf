"""Webhooks through the broker: delivery, retries, dead letters, order, restarts, rotations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from at_once import at_once
from patience import until
from webhook_endpoint import answering, endpoint, taken

from penstock import limits
from penstock.broker.vault import Vault
from penstock.errors import Conflict, InvalidRequest, NotFound, Unavailable
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.webhooks import endpoint as endpoint_module
from penstock.transports.webhooks.breaker import FAILURES_IN_A_ROW, OPEN_S
from penstock.transports.webhooks.deliverer import WebhookDeliverer
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
async def delivering(box: InProcess, allow: str = "127.0.0.0/8") -> AsyncIterator[WebhookDeliverer]:
    guard = Guard(parse_networks(allow))
    deliverer = WebhookDeliverer(box.broker, guard, Sender(guard), box.clock)
    deliverer.start()
    try:
        yield deliverer
    finally:
        deliverer.stop()
        box.host.loop.waiters.dismiss()
        await deliverer.close(1)


def stats(box: InProcess) -> dict:
    return at_once(box.broker.stats.queue(ORDERS))


def test_messages_arrive_and_are_acked():
    async def story():
        async with in_process() as box, delivering(box) as deliverer, endpoint() as here:
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
            assert deliverer.outcomes == {"delivered": 2}
            attempts = box.broker.webhooks.attempts(made.id, 1).attempts
            assert [attempt.outcome for attempt in attempts] == ["delivered"]

    run(story)


def test_failed_attempts_follow_the_retry_delays_then_dead_letter():
    async def story():
        async with in_process() as box, endpoint() as here:
            await box.broker.queues.put(ORDERS, {"max_retries": 0})
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
                    explained = (
                        await box.broker.explanations.explain(ORDERS, group=made.group, id=here.deliveries[0].id)
                    )["messages"][0]
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
            (letter,) = (await box.broker.dead_letters.page(ORDERS))["dead_letters"]
            assert (letter.letter.reason, letter.letter.attempts) == ("rejected", 3)
            assert letter.letter.error == "webhook: the endpoint answered 503 (Service Unavailable)"

    run(story)


@pytest.mark.parametrize("final_snapshot", [True, False])
def test_pending_retry_survives_restart(final_snapshot):
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


def test_lost_sender_costs_an_attempt_not_the_message():
    """The leases expire. The retries of the queue are used up, but the webhook has its own retry delays."""

    async def story():
        async with in_process() as box, endpoint() as here:
            await box.broker.queues.put(ORDERS, {"max_retries": 0, "backoff": {"kind": "none"}})
            async with delivering(box):
                made = await box.broker.webhooks.create(asked(here.url, paused=True))
                await box.publish("orders", b"1")
                for _ in range(3):
                    lost = await box.lease("orders", group=made.group, consumer="webhook:dead", lease_ms=1_000)
                    assert len(lost) == 1
                    await box.advance(1_000)
                assert stats(box)["dead"] == 0
                (webhook,) = box.broker.webhooks.list(queue="orders", page=1, limit=9).webhooks
                await box.broker.webhooks.resume(webhook.id)
                (delivery,) = await here.wait_for(1)
                assert delivery.headers["penstock-attempt"] == "4"
                await until(lambda: stats(box)["totals"]["acked"] == 1)

    run(story)


def test_retry_after_opens_the_circuit():
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
    """The clock of these tests stands still; a change of the webhook makes its endpoint read the clock."""
    await box.broker.webhooks.change(id, WebhookChanges(description=str(box.clock.now_ms())))


def test_consecutive_failures_open_the_circuit():
    async def story():
        async with in_process() as box, delivering(box) as deliverer, endpoint() as here:
            here.answer = answering(500)
            made = await box.broker.webhooks.create(asked(here.url, concurrency=1, retry_delays_ms=[DAY_MS]))
            published = await box.publish("orders", *[b"%d" % number for number in range(20)])
            await until(lambda: box.broker.webhooks.get(made.id).delivery.circuit == "open")
            await until(lambda: stats(box)["leased"] == 0)
            assert len(here.deliveries) == FAILURES_IN_A_ROW and deliverer.outcomes == {"failed": FAILURES_IN_A_ROW}
            assert stats(box)["ready"] == 20 - FAILURES_IN_A_ROW, "the other messages have all their attempts left"
            last = ulid_text(published.runs[0].id + 19)
            explained = (await box.broker.explanations.explain(ORDERS, group=made.group, id=last))["messages"][0]
            assert explained["reasons"][-1]["kind"] == "webhook_rests" and "is tried again in 15s" in explained["text"]
            here.answer = taken
            box.clock.advance(round(OPEN_S * 1000))
            assert box.broker.webhooks.get(made.id).delivery.circuit == "probing"
            deliverer._endpoints[made.id]._changed.set()
            await here.wait_for(20)
            await until(lambda: stats(box)["totals"]["acked"] == 20 - FAILURES_IN_A_ROW)
            assert box.broker.webhooks.get(made.id).delivery.circuit == "closed"

    run(story)


def test_status_410_disables_the_webhook():
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
                assert here.deliveries[1].headers["penstock-attempt"] == "1", "the attempt that got 410 does not count"
                await until(lambda: stats(box)["depth"] == 0)

    run(story)


def test_ordered_keys_stay_in_order_while_one_fails():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            await box.broker.queues.put(ORDERS, {"ordered_keys": True})
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


def test_concurrency_is_bounded():
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
            assert stats(box)["leased"] == 3, "messages that cannot be sent are not leased"
            release.set()
            await until(lambda: stats(box)["depth"] == 0)
            assert here.in_flight_max == 3 and len(here.deliveries) == 12

    run(story)


def test_lease_is_extended_during_an_attempt(monkeypatch):
    monkeypatch.setattr(endpoint_module, "RENEW_S", 0.001)

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
                await box.advance(endpoint_module.LEASE_MS - 1_000)
                (lease,) = box.host.loop.shard.leases.values()
                await until(lambda lease=lease: lease.held[0].deadline == box.clock.now_ms() + endpoint_module.LEASE_MS)
            release.set()
            await until(lambda: stats(box)["totals"]["acked"] == 1)
            assert len(here.deliveries) == 1 and stats(box)["totals"]["redelivered"] == 0

    run(story)


def test_paused_webhook_sends_nothing_and_loses_nothing():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url, paused=True))
            assert made.state == "paused"
            await box.publish("orders", b"1")
            head = (await box.broker.explanations.explain(ORDERS, group=made.group))["messages"][0]
            assert head["text"] == f"Ready; its group is read by webhook {made.id}, which is paused."
            await box.broker.webhooks.resume(made.id)
            await here.wait_for(1)
            assert (await box.broker.webhooks.pause(made.id)).state == "paused"
            # The lease call that still waits gets the message; the endpoint releases it.
            await box.publish("orders", b"2")
            await until(lambda: stats(box)["totals"]["acked"] == 1 and stats(box)["ready"] == 1)
            assert len(here.deliveries) == 1
            await box.broker.webhooks.resume(made.id)
            await here.wait_for(2)
            assert here.deliveries[1].headers["penstock-attempt"] == "1"
            await until(lambda: stats(box)["depth"] == 0)

    run(story)


def test_rotation_signs_with_both_secrets_for_a_day():
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


def test_attempts_over_the_grace_period_are_released():
    async def story():
        async with in_process() as box, endpoint() as here:
            here.answer = lambda _delivery: asyncio.sleep(30)
            async with delivering(box) as deliverer:
                await box.broker.webhooks.create(asked(here.url))
                await box.publish("orders", b"1")
                await here.wait_for(1)
                deliverer.stop()
                box.host.loop.waiters.dismiss()
                await deliverer.close(0)
            (again,) = await box.lease("orders")
            assert (again.payload, again.attempt) == (b"1", 1)

    run(story)


def test_test_delivery_is_not_a_message():
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


def test_disallowed_address_is_a_refused_attempt():
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


def test_lost_key_stops_only_the_webhooks_it_sealed():
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


def test_webhook_of_a_deleted_queue_waits_for_the_queue():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            made = await box.broker.webhooks.create(asked(here.url))
            token = None
            try:
                await box.broker.queues.delete(ORDERS)
            except Conflict as conflict:
                token = conflict.details["confirm"]
            await box.broker.queues.delete(ORDERS, confirm=token)
            box.host.loop.waiters.dismiss()
            await until(lambda: box.broker.webhooks.get(made.id).delivery.trouble)
            assert "no queue" in box.broker.webhooks.get(made.id).delivery.trouble
            await box.publish("orders", b"1")
            await wake(box, made.id)
            await here.wait_for(1)

    run(story)


def test_webhook_without_a_group_gets_one_of_its_own():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here, endpoint() as there:
            first = await box.broker.webhooks.create(asked(here.url))
            second = await box.broker.webhooks.create(asked(there.url))
            assert [each.group for each in (first, second)] == [f"webhook-{first.id}", f"webhook-{second.id}"]
            await box.publish("orders", b"1")
            assert [message.payload for message in await box.lease("orders", max=9)] == [b"1"]
            await here.wait_for(1)
            await there.wait_for(1)

    run(story)


def test_repeated_request_does_not_send_messages_twice():
    async def story():
        async with in_process() as box, delivering(box), endpoint() as here:
            first = await box.broker.webhooks.create(asked(here.url))
            with pytest.raises(Conflict, match=first.id) as refused:
                await box.broker.webhooks.create(asked(here.url))
            assert refused.value.details == {"webhook": first.id}
            await box.broker.webhooks.create(asked(here.url, group="again"))
            await box.broker.webhooks.create(asked(here.url, queue="other"))
            await box.broker.webhooks.remove(first.id)
            assert (await box.broker.webhooks.create(asked(here.url))).id != first.id

    run(story)


def test_group_has_one_webhook_and_groups_are_independent():
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


def test_refused_registration_stores_nothing():
    async def story():
        async with in_process() as box, delivering(box, allow=""):
            for url in ("http://127.0.0.1/", "https://10.0.0.1/", "https://user@example.com/"):
                with pytest.raises(InvalidRequest):
                    await box.broker.webhooks.create(asked(url))
            with pytest.raises(InvalidRequest):
                await box.broker.webhooks.create(asked("https://example.com", group="not a group"))
            assert (await box.broker.queues.list())["total"] == 0
            assert box.broker.webhooks.list(queue=None, page=1, limit=9).total == 0
            made = await box.broker.webhooks.create(asked("https://example.com/", paused=True))
            with pytest.raises(InvalidRequest):
                await box.broker.webhooks.change(made.id, WebhookChanges(url="https://127.0.0.1/"))
            assert box.broker.webhooks.get(made.id).url == "https://example.com/"

    run(story)


def test_default_retry_delays_follow_the_specification():
    assert len(RETRY_DELAYS_MS) == 9
    assert sum(RETRY_DELAYS_MS) == 75 * 3_600_000 + 35 * 60_000 + 5_000


def test_response_body_and_reason_are_never_shown():
    """The body and the reason phrase of a response are in no error, log or reply."""

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
            assert "canary" not in str((await box.broker.dead_letters.page(ORDERS))["dead_letters"])

    run(story)
