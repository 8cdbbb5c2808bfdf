"""Several shards behind one facade: where queues live, and what calls that concern several shards answer."""

from __future__ import annotations

import asyncio
from functools import wraps

import pytest
from patience import until

from penstock.batch import Batch, build, layout
from penstock.broker.types import PublishPart
from penstock.core.commands import DeleteQueue
from penstock.errors import Conflict, CrossShard, InvalidRequest, NotFound, QueueNotFound, Unavailable
from penstock.ids import parse_queue, parse_receipt_prefix, shard_of_id, ulid_value
from penstock.pending import PendingReply, value_of
from penstock.placement import home_of, shard_of
from penstock.testing.inprocess import in_process, messages
from penstock.wire.events import EventsQuery
from penstock.wire.holds import HoldRequest
from penstock.wire.schedules import ScheduleMessage, ScheduleRequest
from penstock.wire.webhooks import WebhookRequest

SHARDS = 4


def sharded(test):
    """With one process that serves all shards, and with two, where the second serves every other shard."""

    @pytest.mark.parametrize("processes", [1, 2])
    @wraps(test)
    def wrapped(processes):
        async def run():
            async with in_process(shards=SHARDS, processes=processes) as box:
                await test(box)

        asyncio.run(run())

    del wrapped.__wrapped__
    return wrapped


def on_shard(shard: int, prefix: str = "q") -> str:
    """The path of a queue that lives on this shard by its path."""
    numbers = (parse_queue(f"{prefix}{number}") for number in range(1_000))
    return next(path for path in numbers if home_of(path, SHARDS) == shard)


def part(queue: str, payload: bytes) -> PublishPart:
    return PublishPart(parse_queue(queue), Batch.open(build([payload], kind=layout.KIND_BYTES)))


def entries(box, path: str) -> list[int]:
    """The shards that have an entry of this path."""
    return [host.number for host in box.hosts if path in host.loop.shard.paths]


async def all_wait(box) -> None:
    """Return when a lease waits on every shard."""
    await until(lambda: sum(host.loop.waiters.count for host in box.hosts) == SHARDS)


# -- placement ----------------------------------------------------------------------------------------------------


def test_placement_spreads_queues_evenly():
    for shards in (2, 8, 32):
        counts = [0] * shards
        for number in range(200 * shards):
            counts[home_of(f"default/default/q{number}", shards)] += 1
        assert max(counts) < 300 and min(counts) > 120


def test_placement_moves_few_queues_with_one_more_shard():
    paths = [f"default/default/q{number}" for number in range(1_000)]
    moved = [path for path in paths if home_of(path, 8) != home_of(path, 9)]
    assert all(home_of(path, 9) == 8 for path in moved)


@sharded
async def test_queues_live_on_the_shard_of_their_path_and_stay_there(box):
    paths = [on_shard(shard) for shard in range(SHARDS)]
    for path in paths:
        await box.publish(path, path.encode())
    await box.restart()
    for shard, path in enumerate(paths):
        assert entries(box, path) == [shard]
        (message,) = await box.lease(path)
        assert message.payload == path.encode()
        assert shard_of_id(ulid_value(message.id)) == shard
        assert parse_receipt_prefix(message.receipt.rpartition(".")[0])[0] == shard
        (settled,) = await box.broker.messages.ack([message.receipt])
        assert settled.status == "acked"


@sharded
async def test_queues_of_a_namespace_are_on_one_shard(box):
    paths = [parse_queue(f"shop/default/q{number}") for number in range(12)]
    for path in paths:
        _, created = await box.broker.queues.put(path, {"placement": "namespace"})
        assert created
    home = home_of("shop", SHARDS)
    assert {host.number for host in box.hosts for queue in host.loop.shard.queues.values() if queue.partitions and
            shard_of(queue.path, queue.config.placement, SHARDS) == host.number} == {home}  # fmt: skip
    reply = await box.broker.messages.publish([part(path, b"x") for path in paths])
    assert len(reply.runs) == 12
    assert await value_of(box.broker.queues.paths()) == sorted(paths)
    assert (await box.broker.stats.summary())["queues"] == 12
    await box.restart()
    assert len(messages((await box.broker.messages.lease_scope("shop", max=50)).runs)) == 12


