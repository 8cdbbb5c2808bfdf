"""A consumer as a member: what it knows without a network, and what it does when answers are lost or refused."""

from __future__ import annotations

import asyncio

import pytest
from client_fake import Hangup, error_reply, json_reply, run_with_broker
from patience import until

from penstock.client import Assigned, Client
from penstock.client.consume.membership import AssignmentChange, GroupMembership
from penstock.errors import InvalidRequest, QueueNotFound, StaleGeneration, UnknownMember
from penstock.ids import parse_queue
from penstock.wire.replies import ShareReply

QUEUE = parse_queue("orders")


def share(generation: int, *assigned: int, member: str = "m", awaited: tuple[int, ...] = ()) -> ShareReply:
    return ShareReply(member, generation, list(assigned), list(awaited), [], 30_000, 3_000)


def seat(**options) -> GroupMembership:
    return GroupMembership(QUEUE, "billing", Assigned(**options))


# -- without I/O --------------------------------------------------------------------------------------------------


def test_membership_reports_assigned_and_revoked_partitions():
    told = []
    mine = seat(on_assigned=lambda p: told.append(("got", p)), on_revoked=lambda p: told.append(("lost", p)))
    assert mine.adopt(share(1, 0, 1, 2, 3)) == AssignmentChange([0, 1, 2, 3], [])
    change = mine.adopt(share(4, 3, 5, awaited=(5,)))
    assert change == AssignmentChange([5], [0, 1, 2])
    for hook, partitions in mine.hooks(change):
        hook(partitions)
    assert told == [("lost", [0, 1, 2]), ("got", [5])]
    assert (mine.generation, mine.partitions, mine.heartbeat_s) == (4, [3, 5], 3.0)
    assert mine.lose() == AssignmentChange([], [3, 5])
    assert not mine.joined and mine.lose() == AssignmentChange([], [])


def test_a_join_that_is_repeated_is_the_same_member_and_a_new_one_after_a_loss():
    mine = seat()
    first, second = mine.join().body, mine.join().body
    assert first == second and mine.may_be_member and not mine.joined
    mine.adopt(share(1, 0))
    mine.lose()
    assert mine.join().body != first


def test_one_with_a_name_keeps_it_and_does_not_fight_for_it():
    named, nameless = seat(member="worker-1"), seat()
    assert b'"worker-1"' in named.join().body
    assert not named.may_join_again(StaleGeneration("replaced")) and named.may_join_again(UnknownMember("silent"))
    assert nameless.may_join_again(StaleGeneration("x")) and nameless.may_join_again(UnknownMember("x"))
    assert not nameless.may_join_again(QueueNotFound("x"))


def test_being_behind_is_a_matter_of_the_generation():
    mine = seat()
    mine.adopt(share(4, 0))
    assert [mine.is_behind(generation) for generation in (None, 3, 4, 5)] == [False, False, False, True]


@pytest.mark.parametrize("options", [{"session": 0.1}, {"drain": -1}, {"member": ""}, {"session": float("nan")}])
def test_options_that_every_server_refuses_are_refused_at_once(options):
    with pytest.raises(InvalidRequest):
        seat(**options)


# -- over a socket ------------------------------------------------------------------------------------------------


class Coordinator:
    """Answers the calls of groups before the fake broker sees them."""

    def __init__(self, broker):
        self.joins: list[str] = []
        self.left: list[str] = []
        self.generation = 1
        self.lost_answers = 0
        self.refusals: list[str] = []
        broker.before = self.before

    async def before(self, request):
        if request.path == "/v1/groups/join":
            self.joins.append(request.json()["member"])
            if self.lost_answers:
                self.lost_answers -= 1
                raise Hangup
        elif request.path == "/v1/groups/leave":
            self.left.append(request.json()["member"])
            return json_reply({"left": True})
        elif request.path == "/v1/lease" and self.refusals:
            return error_reply(self.refusals.pop(), 409)
        elif request.path != "/v1/groups/heartbeat":
            return None
        member = request.json()["member"]
        return json_reply(
            {
                "member": member, "generation": self.generation, "assigned": [0], "awaited": [], "giving_up": [],
                "session_ms": 30_000, "heartbeat_ms": 3_000,
            }
        )  # fmt: skip


async def take_one(client, **options):
    async with client.queue("orders").consume(assigned=Assigned(**options)) as messages:
        async for message in messages:
            async with message:
                return message.value
    return None


def test_lost_answer_of_a_join_is_asked_for_under_the_same_name():
    async def test(broker, server):
        group = Coordinator(broker)
        async with Client(server.url) as client:
            await client.queue("orders").publish("hello")
            group.lost_answers = 2
            assert await take_one(client) == "hello"
        assert len(group.joins) == 3 and len(set(group.joins)) == 1
        assert group.left == group.joins[:1]

    run_with_broker(test)


@pytest.mark.parametrize("code", ["unknown_member", "stale_generation"])
def test_one_that_lost_its_place_joins_again_under_another_name(code):
    async def test(broker, server):
        group = Coordinator(broker)
        async with Client(server.url) as client:
            await client.queue("orders").publish("hello")
            group.refusals = [code]
            lost = []
            assert await take_one(client, on_revoked=lost.append) == "hello"
        assert len(set(group.joins)) == 2 and lost[0] == [0]
        assert group.left == group.joins[1:]

    run_with_broker(test)


def test_one_that_was_replaced_says_so():
    async def test(broker, server):
        group = Coordinator(broker)
        async with Client(server.url) as client:
            await client.queue("orders").publish("hello")
            group.refusals = ["stale_generation"]
            with pytest.raises(StaleGeneration):
                await take_one(client, member="worker-1")
        assert group.joins == ["worker-1"]

    run_with_broker(test)


def test_consumer_closed_while_it_joins_leaves_the_group():
    async def test(broker, server):
        group = Coordinator(broker)
        async with Client(server.url) as client:
            consumer = client.queue("orders").consume(assigned=True)
            following = asyncio.ensure_future(anext(consumer))
            group.lost_answers = 1_000_000
            await until(lambda: group.joins)
            await consumer.aclose()
            await asyncio.wait({following})
        assert group.left == group.joins[:1]

    run_with_broker(test)


def test_hooks_may_be_coroutines_and_may_fail():
    async def test(broker, server):
        Coordinator(broker)
        told = []

        async def opened(partitions):
            await asyncio.sleep(0)
            told.append(partitions)
            raise ValueError("mine alone")

        async with Client(server.url) as client:
            await client.queue("orders").publish("hello")
            assert await take_one(client, on_assigned=opened) == "hello"
        assert told == [[0]]

    run_with_broker(test)
