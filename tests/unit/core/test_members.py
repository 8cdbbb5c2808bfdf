"""Groups with assigned partitions through the facade: waiting leases, bounds, timeouts and restarts."""

from __future__ import annotations

import asyncio

import pytest
from at_once import at_once

from penstock import limits
from penstock.errors import Conflict, QueueNotFound, StaleGeneration, UnknownMember
from penstock.ids import parse_queue
from tests.unit.broker.test_broker import waiting, with_broker

JOBS = parse_queue("jobs")
KEYS = {0: b"g", 1: b"p", 2: b"e", 3: b"k"}
"""A key for each of four partitions."""


async def make(box, partitions: int = 4, **config) -> None:
    await box.broker.queues.put(JOBS, {"partitions": partitions, "lease_ms": 60_000, **config})


async def publish_to(box, *partitions: int) -> None:
    for partition in partitions:
        reply = await box.publish("jobs", b"x", key=[KEYS[partition]])
        assert reply.runs[0].partition == partition


def lease(box, share, **more):
    return box.lease("jobs", member=share.member, generation=share.generation, **{"max": 100, **more})


async def join(box, name=None, **more):
    return await box.broker.members.join(JOBS, member=name, **more)


async def beat(box, share, **more):
    return await box.broker.members.heartbeat(JOBS, member=share.member, generation=share.generation, **more)


def group(box):
    return at_once(box.broker.groups.list(JOBS))["groups"][0]


@with_broker
async def test_members_without_a_name_get_one_each(box):
    await make(box)
    names = [(await join(box)).member for _ in range(3)]
    assert len(set(names)) == 3 and all(name.startswith("member-") for name in names)
    with pytest.raises(QueueNotFound):
        await box.broker.members.join(parse_queue("nowhere"))


@with_broker
async def test_as_many_members_as_a_group_may_have(box):
    await make(box)
    for _ in range(limits.MEMBERS_PER_GROUP_MAX):
        await join(box, session_ms=limits.SESSION_MS_MAX)
    with pytest.raises(Conflict, match="the limit"):
        await join(box)
    first = group(box)["members"][0]["member"]
    await join(box, first)
    assert len(group(box)["members"]) == limits.MEMBERS_PER_GROUP_MAX, "a known name takes no more room"


@with_broker
async def test_one_member_is_woken_per_message_and_only_its_owner(box):
    await make(box)
    shares = [await join(box, name) for name in ("ada", "bob", "cyd", "dee")]
    shares = [await beat(box, share) for share in shares]
    polls = {share.member: asyncio.ensure_future(lease(box, share, wait_ms=60_000)) for share in shares}
    second = asyncio.ensure_future(lease(box, shares[3], wait_ms=60_000))
    await waiting(box, 5)
    for share in shares:
        await publish_to(box, *share.assigned)
        (message,) = await polls[share.member]
        assert message.partition in share.assigned
    assert not second.done()
    await waiting(box, 1)
    await publish_to(box, *shares[3].assigned)
    assert len(await second) == 1


@with_broker
async def test_only_members_with_changed_partitions_are_woken(box):
    await make(box)
    ada = await join(box, "ada")
    bob = await join(box, "bob")
    ada = await beat(box, ada)
    polls = [asyncio.ensure_future(lease(box, share, wait_ms=60_000)) for share in (ada, bob)]
    await waiting(box, 2)
    cyd = await join(box, "cyd")
    done, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    assert [await poll for poll in done] == [[]]
    await waiting(box, 1)
    behind = ada if polls[0] in done else bob
    assert await lease(box, behind, wait_ms=60_000) == [], "a member with an old generation is not kept waiting"
    told = await beat(box, behind)
    assert told.generation == cyd.generation and len(told.assigned) == 1
    await box.broker.members.leave(JOBS, member="cyd")
    await box.broker.members.leave(JOBS, member=("bob" if behind is ada else "ada"))
    assert await next(poll for poll in polls if poll not in done) == []


@with_broker
async def test_lease_without_member_is_answered_when_the_group_gets_members(box):
    await make(box)
    poll = asyncio.ensure_future(box.lease("jobs", wait_ms=60_000))
    await waiting(box, 1)
    await join(box)
    assert await poll == []
    with pytest.raises(Conflict, match="join it"):
        await box.lease("jobs")