@sharded
async def test_pinned_queue_and_its_bounds(box):
    path = on_shard(0)
    await box.broker.queues.put(path, {"placement": "shard:3"})
    await box.publish(path, b"x")
    (message,) = await box.lease(path)
    assert parse_receipt_prefix(message.receipt.rpartition(".")[0])[0] == 3
    with pytest.raises(InvalidRequest, match="has 4"):
        await box.broker.queues.put(on_shard(1), {"placement": "shard:4"})
    for wrong in ("shard:", "shard:x", "tenant", ""):
        with pytest.raises(InvalidRequest):
            await box.broker.queues.put(on_shard(1), {"placement": wrong})
    assert await value_of(box.broker.queues.paths()) == [path]


@sharded
async def test_placement_of_a_queue_that_exists_is_fixed(box):
    path = on_shard(0)
    await box.publish(path, b"x")
    for change in (box.broker.queues.put, box.broker.queues.patch):
        with pytest.raises(Conflict, match="fixed"):
            await change(path, {"placement": "shard:1"})
    assert entries(box, path) == [0]
    await box.broker.queues.patch(path, {"placement": "shard:0"})


@sharded
async def test_placed_queue_is_deleted_everywhere_and_can_be_created_elsewhere(box):
    path = on_shard(0)
    await box.broker.queues.put(path, {"placement": "shard:2"})
    assert entries(box, path) == [0, 2]
    with pytest.raises(Conflict) as first:
        await box.broker.queues.delete(path)
    await box.broker.queues.delete(path, confirm=first.value.details["confirm"])
    assert entries(box, path) == []
    with pytest.raises(QueueNotFound):
        await value_of(box.broker.queues.get(path))
    await box.publish(path, b"again")
    assert entries(box, path) == [0]


@sharded
async def test_queue_that_a_crash_left_without_its_shard_is_created_there(box):
    path = on_shard(0)
    await box.broker.queues.put(path, {"placement": "shard:2"})
    loop = box.hosts[2].loop
    await loop.submit(DeleteQueue(loop.shard.paths[path]))  # as if the crash came before this entry
    with pytest.raises(QueueNotFound):
        await value_of(box.broker.queues.get(path))
    await asyncio.gather(*(box.publish(path, b"x") for _ in range(3)))
    assert (await box.broker.stats.queue(path))["depth"] == 3
    assert [host.number for host in box.hosts if path in host.loop.shard.paths and host.view.queue(path).depth()] == [2]


@sharded
async def test_publish_during_the_creation_goes_to_the_placed_queue(box):
    path = on_shard(0)
    creating = asyncio.ensure_future(box.broker.queues.put(path, {"placement": "shard:1"}))
    await asyncio.sleep(0)
    await asyncio.gather(creating, *(box.publish(path, b"x") for _ in range(5)))
    assert box.hosts[1].view.queue(path).depth() == 5 and box.hosts[0].view.queue(path).depth() == 0
    assert await value_of(box.broker.queues.paths()) == [path]


@sharded
async def test_list_of_paths_is_made_again_only_after_a_change(box):
    paths = sorted(on_shard(0, f"p{number}-") for number in range(20))
    for path in paths:
        await box.broker.queues.put(path, {})
    view = box.broker.router._shards[0].broker.queues._view
    looked, lives_here = [], view._lives_here

    def count(queue) -> bool:
        looked.append(queue.path)
        return lives_here(queue)

    view._lives_here = count
    assert view.paths("") == paths and view.paths(paths[3]) == paths[3:4]
    before = len(looked)
    assert view.paths("") == paths and view.paths("default/default/p1")
    assert len(looked) == before
    placed = on_shard(0, "placed")
    await box.broker.queues.put(placed, {"placement": "shard:1"})
    assert view.paths("") == paths
    await delete(box, placed)
    await box.broker.queues.put(placed, {})
    assert view.paths("") == sorted([*paths, placed])


@sharded
async def test_refused_creation_leaves_no_entry(box):
    path = on_shard(0)
    with pytest.raises(InvalidRequest):
        await box.broker.queues.put(path, {"placement": "shard:2", "max_retries": -1})
    assert entries(box, path) == []
    await box.publish(path, b"x")
    assert entries(box, path) == [0]


async def delete(box, path: str) -> None:
    with pytest.raises(Conflict) as first:
        await box.broker.queues.delete(path)
    await box.broker.queues.delete(path, confirm=first.value.details["confirm"])


