"""Settings of a queue that exists: a change touches what is named, and asks before it lets go of stored messages."""

from __future__ import annotations

import pytest
from boxed import boxed

from penstock.errors import Conflict, InvalidRequest, QueueNotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import messages

LOG = parse_queue("log")


async def stored(box) -> list[bytes]:
    return [message.payload for message in messages((await box.broker.log.read(LOG, max=1000)).runs)]


async def acked(box, *payloads: bytes, **config) -> None:
    """A queue that holds these messages, all of them acked by its group."""
    await box.broker.queues.put(LOG, config)
    await box.publish("log", *payloads)
    leased = await box.lease("log", max=100)
    await box.broker.messages.ack([message.receipt for message in leased])


async def refused(change) -> dict:
    with pytest.raises(Conflict) as caught:
        await change
    assert set(caught.value.details) == {"confirm", "would_lose"}
    return caught.value.details


@boxed
async def test_put_changes_only_the_named_settings(box):
    await acked(box, b"1", b"2", retention={"mode": "keep", "ms": 60_000}, max_retries=7)
    reply, created = await box.broker.queues.put(LOG, {"lease_ms": 5_000})
    assert not created
    config = reply["config"]
    assert (config["lease_ms"], config["max_retries"]) == (5_000, 7)
    assert config["retention"] == {"mode": "keep", "ms": 60_000, "bytes": None}
    assert await stored(box) == [b"1", b"2"]


@boxed
async def test_patch_never_creates_a_queue(box):
    with pytest.raises(QueueNotFound):
        await box.broker.queues.patch(LOG, {"lease_ms": 5_000})
    assert (await box.broker.queues.list())["total"] == 0


@pytest.mark.parametrize("method", ["put", "patch"])
@boxed
async def test_log_is_not_erased_without_confirmation(box, method):
    await acked(box, b"1", b"2", retention={"mode": "keep"})
    await box.publish("log", b"3")
    change = {"retention": {"mode": "until_acked"}}
    call = getattr(box.broker.queues, method)
    asked = await refused(call(LOG, change))
    assert asked["would_lose"] == {"messages": 2, "messages_sooner": 1, "dead_letters": 0, "dead_letters_sooner": 0}
    assert box.broker.queues.get(LOG)["config"]["retention"]["mode"] == "keep"
    assert await stored(box) == [b"1", b"2", b"3"]
    await call(LOG, change, confirm=asked["confirm"])
    assert await stored(box) == [b"3"]


TIGHTER = [
    ({"mode": "keep"}, {"ms": 60_000}),
    ({"mode": "keep", "ms": 60_000}, {"ms": 1_000}),
    ({"mode": "keep"}, {"bytes": 100}),
    ({"mode": "keep", "bytes": 1_000}, {"bytes": 100}),
    ({"mode": "keep", "ms": 1_000, "bytes": 1_000}, {"mode": "until_acked"}),
    ({"mode": "until_acked"}, {"mode": "keep", "ms": 60_000}),
]


@pytest.mark.parametrize(("before", "change"), TIGHTER)
@boxed
async def test_tighter_retention_asks_if_messages_are_stored(box, before, change):
    await box.broker.queues.put(LOG, {"retention": before})
    await box.broker.queues.put(LOG, {"retention": change})
    await box.broker.queues.put(LOG, {"retention": {"mode": "keep", "ms": None, "bytes": None, **before}})
    await box.publish("log", b"1")
    asked = await refused(box.broker.queues.put(LOG, {"retention": change}))
    assert asked["would_lose"]["messages"] + asked["would_lose"]["messages_sooner"] == 1
    await box.broker.queues.put(LOG, {"retention": change}, confirm=asked["confirm"])


WIDER = [
    ({"mode": "until_acked"}, {"mode": "keep"}),
    ({"mode": "keep", "ms": 1_000}, {"ms": 2_000}),
    ({"mode": "keep", "ms": 1_000, "bytes": 10_000}, {"ms": None}),
    ({"mode": "keep", "bytes": 1_000}, {"bytes": 2_000}),
]