@with_broker
async def test_the_last_ack_of_the_former_owner_wakes_the_next(box):
    await make(box)
    ada = await join(box, "ada")
    await publish_to(box, 2, 2)
    held = await lease(box, ada, max=1)
    bob = await join(box, "bob")
    assert bob.awaited == [2]
    poll = asyncio.ensure_future(lease(box, bob, wait_ms=60_000))
    await waiting(box, 1)
    await box.broker.messages.ack([held[0].receipt])
    (message,) = await poll
    assert (message.partition, message.offset) == (2, 1)
    assert group(box)["members"][1]["awaited"] == []


@with_broker
async def test_the_end_of_the_time_to_finish_wakes_the_next(box):
    await make(box)
    ada = await join(box, "ada", drain_ms=1_000)
    await publish_to(box, 2)
    held = await lease(box, ada)
    bob = await join(box, "bob")
    poll = asyncio.ensure_future(lease(box, bob, wait_ms=60_000))
    await waiting(box, 1)
    await box.advance(999)
    assert not poll.done()
    await box.advance(1)
    (message,) = await poll
    assert message.attempt == 1, "it was given back, not failed"
    assert (await box.broker.messages.ack([held[0].receipt]))[0].status == "stale"


@with_broker
async def test_messages_of_an_expired_member_keep_their_order_and_attempts(box):
    await make(box, max_retries=1)
    ada = await join(box, "ada", session_ms=5_000)
    await publish_to(box, 0, 0, 2)
    await lease(box, ada)
    bob = await join(box, "bob", session_ms=60_000)
    poll = asyncio.ensure_future(lease(box, bob, wait_ms=60_000))
    await waiting(box, 1)
    await box.advance(5_000)
    assert await poll == [], "he has more partitions than he knew"
    await publish_to(box, 0)
    bob = await beat(box, bob)
    assert bob.assigned == [0, 1, 2, 3]
    assert [(m.partition, m.offset, m.attempt) for m in await lease(box, bob)] == [
        (0, 0, 2), (0, 1, 2), (0, 2, 1), (2, 0, 2),
    ]  # fmt: skip
    with pytest.raises(UnknownMember):
        await lease(box, ada)
    with pytest.raises(UnknownMember):
        await beat(box, ada)


@with_broker
async def test_messages_of_a_replaced_member_are_delivered_first(box):
    """At the same time: a due message must not be given to a lease that was waiting."""
    await make(box, partitions=1)
    old = await join(box, "ada")
    await box.publish("jobs", b"1", b"2")
    assert len(await lease(box, old, max=1)) == 1
    new = await join(box, "ada")
    assert [message.offset for message in await lease(box, new, max=1)] == [0]
    with pytest.raises(StaleGeneration):
        await lease(box, old)


@with_broker
async def test_heartbeats_keep_a_seat_and_cost_no_disk(box):
    await make(box)
    ada = await join(box, "ada", session_ms=5_000)
    before = box.host.loop.take_committed_bytes()
    for _ in range(20):
        await box.advance(4_999)
        assert (await beat(box, ada)).assigned == [0, 1, 2, 3]
    assert before and not box.host.loop.take_committed_bytes()
    await box.advance(5_000)
    assert group(box)["members"] == []


@with_broker
async def test_partitions_of_a_member_take_turns(box):
    await make(box)
    ada = await join(box, "ada")
    bob = await join(box, "bob")
    ada = await beat(box, ada)
    for _ in range(3):
        await publish_to(box, 0, 1, 2, 3)
    taken = [(await lease(box, share, max=1))[0].partition for _ in range(2) for share in (ada, bob)]
    assert taken == [0, 2, 1, 3]


@with_broker
async def test_a_restart_keeps_members_and_what_is_on_its_way(box):
    await make(box)
    ada = await join(box, "ada", session_ms=5_000, drain_ms=2_000)
    await publish_to(box, 2)
    held = await lease(box, ada)
    bob = await join(box, "bob", session_ms=5_000)
    for final_snapshot in (False, True):
        box.clock.advance(60_000)
        await box.restart(final_snapshot=final_snapshot)
        shown = group(box)
        assert (shown["generation"], [each["awaited"] for each in shown["members"]]) == (2, [[], [2]])
    await box.advance(1_999)
    assert await lease(box, bob) == []
    await box.advance(1)
    assert [message.partition for message in await lease(box, bob)] == [2]
    assert (await box.broker.messages.ack([held[0].receipt]))[0].status == "stale"
    await box.advance(2_999)
    assert len(group(box)["members"]) == 2
    await box.advance(1)
    assert group(box)["kind"] == "plain"


