"""Every reason, in a story in which it is the truth."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from penstock.core import explain as core
from penstock.core.explain import Reason
from penstock.errors import QueueNotFound
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import InProcess, in_process
from penstock.wire.webhooks import WebhookRequest

ORDERS = parse_queue("orders")


def with_broker(test):
    @functools.wraps(test)
    def wrapped():
        async def run() -> None:
            async with in_process() as box:
                await test(box)

        asyncio.run(run())

    del wrapped.__wrapped__
    return wrapped


async def configured(box: InProcess, **values: Any) -> None:
    await box.broker.queues.put(ORDERS, {"backoff": {"kind": "fixed", "base_ms": 5000, "jitter": 0}, **values})


async def ids(box: InProcess, *payloads: bytes, **columns: Any) -> list[str]:
    """Publish, and the ids in the order of the payloads."""
    found = [""] * len(payloads)
    for run in (await box.publish("orders", *payloads, **columns)).runs:
        for row, position in enumerate(run.rows or range(run.count)):
            found[position] = ulid_text(run.id + row)
    return found


async def explained(box: InProcess, message_id: str, group: str = "default") -> dict[str, Any]:
    answer = await box.broker.explanations.explain(ORDERS, id=message_id, group=group)
    assert (answer["queue"], answer["group"], answer["at_ms"]) == (ORDERS, group, box.clock.now_ms())
    (message,) = answer["messages"]
    assert message["text"][0].isupper() and message["text"].endswith(".")
    assert message["deliverable"] == (
        message["state"] == "ready" and not any(reason["blocks"] for reason in message["reasons"])
    )
    return message


async def reasons(box: InProcess, message_id: str, group: str = "default") -> list[dict[str, Any]]:
    return [
        {name: value for name, value in reason.items() if name != "blocks"}
        for reason in (await explained(box, message_id, group))["reasons"]
    ]


# -- the message itself ------------------------------------------------------------------------------------------------


@with_broker
async def test_nothing_in_the_way(box):
    await ids(box, b"1")
    await box.lease("orders", max=1, group="default")
    (second,) = await ids(box, b"2")
    message = await explained(box, second)
    assert (message["id"], message["partition"], message["offset"], message["state"]) == (second, 0, 1, "ready")
    assert (message["attempts"], message["reasons"], message["deliverable"]) == (0, [], True)
    assert message["published_at_ms"] == box.clock.now_ms()
    assert message["text"] == "Ready, and nothing is in the way: the next consumer that asks gets it."
    assert (await explained(box, second.lower()))["id"] == second


@with_broker
async def test_not_due(box):
    await configured(box, delay_ms=100)
    await box.lease("orders")
    now = box.clock.now_ms()
    first, second, third = await ids(
        box, b"1", b"2", b"3", delay_ms=[9000, 0, 0], deliver_at_ms=[0, now + 7000, 0], key=[b"", b"", b"k"]
    )
    assert [await reasons(box, message) for message in (first, second, third)] == [
        [{"kind": "not_due", "due_at_ms": due}] for due in (now + 9000, now + 7000, now + 100)
    ]
    assert (await explained(box, first))["text"] == "Scheduled: due in 9s."
    await box.broker.queues.patch(ORDERS, {"delay_ms": 0})
    assert (await reasons(box, third))[0]["due_at_ms"] == now + 100, "the delay that the queue had then"
    await box.broker.scheduled.reschedule(ORDERS, ids=[first], delay_ms=500)
    assert (await reasons(box, first))[0]["due_at_ms"] == now + 500
    await box.restart()
    assert (await reasons(box, first))[0]["due_at_ms"] == now + 500
    await box.advance(500)
    assert (await explained(box, first))["state"] == "ready"


@with_broker
async def test_due_time_of_the_message_itself_is_explained(box):
    """With more on the schedule than is looked through, the message's own word counts."""
    (wanted,) = await ids(box, b"1", delay_ms=[60_000])
    await box.lease("orders")
    crowd = [100_000 + row for row in range(core.SCAN_MAX + 1)]
    await ids(box, *[b"x"] * len(crowd), delay_ms=crowd)
    (last,) = await ids(box, b"2", delay_ms=[70_000])
    for message, due in ((wanted, 60_000), (last, 70_000)):
        assert await reasons(box, message) == [{"kind": "not_due", "due_at_ms": box.clock.now_ms() + due}]