@pytest.mark.parametrize(("before", "change"), WIDER)
@boxed
async def test_wider_retention_does_not_ask(box, before, change):
    await box.broker.queues.put(LOG, {"retention": before})
    await box.publish("log", b"1")
    await box.broker.queues.put(LOG, {"retention": change})


@boxed
async def test_would_lose_counts_messages_beyond_the_new_bounds(box):
    await box.broker.queues.put(LOG, {"retention": {"mode": "keep"}})
    await box.publish("log", b"old")
    await box.advance(10_000)
    await box.publish("log", b"new")
    asked = await refused(box.broker.queues.patch(LOG, {"retention": {"ms": 5_000}}))
    assert (asked["would_lose"]["messages"], asked["would_lose"]["messages_sooner"]) == (1, 1)


@boxed
async def test_token_confirms_only_the_change_that_it_was_given_for(box):
    await acked(box, b"1", retention={"mode": "keep"})
    mild = await refused(box.broker.queues.put(LOG, {"retention": {"ms": 60_000}}))
    harsh = await refused(box.broker.queues.put(LOG, {"retention": {"mode": "until_acked"}}, confirm=mild["confirm"]))
    assert harsh["confirm"] != mild["confirm"]
    assert await stored(box) == [b"1"]


@pytest.mark.parametrize("change", [{"dead_letter_max": 1}, {"dead_letter_ttl_ms": 1_000}])
@boxed
async def test_tighter_bounds_of_dead_letters_ask(box, change):
    await box.broker.queues.put(LOG, {"max_retries": 0})
    await box.publish("log", b"1", b"2", b"3")
    await box.broker.messages.reject([message.receipt for message in await box.lease("log", max=3)])
    await box.advance(2_000)
    asked = await refused(box.broker.queues.put(LOG, change))
    lost = 2 if "dead_letter_max" in change else 3
    assert (asked["would_lose"]["dead_letters"], asked["would_lose"]["dead_letters_sooner"]) == (lost, 3 - lost)
    await box.broker.queues.put(LOG, change, confirm=asked["confirm"])
    assert (await box.broker.dead_letters.page(LOG))["total"] == 3, "the next round of upkeep lets them go"


@pytest.mark.parametrize("change", [{"ttl_ms": 1}, {"max_messages": 1}, {"dead_letter": False}, {"max_retries": 0}])
@boxed
async def test_settings_that_do_not_touch_stored_messages_do_not_ask(box, change):
    await box.broker.queues.put(LOG, {})
    await box.publish("log", b"1", b"2")
    await box.broker.queues.put(LOG, change)
    await box.advance(10)
    assert [message.payload for message in await box.lease("log", max=9)] == [b"1", b"2"]


@boxed
async def test_bounds_of_retention_go_with_the_mode(box):
    await box.broker.queues.put(LOG, {"retention": {"mode": "keep", "ms": 1_000, "bytes": 1_000}})
    reply, _ = await box.broker.queues.put(LOG, {"retention": {"mode": "until_acked"}})
    assert reply["config"]["retention"] == {"mode": "until_acked", "ms": None, "bytes": None}
    with pytest.raises(InvalidRequest):
        await box.broker.queues.put(LOG, {"retention": {"mode": "until_acked", "ms": 5}})


@boxed
async def test_objects_are_changed_field_by_field(box):
    await box.broker.queues.put(LOG, {"dead_letter_alarm": {"count": 5}, "backoff": {"kind": "fixed", "base_ms": 7}})
    reply, _ = await box.broker.queues.put(LOG, {"dead_letter_alarm": {"per_minute": 9}, "backoff": {"base_ms": 8}})
    assert reply["config"]["dead_letter_alarm"] == {"count": 5, "per_minute": 9}
    assert (reply["config"]["backoff"]["kind"], reply["config"]["backoff"]["base_ms"]) == ("fixed", 8)
