"""Calls of the broker for requests of `wire/`. All transports share this module.

A transport decodes its bytes to a request type of `wire/`, calls a function here and encodes the result. Publishing is
in `publishing.py`. Transports encode deliveries directly from the stored frames.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock import limits
from penstock.broker.types import DeliveredRun, LeaseReply, ReadReply, Touched
from penstock.ids import check_client_id, check_group, check_member, check_schedule, parse_scope
from penstock.pending import PendingReply
from penstock.wire import messages, webhooks
from penstock.wire.delivery import Settled
from penstock.wire.events import EventRangesQuery, EventRangesReply, EventsQuery, EventsReply
from penstock.wire.holds import ExtentReply, HoldRemovedReply, HoldReply, HoldRequest, HoldsReply
from penstock.wire.parse import parse_queue
from penstock.wire.readers import KeepOffsetsRequest, OffsetsQuery, OffsetsReply
from penstock.wire.schedules import (
    ScheduleRemovedReply,
    ScheduleReply,
    ScheduleRequest,
    SchedulesQuery,
    SchedulesReply,
)

if TYPE_CHECKING:
    from penstock.broker.service import Broker


# -- lease and settle ---------------------------------------------------------------------------------------------


def lease(broker: Broker, asked: messages.LeaseRequest) -> Callable[..., PendingReply[LeaseReply]]:
    """The broker call for a lease request. The caller adds `wait_ms` and `ack`."""
    take: Callable[..., PendingReply[LeaseReply]]
    if asked.scope is not None:
        take = partial(broker.lease_scope, parse_scope(asked.scope))
    else:
        member = "" if asked.member is None else check_member(asked.member)
        queue = parse_queue(cast(str, asked.queue))
        take = partial(broker.lease, queue, member=member, generation=asked.generation or 0)
    return partial(
        take, group=check_group(asked.group), max=asked.max, lease_ms=asked.lease_ms, consumer=asked.consumer
    )


def ack(broker: Broker, asked: messages.AckRequest) -> PendingReply[Sequence[Settled]]:
    return broker.ack(asked.receipts)


def nack(broker: Broker, asked: messages.NackRequest) -> PendingReply[Sequence[Settled]]:
    return broker.nack(
        asked.receipts, delay_ms=asked.delay_ms, error=_shortened(asked.error), max_retries=asked.max_retries
    )


def reject(broker: Broker, asked: messages.RejectRequest) -> PendingReply[Sequence[Settled]]:
    return broker.reject(asked.receipts, error=_shortened(asked.error))


def release(broker: Broker, asked: messages.AckRequest) -> PendingReply[Sequence[Settled]]:
    return broker.release(asked.receipts)


def extend(broker: Broker, asked: messages.ExtendRequest) -> PendingReply[Sequence[Settled]]:
    return broker.extend(asked.receipts, lease_ms=asked.lease_ms)


async def cancel(broker: Broker, asked: messages.CancelRequest) -> dict[str, Any]:
    count, results = await broker.cancel(parse_queue(asked.queue), ids=asked.ids, key=asked.key)
    return {"cancelled": count, "results": _touched(results)}


async def reschedule(broker: Broker, asked: messages.RescheduleRequest) -> dict[str, Any]:
    count, results = await broker.reschedule(
        parse_queue(asked.queue),
        ids=asked.ids,
        key=asked.key,
        deliver_at_ms=asked.deliver_at_ms,
        delay_ms=asked.delay_ms,
    )
    return {"rescheduled": count, "results": _touched(results)}


def _touched(results: Sequence[Touched]) -> list[dict[str, str]]:
    return [{"id": each.id, "status": each.status} for each in results]


def _shortened(error: str | None) -> str:
    return (error or "")[: limits.ERROR_CHARS_MAX]


# -- members of groups --------------------------------------------------------------------------------------------


async def join_group(broker: Broker, asked: messages.JoinRequest) -> dict[str, Any]:
    share = await broker.join_group(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=None if asked.member is None else check_member(asked.member),
        session_ms=asked.session_ms,
        drain_ms=asked.drain_ms,
    )
    return share._asdict()


async def heartbeat(broker: Broker, asked: messages.HeartbeatRequest) -> dict[str, Any]:
    share = await broker.heartbeat(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
        released=asked.released,
    )
    return share._asdict()


async def leave_group(broker: Broker, asked: messages.LeaveRequest) -> dict[str, Any]:
    left = await broker.leave_group(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
    )
    return {"left": left}


# -- the log ------------------------------------------------------------------------------------------------------


def read(
    broker: Broker, asked: messages.ReadQuery, *, everything: bool = False
) -> Callable[..., Coroutine[Any, Any, ReadReply]]:
    """The broker call for a read request. The caller adds `offset`, `wait_ms` and the reader.

    With `everything` the number of messages is limited only by the bytes.
    """
    return partial(
        broker.read,
        parse_queue(asked.queue),
        partition=asked.partition,
        max=None if everything else asked.max or messages.READ_MAX_DEFAULT,
        until=asked.until,
        bytes_max=asked.max_bytes,
        uuid=asked.uuid,
    )


def reader_of(asked: messages.ReadQuery) -> str | None:
    return None if asked.client_id is None else check_client_id(asked.client_id)


async def keep_offsets(broker: Broker, asked: KeepOffsetsRequest) -> OffsetsReply:
    client = check_client_id(asked.client_id)
    return await broker.keep_offsets(parse_queue(asked.queue), client, asked.by_partition())


async def get_offsets(broker: Broker, asked: OffsetsQuery) -> OffsetsReply:
    return await broker.get_offsets(parse_queue(asked.queue), check_client_id(asked.client_id))


async def forget_offsets(broker: Broker, asked: OffsetsQuery) -> OffsetsReply:
    return await broker.forget_offsets(parse_queue(asked.queue), check_client_id(asked.client_id))


# -- inspection ---------------------------------------------------------------------------------------------------


async def peek(broker: Broker, asked: messages.PeekQuery) -> list[DeliveredRun]:
    return await broker.peek(parse_queue(asked.queue), max=asked.max, group=check_group(asked.group))


async def explain(broker: Broker, asked: messages.ExplainQuery) -> dict[str, Any]:
    return await broker.explain(parse_queue(asked.queue), id=asked.id, group=check_group(asked.group))


async def history(broker: Broker, asked: messages.HistoryQuery) -> dict[str, Any]:
    return await broker.history(parse_queue(asked.queue), id=asked.id)


async def autoscale(broker: Broker, asked: messages.AutoscaleQuery) -> dict[str, Any]:
    return broker.autoscale(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        target_drain_s=asked.target_drain_s,
        min_workers=asked.min_workers,
        max_workers=asked.max_workers,
    )


async def stats(broker: Broker, asked: messages.QueueQuery) -> dict[str, Any]:
    return broker.stats(parse_queue(asked.queue))


async def summary(broker: Broker, asked: messages.NoQuery) -> dict[str, Any]:  # noqa: ARG001
    return broker.summary()


async def groups(broker: Broker, asked: messages.QueueQuery) -> dict[str, Any]:
    return broker.groups(parse_queue(asked.queue))


# -- queues -------------------------------------------------------------------------------------------------------


async def list_queues(broker: Broker, asked: messages.QueuesQuery) -> dict[str, Any]:
    return broker.list_queues(prefix=asked.prefix, page=asked.page, limit=asked.limit)


async def get_queue(broker: Broker, asked: messages.QueueQuery) -> dict[str, Any]:
    return broker.get_queue(parse_queue(asked.queue))


# -- dead letters -------------------------------------------------------------------------------------------------


async def dead_letters(broker: Broker, asked: messages.DeadLettersQuery) -> dict[str, Any]:
    """The entries of `dead_letters` are `FoundLetter`."""
    return await broker.dead_letters(
        parse_queue(asked.queue),
        group=_group(asked.group),
        filter=asked.filter,
        page=asked.page,
        limit=asked.limit,
        after=asked.after,
    )


async def redrive(broker: Broker, asked: messages.RedriveRequest) -> dict[str, Any]:
    """The entries of `sample`, in the reply of a dry run, are `FoundLetter`."""
    return await broker.redrive(
        parse_queue(asked.queue),
        group=_group(asked.group),
        filter=asked.filter,
        ids=asked.ids,
        target=None if asked.target is None else parse_queue(asked.target),
        delay_ms=asked.delay_ms or 0,
        priority=asked.priority,
        rate_per_s=asked.rate_per_s,
        dry_run=asked.dry_run,
        redrive_id=asked.redrive_id,
    )


async def redrives(broker: Broker, asked: messages.RedrivesQuery) -> dict[str, Any]:
    return broker.redrives(parse_queue(asked.queue), asked.redrive_id)


async def stop_redrive(broker: Broker, asked: messages.StopRedriveRequest) -> dict[str, Any]:
    return await broker.stop_redrive(parse_queue(asked.queue), asked.redrive_id)


async def delete_dead_letters(
    broker: Broker, asked: messages.DeleteDeadLettersRequest, confirm: str | None
) -> dict[str, Any]:
    return await broker.delete_dead_letters(
        parse_queue(asked.queue), group=_group(asked.group), filter=asked.filter, ids=asked.ids, confirm=confirm
    )


def _group(name: str | None) -> str | None:
    return None if name is None else check_group(name)


# -- schedules ----------------------------------------------------------------------------------------------------


async def list_schedules(broker: Broker, asked: SchedulesQuery) -> SchedulesReply:
    return broker.schedules.list(prefix=asked.prefix, page=asked.page, limit=asked.limit)


async def get_schedule(broker: Broker, name: str) -> ScheduleReply:
    return broker.schedules.get(check_schedule(name))


async def put_schedule(broker: Broker, name: str, asked: ScheduleRequest) -> tuple[ScheduleReply, bool]:
    return await broker.schedules.put(check_schedule(name), asked)


async def delete_schedule(broker: Broker, name: str) -> ScheduleRemovedReply:
    await broker.schedules.remove(check_schedule(name))
    return ScheduleRemovedReply(name, True)


async def pause_schedule(broker: Broker, name: str, *, paused: bool) -> ScheduleReply:
    return await broker.schedules.pause(check_schedule(name), paused=paused)


# -- webhooks -----------------------------------------------------------------------------------------------------


async def list_webhooks(broker: Broker, asked: webhooks.WebhooksQuery) -> webhooks.WebhooksReply:
    return broker.webhooks.list(queue=asked.queue, page=asked.page, limit=asked.limit)


async def create_webhook(broker: Broker, asked: webhooks.WebhookRequest) -> webhooks.WebhookReply:
    return await broker.webhooks.create(asked)


async def get_webhook(broker: Broker, asked: webhooks.WebhookNamed) -> webhooks.WebhookReply:
    return broker.webhooks.get(asked.id)


async def delete_webhook(broker: Broker, asked: webhooks.WebhookNamed) -> webhooks.WebhookRemovedReply:
    await broker.webhooks.remove(asked.id)
    return webhooks.WebhookRemovedReply(asked.id, True)


async def pause_webhook(broker: Broker, asked: webhooks.WebhookNamed) -> webhooks.WebhookReply:
    return await broker.webhooks.pause(asked.id)


async def resume_webhook(broker: Broker, asked: webhooks.WebhookNamed) -> webhooks.WebhookReply:
    return await broker.webhooks.resume(asked.id)


async def rotate_webhook(broker: Broker, asked: webhooks.RotateRequest) -> webhooks.WebhookReply:
    return await broker.webhooks.rotate(asked.id, asked.overlap_ms)


async def test_webhook(broker: Broker, asked: webhooks.WebhookNamed) -> webhooks.TestReply:
    return await broker.webhooks.test(asked.id)


async def webhook_attempts(broker: Broker, asked: webhooks.AttemptsQuery) -> webhooks.AttemptsReply:
    return broker.webhooks.attempts(asked.id, asked.limit)


# -- events and holds ---------------------------------------------------------------------------------------------


async def extent(broker: Broker, asked: messages.ExtentQuery) -> ExtentReply:
    return broker.extent(parse_queue(asked.queue), asked.at)


async def events(broker: Broker, asked: EventsQuery) -> EventsReply:
    return await broker.events.read(asked, None if asked.queue is None else parse_queue(asked.queue))


async def event_ranges(broker: Broker, asked: EventRangesQuery) -> EventRangesReply:
    return await broker.events.ranges(asked)


async def list_holds(broker: Broker) -> HoldsReply:
    return broker.holds.all()


async def get_hold(broker: Broker, name: str) -> HoldReply:
    return broker.holds.get(check_client_id(name))


async def put_hold(broker: Broker, name: str, asked: HoldRequest) -> HoldReply:
    return await broker.holds.set(check_client_id(name), asked, {each: parse_queue(each) for each in asked.queues})


async def delete_hold(broker: Broker, name: str) -> HoldRemovedReply:
    return await broker.holds.remove(check_client_id(name))