@with_broker
async def test_waiting_for_its_next_attempt(box):
    await configured(box)
    (first,) = await ids(box, b"1")
    (leased,) = await box.lease("orders", consumer="worker-7")
    await box.broker.messages.nack([leased.receipt], error="it broke")
    message = await explained(box, first)
    assert (message["state"], message["attempts"]) == ("waiting", 1)
    assert await reasons(box, first) == [
        {
            "kind": "waiting_for_retry", "due_at_ms": box.clock.now_ms() + 5000, "attempt": 1, "error": "it broke",
            "consumer": "worker-7",
        }
    ]  # fmt: skip
    assert message["text"] == "Attempt 1 failed (it broke); the next one is due in 5s."
    await box.advance(5000)
    message = await explained(box, first)
    assert (message["state"], message["attempts"], message["reasons"]) == ("ready", 1, [])


@with_broker
async def test_leased(box):
    _, second = await ids(box, b"1", b"2")
    await box.lease("orders", max=2, lease_ms=20_000, consumer="worker-7")
    await box.advance(3000)
    message = await explained(box, second)
    now = box.clock.now_ms()
    assert (message["state"], message["attempts"]) == ("leased", 1)
    assert await reasons(box, second) == [
        {
            "kind": "leased", "consumer": "worker-7", "lease": 1, "since_at_ms": now - 3000,
            "deadline_at_ms": now + 17_000, "attempt": 1,
        }
    ]  # fmt: skip
    assert message["text"] == "Leased to consumer worker-7 for 3s, attempt 1; the lease ends in 17s."


@with_broker
async def test_expired_while_leased_is_explained(box):
    (first,) = await ids(box, b"1", ttl_ms=[1000])
    await box.lease("orders")
    assert [reason["kind"] for reason in await reasons(box, first)] == ["leased"]
    await box.advance(1000)
    assert [reason["kind"] for reason in await reasons(box, first)] == ["leased", "past_ttl"]


@with_broker
async def test_finished(box):
    await configured(box, max_retries=0)
    held, acked, dead, cancelled, expired = await ids(box, *[b"x"] * 5, ttl_ms=[0, 0, 0, 0, 500])
    _, one, two = await box.lease("orders", max=3, consumer="w")
    await box.broker.messages.ack([one.receipt])
    await box.broker.messages.nack([two.receipt], error="never")
    await box.broker.scheduled.cancel(ORDERS, ids=[cancelled])
    await box.advance(500)
    message = await explained(box, dead)
    assert (message["state"], message["attempts"]) == ("dead", 1)
    assert await reasons(box, dead) == [
        {
            "kind": "finished", "outcome": "dead", "at_ms": box.clock.now_ms() - 500, "reason": "max_retries",
            "error": "never", "consumer": "w",
        }
    ]  # fmt: skip
    for message_id, outcome in (
        (acked, "done"),
        (cancelled, "expired_or_cancelled"),
        (expired, "expired_or_cancelled"),
    ):
        assert (await explained(box, message_id))["state"] == "done"
        assert (await reasons(box, message_id))[0]["outcome"] == outcome
    assert (await explained(box, held))["state"] == "leased"


@with_broker
async def test_trimmed(box):
    await configured(box, retention={"mode": "keep", "ms": 1000})
    (first,) = await ids(box, b"1")
    await box.lease("orders", group="other")
    await box.advance(2000)
    await ids(box, b"2")
    await box.host.upkeep._retain()
    message = await explained(box, first)
    assert (message["state"], message["reasons"][0]["outcome"]) == ("trimmed", "trimmed")
    assert (await explained(box, first, "other"))["state"] == "leased"


@with_broker
async def test_unknown(box):
    await ids(box, b"1")
    with pytest.raises(QueueNotFound):
        await box.broker.explanations.explain(parse_queue("nowhere"))
    message = await explained(box, ulid_text(5))
    assert (message["id"], message["state"], message["deliverable"]) == (ulid_text(5), "not_found", False)
    assert (message["partition"], message["offset"], message["reasons"]) == (None, None, [])


# -- others ------------------------------------------------------------------------------------------------------------


