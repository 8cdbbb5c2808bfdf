"""Calls of the broker for requests of `wire/`: one function per operation, with its name. All transports share them.

A function takes the broker and the request: the struct of the body, if the operation has one, then that of the path and
query parameters, if there are any. It returns the reply, or an awaitable of it; `Created` if the reply has status 201.
Operations that deliver or publish messages are different in each transport: what they share is `lease_call`,
`read_call` and `publishing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock import limits
from penstock.broker.types import CancelResult, DeliveredRun, LeaseReply, LetterPage, ReadReply, RedriveReply
from penstock.errors import InvalidRequest
from penstock.ids import check_client_id, check_group, check_member, check_namespace, check_schedule, parse_scope
from penstock.pending import PendingReply
from penstock.wire import analytics, holds, messages, readers, schedules, users, webhooks
from penstock.wire import groups as group_requests
from penstock.wire.delivery import Settled
from penstock.wire.encryption import EncryptionReply, EraseRequest
from penstock.wire.events import EventRangesQuery, EventsQuery
from penstock.wire.keys import KeyNamed, KeyReply, KeyRequest, KeyRevokedReply, KeysReply, RotateKeyRequest
from penstock.wire.parse import parse_queue
from penstock.wire.stats import ConsumersQuery

if TYPE_CHECKING:
    from penstock.broker.service import Broker

Settling = PendingReply[Sequence[Settled]]


class Created(NamedTuple):
    """The reply of an operation that has created what the request names."""

    reply: Any


# -- lease and settle ---------------------------------------------------------------------------------------------


def lease_call(broker: Broker, asked: messages.LeaseRequest) -> Callable[..., PendingReply[LeaseReply]]:
    """The broker call for a lease request. The caller adds `wait_ms` and `ack`."""
    take: Callable[..., PendingReply[LeaseReply]]
    if asked.scope is not None:
        take = partial(broker.messages.lease_scope, parse_scope(asked.scope))
    else:
        member = "" if asked.member is None else check_member(asked.member)
        queue = parse_queue(cast(str, asked.queue))
        take = partial(broker.messages.lease, queue, member=member, generation=asked.generation or 0)
    return partial(
        take, group=check_group(asked.group), max=asked.max, lease_ms=asked.lease_ms, consumer=asked.consumer
    )


def ack(broker: Broker, asked: messages.AckRequest) -> Settling:
    return broker.messages.ack(asked.receipts)


def nack(broker: Broker, asked: messages.NackRequest) -> Settling:
    error = _shortened(asked.error)
    return broker.messages.nack(asked.receipts, delay_ms=asked.delay_ms, error=error, max_retries=asked.max_retries)


def reject(broker: Broker, asked: messages.RejectRequest) -> Settling:
    return broker.messages.reject(asked.receipts, error=_shortened(asked.error))


def release(broker: Broker, asked: messages.AckRequest) -> Settling:
    return broker.messages.release(asked.receipts)


def extend(broker: Broker, asked: messages.ExtendRequest) -> Settling:
    return broker.messages.extend(asked.receipts, lease_ms=asked.lease_ms)


async def cancel(broker: Broker, asked: messages.CancelRequest) -> dict[str, Any]:
    count, results = await broker.scheduled.cancel(parse_queue(asked.queue), ids=asked.ids, key=asked.key)
    return {"cancelled": count, "results": _touched(results)}


async def reschedule(broker: Broker, asked: messages.RescheduleRequest) -> dict[str, Any]:
    count, results = await broker.scheduled.reschedule(
        parse_queue(asked.queue),
        ids=asked.ids,
        key=asked.key,
        deliver_at_ms=asked.deliver_at_ms,
        delay_ms=asked.delay_ms,
    )
    return {"rescheduled": count, "results": _touched(results)}


def _touched(results: Sequence[CancelResult]) -> list[dict[str, str]]:
    return [{"id": each.id, "status": each.status} for each in results]


def _shortened(error: str | None) -> str:
    return (error or "")[: limits.ERROR_CHARS_MAX]


# -- groups -------------------------------------------------------------------------------------------------------


async def join_group(broker: Broker, asked: messages.JoinRequest) -> dict[str, Any]:
    share = await broker.members.join(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=None if asked.member is None else check_member(asked.member),
        session_ms=asked.session_ms,
        drain_ms=asked.drain_ms,
    )
    return share._asdict()


async def heartbeat(broker: Broker, asked: messages.HeartbeatRequest) -> dict[str, Any]:
    share = await broker.members.heartbeat(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
        released=asked.released,
    )
    return share._asdict()


async def leave_group(broker: Broker, asked: messages.LeaveRequest) -> dict[str, Any]:
    left = await broker.members.leave(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        member=check_member(asked.member),
        generation=asked.generation,
    )
    return {"left": left}


async def put_group(broker: Broker, asked: group_requests.PutGroupRequest) -> Any:
    start = group_requests.place_of(asked.start, "start")
    return _created(*await broker.groups.create(parse_queue(asked.queue), check_group(asked.group), start=start))


def seek_group(broker: Broker, asked: group_requests.SeekGroupRequest) -> Any:
    to = group_requests.place_of(asked.to, "to")
    return broker.groups.seek(parse_queue(asked.queue), check_group(asked.group), to=to, dry_run=asked.dry_run)


def delete_group(broker: Broker, asked: group_requests.DeleteGroupQuery) -> Any:
    return broker.groups.delete(parse_queue(asked.queue), check_group(asked.group), confirm=asked.confirm)


def consumers(broker: Broker, asked: ConsumersQuery) -> Any:
    return broker.stats.consumers(parse_queue(asked.queue), limit=asked.limit)


def groups(broker: Broker, asked: messages.QueueQuery) -> Any:
    return broker.groups.list(parse_queue(asked.queue))


def _created(reply: Any, created: bool) -> Any:
    return Created(reply) if created else reply


# -- the log ------------------------------------------------------------------------------------------------------


def read_call(
    broker: Broker, asked: messages.ReadQuery, *, everything: bool = False
) -> Callable[..., Coroutine[Any, Any, ReadReply]]:
    """The broker call for a read request. The caller adds `offset`, `wait_ms` and the reader.

    With `everything` the number of messages is limited only by the bytes.
    """
    return partial(
        broker.log.read,
        parse_queue(asked.queue),
        partition=asked.partition,
        max=None if everything else asked.max or messages.READ_MAX_DEFAULT,
        until=asked.until,
        bytes_max=asked.max_bytes,
        uuid=asked.uuid,
    )


def reader_of(asked: messages.ReadQuery) -> str | None:
    return None if asked.client_id is None else check_client_id(asked.client_id)


def peek_runs(broker: Broker, asked: messages.PeekQuery) -> Coroutine[Any, Any, list[DeliveredRun]]:
    return broker.log.peek(parse_queue(asked.queue), max=asked.max, group=check_group(asked.group))


def keep_offsets(broker: Broker, asked: readers.KeepOffsetsRequest) -> Any:
    client = check_client_id(asked.client_id)
    return broker.readers.keep(parse_queue(asked.queue), client, asked.by_partition())


def get_offsets(broker: Broker, asked: readers.OffsetsQuery) -> Any:
    return broker.readers.get(parse_queue(asked.queue), check_client_id(asked.client_id))


def forget_offsets(broker: Broker, asked: readers.OffsetsQuery) -> Any:
    return broker.readers.forget(parse_queue(asked.queue), check_client_id(asked.client_id))


def extent(broker: Broker, asked: messages.ExtentQuery) -> Any:
    return broker.log.extent(parse_queue(asked.queue), asked.at)


# -- diagnostics --------------------------------------------------------------------------------------------------


def explain(broker: Broker, asked: messages.ExplainQuery) -> Any:
    return broker.explanations.explain(parse_queue(asked.queue), id=asked.id, group=check_group(asked.group))


def scheduled(broker: Broker, asked: messages.ScheduledQuery) -> Any:
    return broker.scheduled.page(parse_queue(asked.queue), limit=asked.limit, after=asked.position)


def history(broker: Broker, asked: messages.HistoryQuery) -> Any:
    return broker.events.history(parse_queue(asked.queue), id=asked.id)


def autoscale(broker: Broker, asked: messages.AutoscaleQuery) -> Any:
    return broker.autoscale.signal(
        parse_queue(asked.queue),
        group=check_group(asked.group),
        target_drain_s=asked.target_drain_s,
        min_workers=asked.min_workers,
        max_workers=asked.max_workers,
    )


def stats(broker: Broker, asked: messages.QueueQuery) -> Any:
    return broker.stats.queue(parse_queue(asked.queue))


def summary(broker: Broker) -> Any:
    return broker.stats.summary()


# -- analytics ----------------------------------------------------------------------------------------------------


def analytics_queues(broker: Broker, asked: analytics.AnalyticsQueuesQuery) -> Any:
    return broker.analytics.queues(asked.prefix, asked.from_ms, asked.to_ms, asked.page, asked.limit)


def analytics_queue(broker: Broker, asked: analytics.AnalyticsQueueQuery) -> Any:
    return broker.analytics.history(
        queue=parse_queue(asked.queue), from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms
    )


def analytics_namespace(broker: Broker, asked: analytics.AnalyticsNamespaceQuery) -> Any:
    return broker.analytics.history(
        prefix=f"{asked.namespace}/", from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms
    )


def analytics_task(broker: Broker, asked: analytics.AnalyticsTaskQuery) -> Any:
    prefix = f"{asked.namespace}/{asked.task}/"
    return broker.analytics.history(prefix=prefix, from_ms=asked.from_ms, to_ms=asked.to_ms, step_ms=asked.step_ms)


def analytics_depths(broker: Broker, asked: analytics.AnalyticsSeriesQuery) -> Any:
    return broker.analytics.depths(_path(asked.queue), asked.from_ms, asked.to_ms, asked.step_ms)


def analytics_throughput(broker: Broker, asked: analytics.AnalyticsSeriesQuery) -> Any:
    return broker.analytics.throughput(_path(asked.queue), asked.from_ms, asked.to_ms, asked.step_ms)


def analytics_latency(broker: Broker, asked: analytics.AnalyticsSeriesQuery) -> Any:
    return broker.analytics.latency(_path(asked.queue), asked.from_ms, asked.to_ms, asked.step_ms)


def _path(queue: str | None) -> Any:
    return None if queue is None else parse_queue(queue)


# -- queues -------------------------------------------------------------------------------------------------------


def list_queues(broker: Broker, asked: messages.QueuesQuery) -> Any:
    return broker.queues.list(prefix=asked.prefix, page=asked.page, limit=asked.limit)


def get_queue(broker: Broker, asked: messages.QueueQuery) -> Any:
    return broker.queues.get(parse_queue(asked.queue))


async def put_queue(broker: Broker, settings: dict[str, Any], asked: messages.ConfirmedQueueQuery) -> Any:
    return _created(*await broker.queues.put(parse_queue(asked.queue), settings, confirm=asked.confirm))


def patch_queue(broker: Broker, settings: dict[str, Any], asked: messages.ConfirmedQueueQuery) -> Any:
    return broker.queues.patch(parse_queue(asked.queue), settings, confirm=asked.confirm)


def delete_queue(broker: Broker, asked: messages.ConfirmedQueueQuery) -> Any:
    return broker.queues.delete(parse_queue(asked.queue), confirm=asked.confirm)


def purge_queue(broker: Broker, asked: messages.ConfirmedQueueQuery) -> Any:
    return broker.queues.purge(parse_queue(asked.queue), confirm=asked.confirm)


# -- dead letters -------------------------------------------------------------------------------------------------


def find_letters(broker: Broker, asked: messages.DeadLettersQuery) -> Coroutine[Any, Any, LetterPage]:
    return broker.dead_letters.page(
        parse_queue(asked.queue),
        group=_group(asked.group),
        filter=asked.filter,
        page=asked.page,
        limit=asked.limit,
        after=asked.after,
    )


def redrive_letters(broker: Broker, asked: messages.RedriveRequest) -> Coroutine[Any, Any, RedriveReply]:
    return broker.redrives.start(
        parse_queue(asked.queue),
        group=_group(asked.group),
        filter=asked.filter,
        ids=asked.ids,
        target=_path(asked.target),
        delay_ms=asked.delay_ms or 0,
        priority=asked.priority,
        rate_per_s=asked.rate_per_s,
        dry_run=asked.dry_run,
        redrive_id=asked.redrive_id,
    )


def redrives(broker: Broker, asked: messages.RedrivesQuery) -> Any:
    return broker.redrives.list(parse_queue(asked.queue), asked.redrive_id)


def stop_redrive(broker: Broker, asked: messages.StopRedriveRequest) -> Any:
    return broker.redrives.stop(parse_queue(asked.queue), asked.redrive_id)


def delete_dead_letters(
    broker: Broker, asked: messages.DeleteDeadLettersRequest, confirmed: messages.ConfirmQuery
) -> Any:
    queue, group = parse_queue(asked.queue), _group(asked.group)
    return broker.dead_letters.delete(queue, group=group, filter=asked.filter, ids=asked.ids, confirm=confirmed.confirm)


def _group(name: str | None) -> str | None:
    return None if name is None else check_group(name)


# -- schedules ----------------------------------------------------------------------------------------------------


def list_schedules(broker: Broker, asked: schedules.SchedulesQuery) -> Any:
    return broker.schedules.list(prefix=asked.prefix, page=asked.page, limit=asked.limit)


def get_schedule(broker: Broker, named: schedules.ScheduleNamed) -> Any:
    return broker.schedules.get(check_schedule(named.name))


async def put_schedule(broker: Broker, asked: schedules.ScheduleRequest, named: schedules.ScheduleNamed) -> Any:
    return _created(*await broker.schedules.put(check_schedule(named.name), asked))


async def delete_schedule(broker: Broker, named: schedules.ScheduleNamed) -> schedules.ScheduleRemovedReply:
    await broker.schedules.remove(check_schedule(named.name))
    return schedules.ScheduleRemovedReply(named.name, True)


def pause_schedule(broker: Broker, named: schedules.ScheduleNamed) -> Any:
    return broker.schedules.pause(check_schedule(named.name), paused=True)


def resume_schedule(broker: Broker, named: schedules.ScheduleNamed) -> Any:
    return broker.schedules.pause(check_schedule(named.name), paused=False)


# -- webhooks -----------------------------------------------------------------------------------------------------


def list_webhooks(broker: Broker, asked: webhooks.WebhooksQuery) -> Any:
    return broker.webhooks.list(queue=asked.queue, page=asked.page, limit=asked.limit)


async def create_webhook(broker: Broker, asked: webhooks.WebhookRequest) -> Created:
    return Created(await broker.webhooks.create(asked))


def get_webhook(broker: Broker, named: webhooks.WebhookNamed) -> Any:
    return broker.webhooks.get(named.id)


def change_webhook(broker: Broker, asked: webhooks.WebhookChanges, named: webhooks.WebhookNamed) -> Any:
    return broker.webhooks.change(named.id, asked)


async def delete_webhook(broker: Broker, named: webhooks.WebhookNamed) -> webhooks.WebhookRemovedReply:
    await broker.webhooks.remove(named.id)
    return webhooks.WebhookRemovedReply(named.id, True)


def pause_webhook(broker: Broker, named: webhooks.WebhookNamed) -> Any:
    return broker.webhooks.pause(named.id)


def resume_webhook(broker: Broker, named: webhooks.WebhookNamed) -> Any:
    return broker.webhooks.resume(named.id)


def rotate_webhook(broker: Broker, asked: webhooks.RotateRequest) -> Any:
    return broker.webhooks.rotate(asked.id, asked.overlap_ms)


def test_webhook(broker: Broker, named: webhooks.WebhookNamed) -> Any:
    return broker.webhooks.test(named.id)


def resend_webhook(broker: Broker, asked: webhooks.ResendRequest) -> Any:
    return broker.webhooks.resend(asked.id, asked.message_id)


def webhook_attempts(broker: Broker, asked: webhooks.AttemptsQuery) -> Any:
    return broker.webhooks.attempts(asked.id, asked.limit)


# -- encryption at rest -------------------------------------------------------------------------------------------


def erase(broker: Broker, asked: EraseRequest, confirmed: messages.ConfirmQuery) -> Any:
    if (asked.queue is None) == (asked.namespace is None):
        raise InvalidRequest("give exactly one of queue and namespace", details={"field": "queue"})
    target = f"{check_namespace(asked.namespace or '')}/*" if asked.queue is None else parse_queue(asked.queue)
    return broker.erasure.erase(target, keys=asked.keys, confirm=confirmed.confirm)


def encryption(broker: Broker) -> EncryptionReply:
    return broker.erasure.status()


def rotate_encryption_key(broker: Broker) -> Any:
    return broker.erasure.rotate()


# -- API keys -----------------------------------------------------------------------------------------------------


def list_keys(broker: Broker) -> KeysReply:
    return broker.keys.list()


async def create_key(broker: Broker, asked: KeyRequest) -> Created:
    return Created(await broker.keys.create(asked))


async def rotate_key(broker: Broker, asked: RotateKeyRequest) -> KeyReply:
    return await broker.keys.rotate(asked.id, asked.overlap_ms)


async def revoke_key(broker: Broker, asked: KeyNamed) -> KeyRevokedReply:
    return await broker.keys.revoke(asked.id)


# -- people -------------------------------------------------------------------------------------------------------


def list_users(broker: Broker) -> users.UsersReply:
    return broker.users.list()


async def add_user(broker: Broker, asked: users.UserRequest) -> Created:
    return Created(await broker.users.add(asked))


async def change_user(broker: Broker, changes: users.UserChanges, named: users.UserNamed) -> users.UserReply:
    return await broker.users.change(named.email, changes)


async def remove_user(broker: Broker, named: users.UserNamed) -> users.UserRemovedReply:
    return await broker.users.remove(named.email)


# -- events and holds ---------------------------------------------------------------------------------------------


def events(broker: Broker, asked: EventsQuery) -> Any:
    return broker.events.read(asked, _path(asked.queue))


def event_ranges(broker: Broker, asked: EventRangesQuery) -> Any:
    return broker.events.ranges(asked)


def list_holds(broker: Broker) -> Any:
    return broker.holds.list()


def get_hold(broker: Broker, named: holds.HoldNamed) -> Any:
    return broker.holds.get(check_client_id(named.name))


def put_hold(broker: Broker, asked: holds.HoldRequest, named: holds.HoldNamed) -> Any:
    return broker.holds.set(check_client_id(named.name), asked, {each: parse_queue(each) for each in asked.queues})


def delete_hold(broker: Broker, named: holds.HoldNamed) -> Any:
    return broker.holds.remove(check_client_id(named.name))