@with_broker
async def test_at_most_once_moves_without_waiting(box):
    await make(box, delivery="at_most_once")
    ada = await join(box, "ada")
    await publish_to(box, 2)
    assert len(await lease(box, ada)) == 1
    assert (await join(box, "bob")).awaited == []


@with_broker
async def test_purge_and_deletion_complete_waiting_leases(box):
    await make(box)
    ada = await join(box, "ada")
    await publish_to(box, 2)
    await lease(box, ada)
    bob = await join(box, "bob")
    assert bob.awaited == [2]
    with pytest.raises(Conflict) as refusal:
        await box.broker.queues.purge(JOBS)
    await box.broker.queues.purge(JOBS, confirm=refusal.value.details["confirm"])
    assert (await beat(box, bob)).awaited == []
    poll = asyncio.ensure_future(lease(box, bob, wait_ms=60_000))
    await waiting(box, 1)
    with pytest.raises(Conflict) as refusal:
        await box.broker.queues.delete(JOBS)
    await box.broker.queues.delete(JOBS, confirm=refusal.value.details["confirm"])
    assert await poll == []
    await box.advance(600_000)
    await make(box)
    with pytest.raises(UnknownMember):
        await lease(box, bob)


@with_broker
async def test_new_partitions_are_shared_at_once(box):
    await make(box, partitions=2)
    ada, bob = await join(box, "ada"), await join(box, "bob")
    ada = await beat(box, ada)
    poll = asyncio.ensure_future(lease(box, bob, wait_ms=60_000))
    await waiting(box, 1)
    await box.broker.queues.patch(JOBS, {"partitions": 4})
    assert await poll == [], "he has more partitions than he knew"
    shares = [await beat(box, share) for share in (ada, bob)]
    assert sorted(shares[0].assigned + shares[1].assigned) == [0, 1, 2, 3]
    assert [0 in shares[0].assigned, 1 in shares[1].assigned] == [True, True], "no member lost its partitions"
    await publish_to(box, 0, 1, 2, 3)
    for share in shares:
        assert sorted({message.partition for message in await lease(box, share)}) == share.assigned


@with_broker
async def test_members_and_an_order_over_all_partitions_do_not_go_together(box):
    await make(box, order="heap")
    with pytest.raises(Conflict, match="without joining"):
        await join(box)
    other = parse_queue("plain")
    await box.broker.queues.put(other, {"partitions": 2})
    await box.broker.members.join(other)
    with pytest.raises(Conflict, match="leave first"):
        await box.broker.queues.patch(other, {"ordered_keys": True})


@with_broker
async def test_a_lease_by_scope_passes_over_queues_that_belong_to_members(box):
    for name in ("team/jobs/a", "team/jobs/b"):
        await box.publish(name, b"x")
    await box.broker.queues.put(parse_queue("team/jobs/a"), {"queue_priority": 9})
    share = await box.broker.members.join(parse_queue("team/jobs/a"))
    reply = await box.broker.messages.lease_scope("team/jobs", max=10)
    assert [run.queue for run in reply.runs] == ["team/jobs/b"]
    poll = asyncio.ensure_future(box.broker.messages.lease_scope("team/jobs", max=10, wait_ms=60_000))
    await waiting(box, 1)
    await box.broker.members.leave(parse_queue("team/jobs/a"), member=share.member)
    assert [run.queue for run in (await poll).runs] == ["team/jobs/a"], "when they have left any consumer may lease it"


@with_broker
async def test_a_window_that_is_not_open_does_not_hide_a_refusal(box):
    await make(box, window_ms=60_000)
    await publish_to(box, 0)
    await join(box, "ada")
    with pytest.raises(Conflict, match="join it"):
        await box.lease("jobs")
    with pytest.raises(UnknownMember):
        await box.lease("jobs", member="eve", generation=1)