@with_broker
async def test_behind_others_of_a_line_exactly(box):
    await configured(box)
    names = await ids(box, *[b"%d" % row for row in range(100)], delay_ms=[0] * 60 + [500] * 5 + [0] * 35)
    leased = await box.lease("orders", max=50)
    await box.broker.messages.ack([message.receipt for message in leased[10:30]])
    await box.broker.messages.nack([message.receipt for message in leased[:4]], delay_ms=1000)
    await box.broker.messages.release([message.receipt for message in leased[40:43]])
    # Done 20, leased 23, waiting 4, scheduled 5: of the 80 before it there are 28 left.
    assert await reasons(box, names[80]) == [{"kind": "behind", "count": 28, "exact": True, "within": "partition"}]
    assert await reasons(box, names[41]) == [{"kind": "behind", "count": 1, "exact": True, "within": "partition"}]
    assert (await explained(box, names[80]))["text"] == "Ready; 28 messages of its partition come first."
    await box.advance(1000)
    assert (await reasons(box, names[80]))[0]["count"] == 37


@with_broker
async def test_behind_more_than_is_looked_at(box):
    await configured(box, order="heap")
    await box.lease("orders")
    names = await ids(box, *[b"x"] * (core.SCAN_MAX + 10), priority=list(range(core.SCAN_MAX + 10)))
    assert await reasons(box, names[7]) == [{"kind": "behind", "count": 7, "exact": True, "within": "queue"}]
    far = await explained(box, names[-1])
    assert far["reasons"][0]["count"] == core.SCAN_MAX and not far["reasons"][0]["exact"] and far["deliverable"]
    assert far["text"] == f"Ready; at least {core.SCAN_MAX} messages of its queue come first."


@with_broker
async def test_many_that_failed_leave_a_lower_bound(box):
    await configured(box)
    names = await ids(box, *[b"x"] * (core.SCAN_MAX + 50))
    leased = await box.lease("orders", max=core.SCAN_MAX + 1)
    await box.broker.messages.nack([message.receipt for message in leased])
    (behind,) = await reasons(box, names[-1])
    assert (behind["exact"], behind["count"]) == (False, 48)


@with_broker
async def test_a_key_blocked(box):
    await configured(box, ordered_keys=True)
    first, second, third = await ids(box, b"1", b"2", b"3", key=[b"k"] * 3)
    (leased,) = await box.lease("orders", max=5, consumer="worker-7")
    blocked = {"kind": "key_blocked", "partition": 0, "offset": 0, "id": first, "error": "", "due_at_ms": None}
    now = box.clock.now_ms()
    assert await reasons(box, second) == [
        {**blocked, "state": "leased", "consumer": "worker-7", "deadline_at_ms": now + 30_000, "ahead": 0}
    ]
    assert (await reasons(box, third))[0]["ahead"] == 1
    await box.broker.messages.nack([leased.receipt], error="it broke")
    assert await reasons(box, second) == [
        {
            **blocked, "state": "waiting", "consumer": "worker-7", "deadline_at_ms": None, "due_at_ms": now + 5000,
            "error": "it broke", "ahead": 0,
        }
    ]  # fmt: skip
    await box.advance(5000)
    assert await reasons(box, second) == [
        {**blocked, "state": "ready", "consumer": "", "deadline_at_ms": None, "ahead": 0}
    ]
    assert (await explained(box, first))["deliverable"]


@with_broker
async def test_a_key_parked_with_its_dead_letter(box):
    await configured(box, ordered_keys=True, park_dead_keys=True)
    first, second = await ids(box, b"1", b"2", key=[b"k"] * 2)
    (leased,) = await box.lease("orders", consumer="w")
    await box.broker.messages.reject([leased.receipt], error="no")
    (blocked,) = await reasons(box, second)
    assert (blocked["id"], blocked["state"], blocked["consumer"], blocked["error"]) == (first, "dead", "w", "no")


@with_broker
async def test_a_tenant_at_its_cap(box):
    await configured(box, fair_share={"enabled": True, "max_in_flight": 2})
    names = await ids(box, *[b"x"] * 5, tenant=[b"a", b"a", b"a", b"a", b"b"])
    (leased,) = await box.lease("orders")
    assert leased.id == names[0]
    assert [await reasons(box, message) for message in (names[1], names[4])] == [[], []]
    assert await reasons(box, names[2]) == [
        {"kind": "tenant_at_cap", "in_flight": 1, "max_in_flight": 2, "ahead": 1},
        {"kind": "behind", "count": 1, "exact": True, "within": "tenant"},
    ]
    await box.lease("orders", max=5)
    assert (await reasons(box, names[3]))[0] == {
        "kind": "tenant_at_cap", "in_flight": 2, "max_in_flight": 2, "ahead": 1,
    }  # fmt: skip


