"""Groups are created, moved and deleted; and it can be seen what each of them holds back."""

from __future__ import annotations

import asyncio

import pytest
from boxed import boxed

from penstock import limits
from penstock.errors import Conflict, InvalidRequest, NotFound, QueueNotFound
from penstock.ids import parse_queue
from penstock.testing.inprocess import messages
from penstock.wire.events import EventsQuery

LOG = parse_queue("log")
KEEP = {"retention": {"mode": "keep"}}


async def leased(box, **options) -> list[bytes]:
    return [message.payload for message in await box.lease("log", max=100, **options)]


async def acked(box, **options) -> list[bytes]:
    taken = await box.lease("log", max=100, **options)
    await box.broker.messages.ack([message.receipt for message in taken])
    return [message.payload for message in taken]


async def filled(box, count: int = 5, **config) -> None:
    await box.broker.queues.put(LOG, config)
    for number in range(count):
        await box.publish("log", b"%d" % number)
        await box.advance(1_000)


# -- create ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "given"), [("earliest", b"01234"), ("latest", b""), ({0: 3}, b"34"), ("at", b"234"), ({0: 0}, b"01234")]
)
@pytest.mark.parametrize("config", [KEEP, {}])
@boxed
async def test_group_starts_at_the_given_position(box, start, given, config):
    began = box.clock.now_ms()
    await filled(box, **config)
    place = f"at:{began + 1_500}" if start == "at" else start
    reply, created = await box.broker.groups.create(LOG, "audit", start=place)
    assert created and reply["created"] and reply["offsets"] == {"0": 5 - len(given)}
    assert b"".join(await leased(box, group="audit")) == given
    reply, created = await box.broker.groups.create(LOG, "audit", start="latest")
    assert (created, reply["offsets"]) == (False, {"0": 5 - len(given)}), "one that exists stays where it is"


@boxed
async def test_group_before_its_first_lease_keeps_messages_for_itself(box):
    await box.broker.queues.put(LOG, {})
    await box.broker.groups.create(LOG, "audit")
    await box.publish("log", b"1")
    await acked(box)
    assert await leased(box, group="audit") == [b"1"]


@pytest.mark.parametrize("place", ["kept", "id:x", {1: 0}, {0: 99}, {-1: 0}])
@boxed
async def test_places_that_there_are_not_are_refused(box, place):
    await filled(box)
    for call in (
        lambda: box.broker.groups.create(LOG, "audit", start=place),
        lambda: box.broker.groups.seek(LOG, "default", to=place),
    ):
        await box.broker.groups.create(LOG, "default")
        with pytest.raises(InvalidRequest):
            await call()
    assert list(box.host.loop.shard.queues[1].groups) == ["default"]


# -- seek --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "again", "skipped"),
    [("earliest", b"0123", b""), ("latest", b"", b"4"), ({0: 2}, b"23", b""), ("at", b"23", b"")],
)
@boxed
async def test_seek_delivers_again_and_skips(box, to, again, skipped):
    began = box.clock.now_ms()
    await filled(box, **KEEP)
    taken = await box.lease("log", max=4)
    await box.broker.messages.ack([message.receipt for message in taken])
    place = f"at:{began + 1_500}" if to == "at" else to
    dry = await box.broker.groups.seek(LOG, "default", to=place, dry_run=True)
    assert (dry["dry_run"], dry["again"], dry["skipped"]) == (True, len(again), len(skipped))
    assert await leased(box) == [b"4"], "a dry run does nothing"
    done = await box.broker.groups.seek(LOG, "default", to=place)
    assert (done["again"], done["skipped"], done["leased"]) == (len(again), len(skipped), 1)
    assert {**done, "dry_run": True, "leased": 0} == {
        **dry,
        "partitions": [{**each, "leased": 1} for each in dry["partitions"]],
    }
    await box.restart()
    expected = again + (b"" if skipped else b"4")
    assert b"".join(await leased(box)) == expected


@boxed
async def test_leases_of_the_group_end_with_a_seek(box):
    await filled(box, **KEEP)
    mine = await box.lease("log", max=2)
    others = await box.lease("log", max=2, group="others")
    await box.broker.groups.seek(LOG, "default", to={0: 1})
    assert {result.status for result in await box.broker.messages.ack([message.receipt for message in mine])} == {
        "stale"
    }
    assert {result.status for result in await box.broker.messages.ack([message.receipt for message in others])} == {
        "acked"
    }


@boxed
async def test_consumer_that_waits_is_given_what_a_seek_brings_back(box):
    await filled(box, **KEEP)
    await acked(box)
    waiting = asyncio.ensure_future(box.broker.messages.lease(LOG, max=9, wait_ms=60_000))
    await asyncio.sleep(0)
    await box.broker.groups.seek(LOG, "default", to={0: 3})
    assert [message.payload for message in messages((await waiting).runs)] == [b"3", b"4"]


@boxed
async def test_message_that_was_skipped_or_comes_again_has_it_in_its_history(box):
    await filled(box, 2, **KEEP)
    ids = [message.id for message in messages((await box.broker.log.read(LOG)).runs)]
    await acked(box)
    await box.broker.groups.seek(LOG, "default", to={0: 1})
    for id, reason in zip(ids, ("skipped", "again"), strict=True):
        (moved,) = [
            event for event in (await box.broker.events.history(LOG, id=id))["events"] if event["kind"] == "group_moved"
        ]
        assert (moved["group"], moved["reason"]) == ("default", reason)