@sharded
async def test_publish_during_a_delete_leaves_no_entry_on_the_former_shard(box):
    path = on_shard(0)
    await box.broker.queues.put(path, {"placement": "shard:2"})
    unplace, published = box.broker.router._shards[0].broker.queues.unplace, []

    async def unplace_slowly(path: str) -> None:
        published.append(asyncio.ensure_future(box.publish(path, b"x")))
        await asyncio.sleep(0)
        await unplace(path)

    box.broker.router._shards[0]._methods["queues.unplace"] = unplace_slowly
    await delete(box, path)
    await published[0]
    assert entries(box, path) == [0]
    assert [message.payload for message in await box.lease(path)] == [b"x"]


@sharded
async def test_publish_that_was_routed_before_a_delete_creates_no_second_queue(box):
    path = on_shard(0)
    with pytest.raises(Unavailable, match="deleted meanwhile"):
        box.brokers[-1].router._shards[-1].broker.messages.publish([part(path, b"x")])
    assert entries(box, path) == []


@sharded
async def test_delete_that_was_interrupted_is_finished_by_the_next_one(box):
    path = on_shard(0)
    await box.broker.queues.put(path, {"placement": "shard:2"})
    methods = box.broker.router._shards[0]._methods

    async def refuse(path: str) -> None:
        raise Unavailable("the store is away")

    methods["queues.unplace"] = refuse
    with pytest.raises(Conflict) as first:
        await box.broker.queues.delete(path)
    with pytest.raises(Unavailable):
        await box.broker.queues.delete(path, confirm=first.value.details["confirm"])
    assert entries(box, path) == [0]
    del methods["queues.unplace"]
    with pytest.raises(QueueNotFound):
        await box.broker.queues.delete(path)
    assert entries(box, path) == []


# -- what spans shards --------------------------------------------------------------------------------------------


@sharded
async def test_cross_shard_publish_is_refused_and_changes_nothing(box):
    first, second = on_shard(0), on_shard(1)
    with pytest.raises(CrossShard, match="placement: namespace") as refused:
        await box.broker.messages.publish([part(first, b"1"), part(second, b"2")])
    assert refused.value.details["shards"] == [0, 1]
    assert await value_of(box.broker.queues.paths()) == []


@sharded
async def test_cross_shard_transaction_is_refused_and_changes_nothing(box):
    source, target, beside = on_shard(0), on_shard(1), on_shard(0, "r")
    await box.publish(source, b"1")
    (message,) = await box.lease(source)
    with pytest.raises(CrossShard):
        await box.broker.messages.transact([message.receipt], [part(target, b"2")])
    assert await value_of(box.broker.queues.paths()) == [source]
    reply = await box.broker.messages.transact([message.receipt], [part(beside, b"2")])
    assert reply.acked == [message.receipt] and [each.payload for each in await box.lease(beside)] == [b"2"]


@sharded
async def test_receipts_that_one_shard_did_not_settle_are_named(box):
    await check_settled_in_part(box, {}, "unsettled")


@sharded
async def test_receipts_whose_outcome_is_unknown_are_named(box):
    await check_settled_in_part(box, {"outcome": "unknown"}, "unknown")


async def check_settled_in_part(box, about: dict[str, str], named: str) -> None:
    paths, receipts = [on_shard(shard) for shard in range(3)], []
    for path in paths:
        await box.publish(path, b"x")
        receipts += [message.receipt for message in await box.lease(path)]

    def fail(*_) -> PendingReply:
        pending = PendingReply()
        pending.fail(Unavailable("the shard stopped", details=about))
        return pending

    box.brokers[1 % len(box.brokers)].router._shards[1]._methods["messages.ack"] = fail
    with pytest.raises(Unavailable, match="the shard stopped") as failed:
        await box.broker.messages.ack(receipts)
    details = failed.value.details
    assert [(each["receipt"], each["status"]) for each in details["settled"]] == [
        (receipts[0], "acked"),
        (receipts[2], "acked"),
    ]
    for each in ("unknown", "unsettled"):
        assert details[each] == ([receipts[1]] if each == named else [])


@sharded
async def test_redrive_to_a_queue_on_another_shard_is_refused(box):
    source = on_shard(0)
    await box.publish(source, b"1")
    (message,) = await box.lease(source)
    await box.broker.messages.reject([message.receipt])
    with pytest.raises(CrossShard):
        await box.broker.redrives.start(source, filter="", target=on_shard(1), dry_run=False)
    assert await value_of(box.broker.queues.paths()) == [source]
    reply = await box.broker.redrives.start(source, filter="", target=on_shard(0, "r"), dry_run=False)
    assert reply["status"] in ("running", "finished")