@with_broker
async def test_a_lane_that_has_spent_its_share(box):
    await configured(box, order="lanes", lane_weights=[2, 1, 1, 1, 1])
    names = await ids(box, *[b"x"] * 8, priority=[0, 0, 0, 1, 1, 1, 4, 4])
    await box.lease("orders", max=3)
    assert await reasons(box, names[2]) == [
        {"kind": "behind", "count": 1, "exact": True, "within": "queue"},
        {"kind": "lane_share_spent", "lane": 0, "before": [4]},
    ]
    assert [reason["kind"] for reason in await reasons(box, names[6])] == []


@with_broker
async def test_partitions_that_wait_for_older_ones(box):
    await configured(box)
    keys = [b"%d" % row for row in range(20)]
    await ids(box, *keys, key=keys)
    await box.lease("orders", max=5)
    await box.broker.queues.patch(ORDERS, {"partitions": 3})
    await ids(box, *keys, key=keys)
    answer = await box.broker.explanations.explain(ORDERS)
    by_partition = {message["partition"]: message for message in answer["messages"]}
    assert sorted(by_partition) == [0, 1, 2]
    assert by_partition[0]["reasons"] == []
    for number in (1, 2):
        assert by_partition[number]["reasons"] == [
            {"kind": "older_partitions_first", "partitions": [0], "blocks": True}
        ]
        assert await reasons(box, by_partition[number]["id"])
    await box.lease("orders", max=15)
    assert all(message["deliverable"] for message in (await box.broker.explanations.explain(ORDERS))["messages"])


@with_broker
async def test_a_window_that_is_closed(box):
    await configured(box, window_ms=500)
    (first,) = await ids(box, b"1")
    await box.lease("orders")
    start = box.clock.now_ms()
    await box.advance(300)
    assert await reasons(box, first) == [{"kind": "window_closed", "opens_at_ms": start + 500}]
    await ids(box, b"2")
    assert await reasons(box, first) == [{"kind": "window_closed", "opens_at_ms": start + 800}]
    await box.broker.queues.patch(ORDERS, {"window_max_wait_ms": 600})
    assert (await reasons(box, first))[0]["opens_at_ms"] == pytest.approx(start + 600, abs=2)
    await box.advance(500)
    assert (await explained(box, first))["deliverable"]


@with_broker
async def test_an_exclusive_queue_is_occupied_until_its_group_is_done(box):
    await configured(box, exclusive=True, backoff={"kind": "fixed", "base_ms": 500, "jitter": 0})
    first, second = await ids(box, b"a", b"b")
    (held,) = await box.lease("orders", max=1)
    assert {"kind": "occupied", "in_flight": 1, "retry_at_ms": None} in await reasons(box, second)
    await box.broker.messages.nack([held.receipt])
    due = box.clock.now_ms() + 500
    assert {"kind": "occupied", "in_flight": 0, "retry_at_ms": due} in await reasons(box, second)
    await box.advance(500)
    assert [each["kind"] for each in await reasons(box, second)] == ["behind"]
    assert await reasons(box, first) == []


@with_broker
async def test_assigned_and_moving_partitions_are_explained(box):
    await configured(box, partitions=2)
    keys = [b"%d" % row for row in range(20)]
    await ids(box, *keys, key=keys)
    alone = await box.broker.members.join(ORDERS, group="default", member="a")
    await box.lease("orders", max=100, member="a", generation=alone.generation)
    keys = [b"%d" % row for row in range(20, 40)]
    await ids(box, *keys, key=keys)
    heads = (await box.broker.explanations.explain(ORDERS))["messages"]
    assert [head["reasons"] for head in heads] == [[{"kind": "assigned", "member": "a", "blocks": False}]] * 2
    await box.broker.members.join(ORDERS, group="default", member="b")
    moved = [head for head in (await box.broker.explanations.explain(ORDERS))["messages"] if not head["deliverable"]]
    (reason,) = await reasons(box, moved[0]["id"])
    assert len(moved) == 1 and (reason["kind"], reason["member"], reason["giver"]) == ("handed_over", "b", "a")
    assert reason["until_at_ms"] > box.clock.now_ms()


# -- consumers ---------------------------------------------------------------------------------------------------------