# -- delete ------------------------------------------------------------------------------------------------------------


async def deleted(box, group: str) -> dict:
    with pytest.raises(Conflict) as asked:
        await box.broker.groups.delete(LOG, group)
    return await box.broker.groups.delete(LOG, group, confirm=asked.value.details["confirm"])


@boxed
async def test_deleted_group_lets_go_of_what_only_it_kept(box):
    await filled(box)
    await leased(box, group="gone")
    await acked(box)
    assert (await box.broker.stats.queue(LOG))["depth"] == 5
    done = await deleted(box, "gone")
    assert done["lost"] == {"messages": 5, "dead_letters": 0}
    assert (
        (await box.broker.stats.queue(LOG))["depth"],
        [group["group"] for group in (await box.broker.groups.list(LOG))["groups"]],
    ) == (
        0,
        ["default"],
    )
    await box.restart()
    assert (await box.broker.stats.queue(LOG))["depth"] == 0


@boxed
async def test_deleting_a_group_takes_its_dead_letters_along(box):
    await filled(box, 2, **KEEP)
    await box.broker.messages.reject([message.receipt for message in await box.lease("log", max=2)])
    done = await deleted(box, "default")
    assert done["lost"] == {"messages": 0, "dead_letters": 2}
    assert (await box.broker.dead_letters.page(LOG))["total"] == 0
    assert await leased(box) == [b"0", b"1"], "its name begins anew"


@boxed
async def test_token_of_a_deleted_group_does_not_delete_its_successor(box):
    await filled(box)
    await leased(box)
    with pytest.raises(Conflict) as asked:
        await box.broker.groups.delete(LOG, "default")
    token = asked.value.details["confirm"]
    await box.broker.groups.delete(LOG, "default", confirm=token)
    await leased(box)
    with pytest.raises(Conflict):
        await box.broker.groups.delete(LOG, "default", confirm=token)


@boxed
async def test_events_of_a_deleted_group_still_have_its_name(box):
    await filled(box, 1)
    await acked(box, group="gone")
    await deleted(box, "gone")
    events = (await box.broker.events.read(EventsQuery())).events
    assert [(event.kind, event.group) for event in events if event.kind in ("acked", "group_deleted")] == [
        ("acked", "gone"),
        ("group_deleted", "gone"),
    ]


@boxed
async def test_groups_that_there_are_not(box):
    await filled(box)
    nowhere = parse_queue("nowhere")
    for call in (
        lambda: box.broker.groups.seek(LOG, "nobody", to="earliest"),
        lambda: box.broker.groups.delete(LOG, "nobody"),
    ):
        with pytest.raises(NotFound):
            await call()
    for call in (
        lambda: box.broker.groups.create(nowhere, "g"),
        lambda: box.broker.groups.seek(nowhere, "g", to="earliest"),
        lambda: box.broker.groups.delete(nowhere, "g"),
    ):
        with pytest.raises(QueueNotFound):
            await call()


# -- looking -----------------------------------------------------------------------------------------------------------


@boxed
async def test_stats_and_explain_say_which_group_holds_the_queue(box):
    began = box.clock.now_ms()
    await filled(box)
    await leased(box, group="abandoned")
    asked = box.clock.now_ms()
    await box.advance(60_000)
    await acked(box)
    groups = {group["group"]: group for group in (await box.broker.stats.queue(LOG))["groups"]}
    abandoned, default = groups["abandoned"], groups["default"]
    assert (abandoned["lag"], abandoned["held"], abandoned["oldest_unacked_at_ms"]) == (5, 5, began)
    assert (abandoned["last_asked_at_ms"], abandoned["waiting_consumers"]) == (asked, 0)
    assert (default["lag"], default["held"], default["oldest_unacked_at_ms"]) == (0, 0, None)
    assert default["last_asked_at_ms"] == asked + 60_000
    assert (await box.broker.explanations.explain(LOG))["held_by"] == [
        {
            "group": "abandoned",
            "held": 5,
            "lag": 5,
            "oldest_unacked_at_ms": began,
            "last_asked_at_ms": asked,
        }
    ]


# -- too many of them --------------------------------------------------------------------------------------------------


@pytest.fixture
def three_at_most(monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_PER_QUEUE_MAX", 3)


@boxed
async def test_idle_group_is_replaced_by_a_reader_that_cannot_manage_groups(box, three_at_most):
    await filled(box, **KEEP)
    for name in ("a", "b", "c"):
        assert await box.broker.groups.begin(LOG, name, offset="earliest")
        await acked(box, group=name)
        await box.advance(1_000)
    await acked(box, group="a")
    with pytest.raises(Conflict):
        await box.lease("log", group="d")
    assert await box.broker.groups.begin(LOG, "d", offset="latest")
    assert {group["group"] for group in (await box.broker.groups.list(LOG))["groups"]} == {"a", "c", "d"}, (
        "b asked longest ago"
    )


@boxed
async def test_group_that_is_in_use_or_holds_messages_is_not_replaced(box, three_at_most):
    await filled(box)
    await leased(box, group="has leases")
    await box.broker.groups.create(LOG, "has-lag")
    await acked(box, group="idle")
    assert await box.broker.groups.begin(LOG, "new-1", offset="latest")
    await box.publish("log", b"for all of them")
    with pytest.raises(Conflict):
        await box.broker.groups.begin(LOG, "new-2", offset="latest")
    assert {group["group"] for group in (await box.broker.groups.list(LOG))["groups"]} == {
        "has leases",
        "has-lag",
        "new-1",
    }