@sharded
async def test_receipts_of_several_shards_are_settled_in_their_order(box):
    paths = [on_shard(shard) for shard in (2, 0, 3)]
    receipts = []
    for path in paths:
        await box.publish(path, b"1", b"2", b"3")
        found = await box.lease(path, max=3)
        receipts.append([message.receipt for message in found])
    (one, two, three) = receipts
    span = f"{three[0]}-{three[2].rpartition('.')[2]}"
    mixed = [one[0], two[0], "r1.9999.1.0.5", span, one[2], "nonsense", two[1], "r1.1.1.00000000000000ff.0"]
    results = await box.broker.messages.ack(mixed)
    assert [result.receipt for result in results] == mixed
    assert [result.status for result in results] == [
        "acked", "acked", "stale", "acked", "acked", "stale", "acked", "stale",
    ]  # fmt: skip
    assert await value_of(box.broker.messages.queues_of([one[1], two[2]])) == {paths[0], paths[1]}
    assert [result.status for result in await box.broker.messages.nack([one[1], two[2]])] == ["retrying"] * 2


@sharded
async def test_receipt_of_one_shard_settles_nothing_on_another(box):
    """Lease 1 of shard 1 is not lease 1 of shard 0."""
    for shard in (0, 1):
        await box.publish(on_shard(shard), b"x")
    (ours,) = await box.lease(on_shard(0))
    (theirs,) = await box.lease(on_shard(1))
    swapped = ours.receipt.replace("r1.0.", "r1.1.")
    assert [result.status for result in await box.broker.messages.ack([swapped])] == ["stale"]
    assert [result.status for result in await box.broker.messages.ack([theirs.receipt, ours.receipt])] == ["acked"] * 2


@sharded
async def test_lease_settles_receipts_of_other_shards(box):
    first, second = on_shard(0), on_shard(1)
    await box.publish(first, b"1")
    await box.publish(second, b"2")
    (message,) = await box.lease(first)
    reply = await box.broker.messages.lease(second, ack=[message.receipt])
    assert [result.status for result in reply.results] == ["acked"]
    assert [each.payload for each in messages(reply.runs)] == [b"2"]
    with pytest.raises(QueueNotFound):
        await box.broker.messages.lease(parse_queue("absent"), ack=[])


@sharded
async def test_scope_lease_merges_the_shards(box):
    wanted = set()
    for number in range(20):
        await box.broker.queues.put(parse_queue(f"mail/out/q{number}"), {"queue_priority": number})
        await box.publish(f"mail/out/q{number}", str(number).encode())
        wanted.add(str(number).encode())
    first = messages((await box.broker.messages.lease_scope("mail")).runs)
    assert [message.payload for message in first] == [b"19"], "the highest priority of all shards comes first"
    got = {message.payload for message in first}
    for _ in range(20):
        found = messages((await box.broker.messages.lease_scope("mail/out", max=10)).runs)
        assert len(found) <= 10
        got |= {message.payload for message in found}
    assert got == wanted


@sharded
async def test_waiting_scope_lease_is_served_by_any_shard_and_leaves_nothing_behind(box):
    for shard in range(SHARDS):
        waiting = asyncio.ensure_future(_scope(box, wait_ms=60_000, max=3))
        await all_wait(box)
        path = on_shard(shard, "mail/out/q")
        await box.publish(path, b"1")
        (message,) = messages((await waiting).runs)
        assert message.queue == path and message.attempt == 1
        assert box.broker.waiting == 0
        await box.broker.messages.ack([message.receipt])
    waiting = asyncio.ensure_future(_scope(box, wait_ms=60_000))
    await all_wait(box)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert box.broker.waiting == 0


async def _scope(box, **options):
    return await box.broker.messages.lease_scope("mail", **options)