@with_broker
async def test_queue_without_consumers_is_explained(box):
    (first,) = await ids(box, b"1")
    assert await reasons(box, first) == [{"kind": "group_not_begun"}]
    assert not (await explained(box, first))["deliverable"]
    (late,) = await ids(box, b"2", delay_ms=[9000])
    assert [reason["kind"] for reason in await reasons(box, late)] == ["not_due", "group_not_begun"]
    assert (await explained(box, late))["state"] == "scheduled"
    await box.lease("orders")
    (second,) = await ids(box, b"3")
    asked = box.clock.now_ms()
    assert await reasons(box, second) == []
    await box.advance(60_001)
    (reason,) = (await explained(box, second))["reasons"][-1:]
    assert reason == {"kind": "no_consumer", "last_asked_at_ms": asked, "blocks": False}
    assert (await explained(box, second))["deliverable"]
    assert (await box.broker.explanations.explain(ORDERS))["last_asked_at_ms"] == asked
    await box.restart()
    assert (await reasons(box, second))[-1] == {"kind": "no_consumer", "last_asked_at_ms": None}


@with_broker
async def test_a_webhook_that_sends_nothing_is_named(box):
    made = await box.broker.webhooks.create(
        WebhookRequest(queue="orders", url="https://example.com", group="crm", paused=True)
    )
    (message,) = await ids(box, b"1")
    await box.advance(60_001)
    rests = {"kind": "webhook_rests", "webhook": made.id, "state": "paused", "until_at_ms": None}
    assert await reasons(box, message, "crm") == [rests]
    await box.broker.webhooks.disable(made.id, "the endpoint answered 410")
    assert await reasons(box, message, "crm") == [{**rests, "state": "disabled"}]
    await box.broker.webhooks.resume(made.id)
    assert [reason["kind"] for reason in await reasons(box, message, "crm")] == ["no_consumer"]


@with_broker
async def test_what_another_group_has_finished_is_not_for_a_new_one(box):
    acked, _ = await ids(box, b"1", b"2")
    await box.lease("orders", group="slow")
    leased = await box.lease("orders", max=2)
    await box.broker.messages.ack([message.receipt for message in leased])
    assert (await explained(box, acked, "slow"))["state"] == "leased"
    assert (await explained(box, acked, "new"))["state"] == "ready"
    await box.broker.scheduled.cancel(ORDERS, ids=[acked])
    assert (await explained(box, acked, "new"))["state"] == "ready"


@with_broker
async def test_a_disk_without_any_room(box):
    await ids(box, b"1")
    await box.lease("orders")
    (second,) = await ids(box, b"2")
    box.host.loop.without_room = True
    assert await reasons(box, second) == [{"kind": "disk_full"}]
    assert not (await explained(box, second))["deliverable"]
    box.host.loop.without_room = False


# -- the head ----------------------------------------------------------------------------------------------------------


@with_broker
async def test_the_head_of_every_partition(box):
    await configured(box, partitions=3)
    keys = [b"%d" % row for row in range(30)]
    await ids(box, *keys, key=keys)
    assert {message["offset"] for message in (await box.broker.explanations.explain(ORDERS))["messages"]} == {0}
    taken = await box.lease("orders", max=4)
    await box.broker.messages.ack([message.receipt for message in taken[:2]])
    await box.broker.messages.nack([taken[3].receipt])
    number = taken[0].partition
    heads = {message["partition"]: message for message in (await box.broker.explanations.explain(ORDERS))["messages"]}
    assert heads[number]["offset"] == 3 and heads[number]["state"] == "waiting"
    assert [heads[other]["offset"] for other in range(3) if other != number] == [0, 0]
    await box.lease("orders", max=100)
    assert [message["id"] for message in (await box.broker.explanations.explain(ORDERS))["messages"]] == [taken[3].id]
    await box.broker.queues.purge(ORDERS, confirm=await token(box))
    assert (await box.broker.explanations.explain(ORDERS))["messages"] == []


async def token(box: InProcess) -> str:
    try:
        await box.broker.queues.purge(ORDERS)
    except Exception as refused:
        return refused.details["confirm"]
    raise AssertionError("purging wants to be confirmed")


@pytest.mark.parametrize("kind", sorted(kind.__struct_config__.tag for kind in Reason.__subclasses__()))
def test_every_reason_has_a_story_and_a_line_in_the_documentation(kind):
    assert f'"{kind}"' in Path(__file__).read_text()
    assert f"`{kind}`" in (Path(__file__).parents[3] / "docs" / "explain.md").read_text()
