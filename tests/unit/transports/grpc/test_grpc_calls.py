"""Every gRPC method does the same as its HTTP operation and returns the same values."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from grpc_served import refusal, run
from http_fake import Http

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.transports.grpc.methods import UNARY
from penstock.transports.http import HttpApp
from penstock.v1 import broker_pb2 as pb

ORDERS = "default/default/orders"


def says(message: Any, value: Any) -> None:
    """The message has all fields of the JSON value."""
    if isinstance(message, Struct) or not isinstance(message, Message):
        assert (dict(message) if isinstance(message, Struct) else message) == pytest.approx(value)
        return
    for name, each in value.items():
        assert name in message.DESCRIPTOR.fields_by_name, f"{message.DESCRIPTOR.name} does not say {name}"
        field = message.DESCRIPTOR.fields_by_name[name]
        here = getattr(message, name)
        if each is None:
            assert not message.HasField(name)
        elif isinstance(each, list) and field.message_type is not None:
            assert len(here) == len(each)
            for one, other in zip(here, each, strict=True):
                says(
                    one,
                    dict(zip(one.DESCRIPTOR.fields_by_name, other, strict=True)) if isinstance(other, list) else other,
                )
        elif isinstance(each, dict) and field.message_type.GetOptions().map_entry:
            assert dict(here) == pytest.approx(each)
        elif isinstance(each, list):
            assert list(here) == each
        else:
            says(here, each)


async def through_http(here: Any, method: str, target: str, body: Any = None) -> Any:
    http = Http()
    http.app = HttpApp(here.broker, here.box.clock)
    answer = await http.ask(method, target, body)
    assert answer is not None and answer.status < 300, answer
    return answer.json


# -- publish ------------------------------------------------------------------------------------------------------


def test_message_fields_round_trip():
    async def story(here):
        sent = [
            pb.NewMessage(json='{"a": [1,  2]}', key="k", priority=-7, headers={"h": "v"}, tenant="t"),
            pb.NewMessage(payload=b"\xff\x00", max_retries=0),
            pb.NewMessage(payload=b""),
            pb.NewMessage(json="null", queue="elsewhere"),
        ]
        published = await here.stub.Publish(pb.PublishRequest(queue="orders", messages=sent))
        assert not published.durable, "a broker in memory"
        assert len({message.id for message in published.messages}) == 4
        assert [(message.queue, message.offset) for message in published.messages] == [
            (ORDERS, 0), (ORDERS, 1), (ORDERS, 2), ("default/default/elsewhere", 0),
        ]  # fmt: skip
        leased = (await here.stub.Lease(pb.LeaseRequest(queue="orders", max=10, lease_ms=5_000))).messages
        first, second, third = leased
        assert [message.id for message in leased] == [message.id for message in published.messages[:3]]
        assert (first.json, first.key, first.priority, dict(first.headers), first.tenant) == (
            '{"a": [1,  2]}', "k", -7, {"h": "v"}, "t",
        )  # fmt: skip
        assert (second.WhichOneof("content"), second.payload, second.HasField("key")) == ("payload", b"\xff\x00", False)
        assert third.WhichOneof("content") == "payload" and third.attempt == 1
        assert 0 < third.deadline_at_ms - third.published_at_ms < 60_000

    run(story)


def test_frame_round_trips_unchanged():
    async def story(here):
        frame = build([b"1", b"two"], kinds=[1, 0], columns={layout.KEY: [b"a", b""]})
        published = await here.stub.Publish(pb.PublishRequest(queue="orders", batch=frame))
        (run,) = published.runs
        assert (run.queue, run.offset, run.count, run.duplicate, list(run.rows)) == (ORDERS, 0, 2, False, [])
        leased = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=10, form=pb.FRAMES))
        (delivered,) = leased.runs
        assert not leased.messages and delivered.id == run.id
        assert Batch.open(delivered.batch).payloads() == [b"1", b"two"] and delivered.batch == frame
        settled = await here.stub.Ack(pb.AckRequest(receipts=[f"{delivered.receipt}0-1"]))
        assert [result.status for result in settled.results] == ["acked"]

    run(story)


def test_payload_marked_as_json_is_validated():
    async def story(here):
        frame = build([b"{broken", b"[1]", b"\xff"])
        await here.stub.Publish(pb.PublishRequest(queue="orders", batch=frame))
        messages = (await here.stub.Lease(pb.LeaseRequest(queue="orders", max=3))).messages
        assert [message.WhichOneof("content") for message in messages] == ["payload", "json", "payload"]

    run(story)


def test_non_atomic_publish_has_a_result_per_message():
    async def story(here):
        messages = [
            pb.NewMessage(json="1"), pb.NewMessage(json="{"), pb.NewMessage(json="2", delay_ms=-1), pb.NewMessage(),
            pb.NewMessage(json="3", queue="other"), pb.NewMessage(json="4", queue="Bad!"),
        ]  # fmt: skip
        reply = await here.stub.Publish(pb.PublishRequest(queue="orders", messages=messages, atomic=False))
        assert [result.WhichOneof("outcome") for result in reply.results] == [
            "published", "error", "error", "error", "published", "error",
        ]  # fmt: skip
        assert reply.results[4].published.queue == "default/default/other"
        assert [reply.results[row].error.details["row"] for row in (1, 2, 3)] == [1, 2, 3]
        assert dict(reply.results[5].error.details) == {"field": "queue"}
        refused = await refusal(here.stub.Publish(pb.PublishRequest(queue="q", batch=build([b"1"]), atomic=False)))
        assert refused.details == {"field": "atomic"}

    run(story)


def test_repeated_producer_sequence_is_a_duplicate():
    async def story(here):
        producer = pb.Producer(id="p", epoch=0, seq=0)
        for request in (
            pb.PublishRequest(queue="orders", producer=producer, messages=[pb.NewMessage(json="1")]),
            pb.PublishRequest(queue="orders", producer=pb.Producer(id="f"), batch=build([b"1"])),
        ):
            replies = [await here.stub.Publish(request) for _ in range(2)]
            flags = [[each.duplicate for each in [*reply.messages, *reply.runs]] for reply in replies]
            assert flags == [[False], [True]]

    run(story)


def test_transaction_is_atomic():
    async def story(here):
        await here.publish("in", b"1")
        (message,) = (await here.stub.Lease(pb.LeaseRequest(queue="in"))).messages
        out = [
            pb.NewMessage(json="1", queue="a"),
            pb.NewMessage(json="2", queue="b"),
            pb.NewMessage(json="3", queue="a"),
        ]
        done = await here.stub.Transact(pb.TransactRequest(ack=[message.receipt], publish=out))
        assert list(done.acked) == [message.receipt]
        assert [each.queue.rpartition("/")[2] for each in done.messages] == ["a", "b", "a"]
        again = await refusal(here.stub.Transact(pb.TransactRequest(ack=[message.receipt], publish=out[:1])))
        assert (again.status, again.details["receipts"]) == ("FAILED_PRECONDITION", [message.receipt])
        only = await here.stub.Transact(pb.TransactRequest(publish=out[:1]))
        assert len(only.messages) == 1

    run(story)


# -- settle -------------------------------------------------------------------------------------------------------


def test_all_settle_methods():
    async def story(here):
        await here.publish("orders", *[b"x"] * 5)
        leased = (await here.stub.Lease(pb.LeaseRequest(queue="orders", max=5))).messages
        receipts = [message.receipt for message in leased]
        stub = here.stub
        for call, request, status in (
            (stub.Extend, pb.ExtendRequest(receipts=receipts, lease_ms=60_000), "extended"),
            (stub.Ack, pb.AckRequest(receipts=receipts[:1]), "acked"),
            (stub.Nack, pb.NackRequest(receipts=receipts[1:2], delay_ms=5, error="e"), "retrying"),
            (stub.Reject, pb.RejectRequest(receipts=receipts[2:3], error="bad" * 2_000), "dead_lettered"),
            (stub.Release, pb.ReleaseRequest(receipts=receipts[3:4]), "released"),
            (stub.Ack, pb.AckRequest(receipts=[receipts[0], "rubbish", "\U0001f40d"]), "stale"),
        ):
            results = (await call(request)).results
            assert {result.status for result in results} == {status}
            assert [result.receipt for result in results] == list(request.receipts)
            assert all(result.HasField("deadline_at_ms") == (status == "extended") for result in results)
            assert all(result.HasField("due_at_ms") == (status == "retrying") for result in results)
        assert (await stub.Ack(pb.AckRequest())).results == []

    run(story)


def test_lease_can_carry_acks():
    async def story(here):
        await here.publish("orders", b"1", b"2")
        (first,) = (await here.stub.Lease(pb.LeaseRequest(queue="orders"))).messages
        reply = await here.stub.Lease(pb.LeaseRequest(queue="orders", ack=[first.receipt]))
        assert [result.status for result in reply.results] == ["acked"] and len(reply.messages) == 1

    run(story)


def test_scope_lease():
    async def story(here):
        await here.publish("email/high", b"1")
        await here.publish("email/low", b"2")
        reply = await here.stub.Lease(pb.LeaseRequest(scope="email", max=10))
        assert sorted(message.payload for message in reply.messages) == [b"1", b"2"]

    run(story)


# -- looking ------------------------------------------------------------------------------------------------------


def test_replies_have_all_values_of_http():
    async def story(here):
        stub = here.stub
        config = pb.QueueConfig(
            partitions=2, ordered_keys=True, lane_weights=[9, 4, 3, 2, 1],
            fair_share=pb.FairShare(enabled=True, weights={"t": 2}),
            dead_letter_alarm=pb.DeadLetterAlarm(count=1), ttl_ms=10**9, backoff=pb.Backoff(kind="fixed", jitter=0.5),
            retention=pb.Retention(mode="keep", ms=10**10), max_retries=0,
        )  # fmt: skip
        await stub.PutQueue(pb.PutQueueRequest(queue="orders", config=config))
        for number in range(6):
            await here.publish("orders", b"%d" % number, key=f"k{number}", tenant="t")
        await here.publish("shared", b"1")
        await stub.JoinGroup(pb.JoinGroupRequest(queue="shared", group="members", member="m"))
        leased = (await stub.Lease(pb.LeaseRequest(queue="orders", max=3, consumer="w"))).messages
        await stub.Ack(pb.AckRequest(receipts=[leased[0].receipt]))
        await stub.Reject(pb.RejectRequest(receipts=[leased[1].receipt], error="bad"))
        await stub.KeepOffsets(pb.KeepOffsetsRequest(queue="orders", client_id="c", offsets={"0": 1, "1": 2}))
        dead = leased[1].id
        for call, request, target in (
            ("GetQueue", pb.GetQueueRequest(queue="orders"), "/v1/queues/orders"),
            ("ListQueues", pb.ListQueuesRequest(), "/v1/queues"),
            ("Groups", pb.GroupsRequest(queue="orders"), "/v1/groups?queue=orders"),
            ("Groups", pb.GroupsRequest(queue="shared"), "/v1/groups?queue=shared"),
            ("Summary", pb.SummaryRequest(), "/v1/stats/summary"),
            ("GetOffsets", pb.OffsetsRequest(queue="orders", client_id="c"), "/v1/offsets?queue=orders&client_id=c"),
            (
                "GetOffsets",
                pb.OffsetsRequest(queue="orders", client_id="new"),
                "/v1/offsets?queue=orders&client_id=new",
            ),
            ("History", pb.HistoryRequest(queue="orders", id=dead), f"/v1/history?queue=orders&id={dead}"),
            ("Redrives", pb.RedrivesRequest(queue="orders"), "/v1/dlq/redrives?queue=orders"),
        ):
            says(await getattr(stub, call)(request), await through_http(here, "GET", target))
        stats = await through_http(here, "GET", "/v1/stats?queue=orders")
        for drifting in ("rates", "oldest_age_ms", "groups"):
            stats.pop(drifting)
        says(await stub.Stats(pb.StatsRequest(queue="orders")), stats)
        explained = await through_http(here, "GET", "/v1/explain?queue=orders")
        reply = await stub.Explain(pb.ExplainRequest(queue="orders"))
        assert reply.messages and len(reply.messages) == len(explained["messages"])
        for one, other in zip(reply.messages, explained["messages"], strict=True):
            assert (one.state, one.deliverable) == (other["state"], other["deliverable"])
            assert [reason["kind"] for reason in one.reasons] == [reason["kind"] for reason in other["reasons"]]
        scale = await through_http(here, "GET", "/v1/autoscale?queue=orders&target_drain_s=30")
        signal = await stub.Autoscale(pb.AutoscaleRequest(queue="orders", target_drain_s=30))
        assert set(scale) == set(signal.DESCRIPTOR.fields_by_name) and signal.target_drain_s == 30

    run(story)


def test_queue_is_created_changed_and_deleted_with_a_token():
    async def story(here):
        stub = here.stub
        made = await stub.PutQueue(
            pb.PutQueueRequest(queue="orders", config=pb.QueueConfig(ttl_ms=5_000, lease_ms=1_000))
        )
        assert (made.config.ttl_ms, made.config.lease_ms, made.config.max_retries) == (5_000, 1_000, 3)
        changed = await stub.PatchQueue(
            pb.PatchQueueRequest(queue="orders", config=pb.QueueConfig(max_retries=0), reset=["ttl_ms"])
        )
        assert (changed.config.HasField("ttl_ms"), changed.config.max_retries, changed.config.lease_ms) == (
            False,
            0,
            1_000,
        )
        await here.publish("orders", b"1")
        for call, done in ((stub.PurgeQueue, "purged"), (stub.DeleteQueue, "deleted")):
            refused = await refusal(call(pb.DestroyRequest(queue="orders")))
            assert refused.status == "ABORTED" and "would_lose" in refused.details
            reply = await call(pb.DestroyRequest(queue="orders", confirm=refused.details["confirm"]))
            assert getattr(reply, done) and reply.queue == ORDERS
        assert (await refusal(stub.GetQueue(pb.GetQueueRequest(queue="orders")))).code == "queue_not_found"

    run(story)


def test_dead_letters_are_listed_redriven_and_deleted():
    async def story(here):
        stub = here.stub
        await here.publish("orders", b"1", b"2", key="k", headers={"h": "v"})
        leased = (await stub.Lease(pb.LeaseRequest(queue="orders", max=2, consumer="w"))).messages
        await stub.Reject(pb.RejectRequest(receipts=[message.receipt for message in leased], error="bad"))
        page = await stub.DeadLetters(pb.DeadLettersRequest(queue="orders", filter='error = "bad"'))
        assert [letter.message.payload for letter in page.messages] == [b"1", b"2"] and page.total == 2
        letter = page.messages[0]
        assert (letter.group, letter.reason, letter.error, letter.consumer) == ("default", "rejected", "bad", "w")
        assert letter.dead_at_ms > 0 and letter.message.attempt == 1 and not letter.message.receipt
        dry = await stub.Redrive(pb.RedriveRequest(queue="orders", filter=""))
        assert dry.dry_run and dry.count == 2 and len(dry.sample) == 2
        real = await stub.Redrive(
            pb.RedriveRequest(queue="orders", ids=[leased[0].id], dry_run=False, redrive_id="again")
        )
        assert not real.dry_run and real.status.redrive_id == "again"
        await here.until(lambda: here.ready("orders") == 1)
        (status,) = (await stub.Redrives(pb.RedrivesRequest(queue="orders", redrive_id="again"))).redrives
        assert status.redriven == 1 and status.queue == ORDERS
        refused = await refusal(stub.DeleteDeadLetters(pb.DeleteDeadLettersRequest(queue="orders", filter="")))
        reply = await stub.DeleteDeadLetters(
            pb.DeleteDeadLettersRequest(queue="orders", filter="", confirm=refused.details["confirm"])
        )
        assert reply.deleted == 1

    run(story)


def test_schedule_methods():
    async def story(here):
        stub = here.stub
        for number, message in enumerate(
            (pb.ScheduleMessage(json='{"a":1}', key="k"), pb.ScheduleMessage(payload=b"\xff"))
        ):
            put = await stub.PutSchedule(
                pb.PutScheduleRequest(name=f"s{number}", queue="orders", cron="0 3 * * *", message=message)
            )
            assert put.message.WhichOneof("content") == message.WhichOneof("content")
            assert (put.message.json, put.message.payload, put.message.key) == (
                message.json,
                message.payload,
                message.key,
            )
            assert put.state == "active" and len(put.next) == 5 and put.timezone == "UTC"
        shown = await through_http(here, "GET", "/v1/schedules/s0")
        shown.pop("message")
        says(await stub.GetSchedule(pb.ScheduleNameRequest(name="s0")), shown)
        assert (await stub.PauseSchedule(pb.ScheduleNameRequest(name="s0"))).state == "paused"
        assert (await stub.ResumeSchedule(pb.ScheduleNameRequest(name="s0"))).state == "active"
        listed = await stub.ListSchedules(pb.ListSchedulesRequest(prefix="s"))
        assert [each.name for each in listed.schedules] == ["s0", "s1"] and listed.total == 2
        assert (await stub.DeleteSchedule(pb.ScheduleNameRequest(name="s0"))).deleted
        assert (await refusal(stub.GetSchedule(pb.ScheduleNameRequest(name="s0")))).status == "NOT_FOUND"

    run(story)


def test_events_and_extent():
    async def story(here):
        stub = here.stub
        await here.box.publish("orders", b"1", b"2")
        (leased, _) = await here.box.lease("orders", max=2)
        await here.broker.messages.nack([leased.receipt], error="no")
        for call, request, target in (
            (stub.Extent, pb.ExtentRequest(queue="orders"), "/v1/extent?queue=orders"),
            (stub.Events, pb.EventsRequest(after="earliest", queue="orders"), "/v1/events?queue=orders"),
            (stub.EventRanges, pb.EventRangesRequest(each=1), "/v1/events/ranges?each=1"),
        ):
            says(await call(request), await through_http(here, "GET", target))
        assert (await refusal(stub.Events(pb.EventsRequest(after="soon")))).status == "INVALID_ARGUMENT"

    run(story)


def test_hold_methods():
    async def story(here):
        stub = here.stub
        await here.box.publish("orders", b"1")
        held = {"orders": pb.HeldOffsets(offsets={"0": 1})}
        put = await stub.PutHold(pb.PutHoldRequest(name="lake", events=1, queues=held))
        shown = await through_http(here, "GET", "/v1/holds/lake")
        assert {queue: dict(each.offsets) for queue, each in put.queues.items()} == shown.pop("queues")
        says(put, shown)
        assert await stub.GetHold(pb.HoldNameRequest(name="lake")) == put
        assert list((await stub.ListHolds(pb.ListHoldsRequest())).holds) == [put]
        assert (await stub.DeleteHold(pb.HoldNameRequest(name="lake"))).removed
        assert (await refusal(stub.GetHold(pb.HoldNameRequest(name="lake")))).status == "NOT_FOUND"

    run(story)


def test_cancel_and_reschedule():
    async def story(here):
        stub = here.stub
        published = await here.publish("orders", b"1", b"2", delay_ms=60_000, key="k")
        ids = [message.id for message in published.messages]
        moved = await stub.Reschedule(pb.RescheduleRequest(queue="orders", ids=ids[:1], delay_ms=0))
        assert moved.rescheduled == 1 and moved.results[0].status == "rescheduled"
        gone = await stub.Cancel(pb.CancelRequest(queue="orders", key="k"))
        assert gone.cancelled == 2 and {result.id for result in gone.results} == set(ids)

    run(story)


def test_group_members_join_and_leave():
    async def story(here):
        stub = here.stub
        await stub.PutQueue(pb.PutQueueRequest(queue="orders", config=pb.QueueConfig(partitions=4)))
        share = await stub.JoinGroup(pb.JoinGroupRequest(queue="orders", group="g", member="m"))
        assert list(share.assigned) == [0, 1, 2, 3] and share.generation == 1
        beat = await stub.Heartbeat(pb.HeartbeatRequest(queue="orders", group="g", member="m", generation=1))
        assert list(beat.assigned) == [0, 1, 2, 3]
        reply = await stub.Lease(pb.LeaseRequest(queue="orders", group="g", member="m", generation=1))
        assert reply.generation == 1
        for left in (True, False):
            assert (await stub.LeaveGroup(pb.LeaveGroupRequest(queue="orders", group="g", member="m"))).left == left

    run(story)


def test_read_offsets():
    async def story(here):
        stub = here.stub
        await here.publish("orders", b"0", b"1", b"2")
        reply = await stub.Read(pb.ReadRequest(queue="orders", offset="1", max=1))
        assert [message.payload for message in reply.messages] == [b"1"]
        assert (reply.next_offset, reply.end_offset, reply.start_offset, reply.skipped) == (2, 3, 0, 0)
        frames = await stub.Read(pb.ReadRequest(queue="orders", form=pb.FRAMES))
        assert Batch.open(frames.runs[0].batch).count == 3 and not frames.runs[0].HasField("receipt")
        nothing = await stub.Read(pb.ReadRequest(queue="orders", offset="latest", wait_ms=1))
        assert (nothing.messages, nothing.next_offset) == ([], 3)
        peeked = await stub.Peek(pb.PeekRequest(queue="orders", max=2))
        assert [message.payload for message in peeked.messages] == [b"0", b"1"]
        kept = await stub.ForgetOffsets(pb.OffsetsRequest(queue="orders", client_id="c"))
        assert not kept.HasField("used_at_ms")

    run(story)


# -- sizes, versions, rubbish -------------------------------------------------------------------------------------


def test_lease_over_the_reply_size_is_split_and_the_rest_released():
    async def story(here):
        for _ in range(4):
            await here.publish("orders", *[b"x" * 500_000] * 3)
        for form in (pb.FRAMES, pb.MESSAGES):
            reply = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=12, form=form))
            taken = len(reply.messages) + sum(run.count for run in reply.runs)
            assert 6 <= taken < 9
            await here.until(lambda taken=taken: here.ready("orders") == 12 - taken)
            assert here.leased("orders") == taken
            receipts = [message.receipt for message in reply.messages]
            receipts += [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in reply.runs]
            assert {
                each.status for each in (await here.stub.Release(pb.ReleaseRequest(receipts=receipts))).results
            } == {"released"}
        read = await here.stub.Read(pb.ReadRequest(queue="orders", max=12))
        assert read.next_offset == len(read.messages) < 12
        assert 0 < len((await here.stub.Peek(pb.PeekRequest(queue="orders", max=12))).messages) < 12
        refused = await refusal(here.stub.Publish(pb.PublishRequest(queue="orders", batch=b"PB" + bytes(9 << 20))))
        assert refused.status == "INVALID_ARGUMENT"

    run(story)


def test_too_large_dead_letter_page_is_refused():
    async def story(here):
        for _ in range(3):
            await here.publish("orders", *[b"x" * 900_000] * 2)
        leased = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=4))
        more = await here.stub.Lease(pb.LeaseRequest(queue="orders", max=4))
        receipts = [message.receipt for reply in (leased, more) for message in reply.messages]
        await here.stub.Reject(pb.RejectRequest(receipts=receipts))
        refused = await refusal(here.stub.DeadLetters(pb.DeadLettersRequest(queue="orders")))
        assert refused.code == "too_large" and "less at once" in refused.text
        assert len((await here.stub.DeadLetters(pb.DeadLettersRequest(queue="orders", limit=2))).messages) == 2

    run(story)


@pytest.mark.parametrize("name", UNARY)
def test_unparsable_request_is_refused(name):
    async def story(here):
        call = here.channel.unary_unary(f"/penstock.v1.Broker/{name}")
        for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x02\xff\xfe", b"\x00", bytes(100), b"\xff" * 1_000):
            refused = await refusal(call(data))
            assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "invalid_request"), data
        unknown = await refusal(call(b"\xc2\x3e\x01x"))
        assert unknown.details == {"field": "1000"} and "not known to this server" in unknown.text

    run(story)


def test_unknown_fields_are_refused_at_any_depth():
    async def story(here):
        unknown = b"\xc2\x3e\x01x"
        message = pb.NewMessage(json="1").SerializeToString() + unknown
        data = pb.PublishRequest(queue="q").SerializeToString() + b"\x1a" + bytes([len(message)]) + message
        refused = await refusal(here.channel.unary_unary("/penstock.v1.Broker/Publish")(data))
        assert "NewMessage: field number 1000" in refused.text
        assert (await here.broker.stats.summary())["queues"] == 0

    run(story)


def test_compressed_requests_are_refused():
    async def story(here):
        bomb = pb.LeaseRequest(queue="q" * 10_000_000)
        refused = await refusal(here.stub.Lease(bomb, compression=grpc.Compression.Gzip))
        assert refused.status == "UNIMPLEMENTED"

    run(story)


def test_a_request_far_over_the_limit_is_refused_by_grpc_itself():
    async def story(here):
        data = b"\x0a" + bytes(3 * limits.REQUEST_BYTES_MAX)
        refused = await refusal(here.channel.unary_unary("/penstock.v1.Broker/Publish")(data))
        assert refused.status == "RESOURCE_EXHAUSTED"

    run(story)


def test_unknown_method_is_unimplemented():
    async def story(here):
        refused = await refusal(here.channel.unary_unary("/penstock.v1.Broker/Nonsense")(b""))
        assert refused.status == "UNIMPLEMENTED"

    run(story)


def test_calls_are_counted_by_operation_and_status():
    async def story(here):
        await here.publish("orders", b"1")
        await here.stub.Lease(pb.LeaseRequest(queue="orders"))
        await refusal(here.stub.Lease(pb.LeaseRequest(queue="none")))
        text = (await here.metrics.exposition(here.broker))[0].decode()
        assert 'penstock_grpc_calls_total{operation="publish",status="OK"} 1.0' in text
        assert 'penstock_grpc_calls_total{operation="lease",status="NOT_FOUND"} 1.0' in text
        assert "penstock_publish_duration_seconds_count 1.0" in text
        assert "penstock_delivery_latency_seconds_count 1.0" in text

    run(story)


# -- settings of a queue ------------------------------------------------------------------------------------------


def test_destructive_settings_change_needs_the_token():
    async def story(here: Any) -> None:
        keep = pb.QueueConfig(max_retries=7, retention=pb.Retention(mode="keep", ms=60_000))
        await here.stub.PutQueue(pb.PutQueueRequest(queue="log", config=keep))
        await here.publish("log", b"kept")
        reply = await here.stub.PutQueue(
            pb.PutQueueRequest(queue="log", config=pb.QueueConfig(lease_ms=5_000), reset=["retention.ms"])
        )
        assert (reply.config.max_retries, reply.config.lease_ms, reply.config.retention.mode) == (7, 5_000, "keep")
        assert not reply.config.retention.HasField("ms")
        short = pb.QueueConfig(retention=pb.Retention(ms=1_000))
        for call, request in ((here.stub.PutQueue, pb.PutQueueRequest), (here.stub.PatchQueue, pb.PatchQueueRequest)):
            refused = await refusal(call(request(queue="log", config=short)))
            assert refused.code == "conflict"
            token = refused.details["confirm"]
        await here.stub.PatchQueue(pb.PatchQueueRequest(queue="log", config=short, confirm=token))
        for reset in ("lease_ms.x", "nonsense", "retention.x"):
            asked = pb.PutQueueRequest(queue="log", config=pb.QueueConfig(lease_ms=1_000), reset=[reset])
            assert (await refusal(here.stub.PutQueue(asked))).code == "invalid_request"

    run(story)


def test_groups_are_created_moved_and_deleted():
    async def story(here: Any) -> None:
        stub = here.stub
        keep = pb.QueueConfig(retention=pb.Retention(mode="keep"))
        await stub.PutQueue(pb.PutQueueRequest(queue="log", config=keep))
        await here.publish("log", b"0", b"1", b"2", b"3")
        made = await stub.PutGroup(pb.PutGroupRequest(queue="log", group="audit", offsets={"0": 2}))
        assert (made.created, dict(made.offsets)) == (True, {"0": 2})
        assert not (await stub.PutGroup(pb.PutGroupRequest(queue="log", group="audit", start="latest"))).created
        dry = pb.SeekGroupRequest(queue="log", group="audit", to="earliest", dry_run=True)
        body = {"queue": "log", "group": "audit", "to": "earliest", "dry_run": True}
        says(await stub.SeekGroup(dry), await through_http(here, "POST", "/v1/groups/seek", body))
        moved = await stub.SeekGroup(pb.SeekGroupRequest(queue="log", group="audit", offsets={"0": 1}))
        assert (moved.again, moved.skipped, moved.partitions[0].to_offset) == (1, 0, 1)
        refused = await refusal(stub.DeleteGroup(pb.DeleteGroupRequest(queue="log", group="audit")))
        assert refused.code == "conflict"
        gone = pb.DeleteGroupRequest(queue="log", group="audit", confirm=refused.details["confirm"])
        assert (await stub.DeleteGroup(gone)).deleted
        both = pb.SeekGroupRequest(queue="log", group="audit", to="earliest", offsets={"0": 1})
        assert (await refusal(stub.SeekGroup(both))).code == "invalid_request"
        assert (await refusal(stub.SeekGroup(pb.SeekGroupRequest(queue="log")))).code == "invalid_request"

    run(story)