@sharded
async def test_messages_for_a_cancelled_scope_lease_come_back(box):
    path = on_shard(1, "mail/out/q")
    for turns in range(12):
        waiting = asyncio.ensure_future(_scope(box, wait_ms=60_000))
        await all_wait(box)
        publishing = asyncio.ensure_future(box.publish(path, b"1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await publishing
        (got,) = await asyncio.gather(waiting, return_exceptions=True)
        if not isinstance(got, BaseException):
            await box.broker.messages.release([message.receipt for message in messages(got.runs)])
        (message,) = await box.lease(path, max=10, wait_ms=60_000)
        assert message.attempt == 1
        await box.broker.messages.ack([message.receipt])


@sharded
async def test_waiting_scope_lease_loses_no_message_that_its_grant_settles(box):
    paths = [on_shard(shard, "mail/out/q") for shard in (0, 3)]
    for path in paths:
        await box.broker.queues.put(path, {"delivery": "at_most_once"})
    waiting = asyncio.ensure_future(_scope(box, wait_ms=60_000, max=1))
    await all_wait(box)
    await asyncio.gather(*(box.publish(path, path.encode()) for path in paths))
    found = messages((await waiting).runs)
    while more := messages((await _scope(box, max=10)).runs):
        found += more
    assert sorted(message.payload.decode() for message in found) == sorted(paths)


@sharded
async def test_scope_lease_that_one_shard_refuses_leaves_nothing_behind(box):
    box.hosts[3].loop.store_missing = "the directory is gone"
    with pytest.raises(Unavailable):
        await _scope(box, wait_ms=60_000)
    await until(lambda: sum(host.view.waiting for host in box.hosts) == 0)


@sharded
async def test_queue_with_a_schedule_is_not_placed_on_another_shard(box):
    path = on_shard(1)
    await box.broker.schedules.put("daily", ScheduleRequest(path, "0 9 * * *", ScheduleMessage(payload_b64="")))
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.delete(path)
    await box.broker.queues.delete(path, confirm=asked.value.details["confirm"])
    with pytest.raises(Conflict, match="schedule daily"):
        await box.broker.queues.put(path, {"placement": "shard:2"})
    assert entries(box, path) == []
    await box.broker.schedules.remove("daily")
    await box.broker.queues.put(path, {"placement": "shard:2"})
    assert entries(box, path) == [1, 2]


@sharded
async def test_waiting_scope_lease_can_be_withdrawn(box):
    reply = box.broker.messages.lease_scope("mail", wait_ms=60_000)
    await all_wait(box)
    reply.withdraw()
    assert (await reply).runs == []
    assert box.broker.waiting == 0


@sharded
async def test_lists_and_sums_cover_all_shards(box):
    paths = sorted(parse_queue(f"ns{number % 3}/default/q{number}") for number in range(20))
    for path in paths:
        await box.publish(path, b"1", b"2")
    page = await box.broker.queues.list(page=2, limit=6)
    assert [entry["queue"] for entry in page["queues"]] == paths[6:12] and page["total"] == 20
    assert [row.queue for row in await box.broker.stats.rows("ns1/")] == [path for path in paths if path[2] == "1"]
    summary = await box.broker.stats.summary()
    assert (summary["queues"], summary["namespaces"], summary["depth"]) == (20, 3, 40)
    uuids = {(await value_of(box.broker.queues.get(path)))["uuid"] for path in paths}
    assert len(uuids) == 20


# -- schedules, webhooks, holds, events ---------------------------------------------------------------------------


def schedule(queue: str) -> ScheduleRequest:
    return ScheduleRequest(queue=queue, cron="* * * * *", message=ScheduleMessage(payload_b64=""))


@sharded
async def test_schedules_live_with_their_queues_under_unique_names(box):
    first, second = on_shard(0), on_shard(1)
    made = [box.broker.schedules.put("tick", schedule(path)) for path in (first, second)]
    results = await asyncio.gather(*made, return_exceptions=True)
    assert [isinstance(each, CrossShard) for each in results] == [False, True]
    await box.broker.schedules.put("tock", schedule(second))
    assert [host.loop.shard.schedules.keys() for host in box.hosts[:2]] == [{"tick"}, {"tock"}]
    listed = await value_of(box.broker.schedules.list(prefix="", page=1, limit=10))
    assert [each.name for each in listed.schedules] == ["tick", "tock"] and listed.total == 2
    assert (await value_of(box.broker.schedules.get("tock"))).queue == second
    await box.advance(120_000)
    assert (await box.broker.stats.queue(second))["depth"] >= 1
    await box.broker.schedules.remove("tick")
    with pytest.raises(NotFound):
        await value_of(box.broker.schedules.get("tick"))
    await box.broker.schedules.put("tick", schedule(second))


@sharded
async def test_webhooks_live_with_their_queues(box):
    made = [
        await box.broker.webhooks.create(WebhookRequest(queue=on_shard(shard), url="https://example.org/hook"))
        for shard in range(SHARDS)
    ]
    assert [shard_of_id(ulid_value(hook.id)) for hook in made] == list(range(SHARDS))
    assert (await value_of(box.broker.webhooks.list(queue=None, page=1, limit=3))).total == SHARDS
    registered = [webhook for broker in box.brokers for webhook in broker.webhooks.registrations()]
    assert len(registered) == SHARDS, "each webhook is delivered by the process of its shard"
    for hook in made:
        assert (await value_of(box.broker.webhooks.get(hook.id))).queue == hook.queue
        await box.broker.webhooks.pause(hook.id)
    await box.broker.webhooks.remove(made[2].id)
    with pytest.raises(NotFound):
        await value_of(box.broker.webhooks.get(made[2].id))
    with pytest.raises(NotFound):
        await value_of(box.broker.webhooks.get("unknown"))


@sharded
async def test_holds_are_kept_by_the_shards_they_concern(box):
    first, second = on_shard(0), on_shard(1)
    for path in (first, second):
        await box.publish(path, b"1")
    names = {"a": first, "b": second}
    asked = HoldRequest(queues={"a": {"0": 0}, "b": {"0": 0}}, shards={"2": 1})
    hold = await box.broker.holds.set("lake", asked, names)
    assert set(hold.queues) == {first, second} and hold.shards == {"2": 1} and hold.events is None
    assert [sorted(host.loop.shard.holds) for host in box.hosts] == [["lake"]] * 3 + [[]]
    assert (await box.broker.stats.summary())["holds"] == 1
    await box.broker.holds.set("lake", HoldRequest(queues={"b": {"0": 1}}), {"b": second})
    assert [sorted(host.loop.shard.holds) for host in box.hosts] == [[], ["lake"], [], []]
    with pytest.raises(InvalidRequest):
        await box.broker.holds.set("lake", HoldRequest(queues={"a": {"0": 0}}, shards={"1": 10**6}), {"a": first})
    assert [sorted(host.loop.shard.holds) for host in box.hosts] == [[], ["lake"], [], []], "nothing has changed"
    with pytest.raises(InvalidRequest, match="shards 0 to 3"):
        await box.broker.holds.set("lake", HoldRequest(shards={"7": 0}), {})
    assert (await value_of(box.broker.holds.get("lake"))).queues == {second: {"0": 1}}
    assert (await box.broker.holds.remove("lake")).removed
    with pytest.raises(NotFound):
        await value_of(box.broker.holds.get("lake"))


@sharded
async def test_events_are_read_shard_by_shard(box):
    for shard in range(SHARDS):
        await box.publish(on_shard(shard), b"1")
    for shard in range(SHARDS):
        reply = await box.broker.events.read(EventsQuery(shard=shard))
        assert reply.shard == shard
        assert {event.queue for event in reply.events if isinstance(event.queue, str)} == {on_shard(shard)}
        by_queue = await box.broker.events.read(EventsQuery(), on_shard(shard))
        assert by_queue.shard == shard and len(by_queue.events) == 2
    with pytest.raises(InvalidRequest, match="shards 0 to 3"):
        await box.broker.events.read(EventsQuery(shard=SHARDS))
    with pytest.raises(InvalidRequest, match="is on shard 1"):
        await box.broker.events.read(EventsQuery(shard=0), on_shard(1))


@sharded
async def test_feed_has_the_events_of_all_shards(box):
    heard = []
    stop = box.broker.feed.watch(heard.extend)
    for shard in range(SHARDS):
        await box.publish(on_shard(shard), b"1")
    await asyncio.sleep(0)
    assert {each.queue for each in heard if each.kind == "published"} == {on_shard(shard) for shard in range(SHARDS)}
    stop()
    await box.publish(on_shard(0), b"2")
    await asyncio.sleep(0)
    assert sum(each.kind == "published" for each in heard) == SHARDS


@sharded
async def test_receipts_by_id_are_found_on_any_shard(box):
    found = []
    for shard in (3, 1):
        await box.publish(on_shard(shard), b"1", id=[f"client-{shard}".encode()])
        found += await box.lease(on_shard(shard))
    ids = [found[0].id, "client-1", "absent"]
    assert await box.broker.in_flight.receipts(ids) == [found[0].receipt, found[1].receipt, None]
