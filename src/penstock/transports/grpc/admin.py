"""Methods for queues, dead letters, schedules and webhooks whose messages differ from the structs of `wire/`."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, cast

import msgspec

from penstock.errors import InvalidRequest
from penstock.transports import translate
from penstock.transports.grpc.calls import Context
from penstock.transports.grpc.delivery import letter_of
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.shapes import convert, fill_message, request_of, scheduled_message, values_of
from penstock.v1 import broker_pb2 as pb
from penstock.wire.groups import PutGroupRequest, SeekGroupRequest
from penstock.wire.messages import (
    ConfirmQuery,
    DeadLettersQuery,
    DeleteDeadLettersRequest,
    RedriveRequest,
)
from penstock.wire.parse import parse_queue
from penstock.wire.schedules import ScheduleReply, ScheduleRequest, SchedulesQuery
from penstock.wire.webhooks import WebhookChanges, WebhookRequest

# -- queues -------------------------------------------------------------------------------------------------------


async def put_queue(edge: GrpcEdge, request: pb.PutQueueRequest, context: Context) -> pb.QueueReply:  # noqa: ARG001
    config, _ = await edge.broker.put_queue(
        parse_queue(request.queue), _settings(request), confirm=_confirmed(values_of(request))
    )
    return fill_message(pb.QueueReply(), config)


async def patch_queue(edge: GrpcEdge, request: pb.PatchQueueRequest, context: Context) -> pb.QueueReply:  # noqa: ARG001
    config = await edge.broker.patch_queue(
        parse_queue(request.queue), _settings(request), confirm=_confirmed(values_of(request))
    )
    return fill_message(pb.QueueReply(), config)


def _settings(request: pb.PutQueueRequest | pb.PatchQueueRequest) -> dict[str, Any]:
    """The settings in the request; settings in `reset` are None."""
    named = values_of(request.config)
    for path in request.reset:
        outer, _, inner = path.partition(".")
        if inner and isinstance(named.setdefault(outer, {}), dict):
            named[outer][inner] = None
        else:
            named[path] = None
    return named


async def delete_queue(edge: GrpcEdge, request: pb.DestroyRequest, context: Context) -> pb.DestroyedReply:  # noqa: ARG001
    lost = await edge.broker.delete_queue(parse_queue(request.queue), confirm=_confirmed(values_of(request)))
    return fill_message(pb.DestroyedReply(), lost)


async def purge_queue(edge: GrpcEdge, request: pb.DestroyRequest, context: Context) -> pb.DestroyedReply:  # noqa: ARG001
    lost = await edge.broker.purge_queue(parse_queue(request.queue), confirm=_confirmed(values_of(request)))
    return fill_message(pb.DestroyedReply(), lost)


def _confirmed(values: dict[str, Any]) -> str | None:
    """Remove the confirmation token from the values and return it."""
    token = {"confirm": values.pop("confirm")} if "confirm" in values else {}
    return convert(token, ConfirmQuery).confirm


# -- groups -------------------------------------------------------------------------------------------------------


async def put_group(edge: GrpcEdge, request: pb.PutGroupRequest, context: Context) -> pb.PutGroupReply:  # noqa: ARG001
    reply, _ = await translate.put_group(edge.broker, convert(_placed(values_of(request), "start"), PutGroupRequest))
    return fill_message(pb.PutGroupReply(), reply)


async def seek_group(edge: GrpcEdge, request: pb.SeekGroupRequest, context: Context) -> pb.SeekGroupReply:  # noqa: ARG001
    asked = convert(_placed(values_of(request), "to"), SeekGroupRequest)
    return fill_message(pb.SeekGroupReply(), await translate.seek_group(edge.broker, asked))


def _placed(values: dict[str, Any], field: str) -> dict[str, Any]:
    """Offsets are a field of their own, where JSON has one for both forms of a place."""
    offsets = values.pop("offsets", None)
    if offsets is not None and field in values:
        raise InvalidRequest(f"give either {field} or offsets", details={"field": field})
    return values if offsets is None else {**values, field: offsets}


# -- dead letters -------------------------------------------------------------------------------------------------


async def dead_letters(
    edge: GrpcEdge,
    request: pb.DeadLettersRequest,
    context: Context,  # noqa: ARG001
) -> pb.DeadLettersReply:
    found = await translate.dead_letters(edge.broker, request_of(request, DeadLettersQuery))
    letters = [letter_of(letter) for letter in found.pop("dead_letters")]
    return fill_message(pb.DeadLettersReply(messages=letters), found)


async def redrive(edge: GrpcEdge, request: pb.RedriveRequest, context: Context) -> pb.RedriveReply:  # noqa: ARG001
    reply = await translate.redrive(edge.broker, request_of(request, RedriveRequest))
    about = pb.RedriveReply(redrive_id=reply["redrive_id"], queue=reply["queue"], dry_run=reply["dry_run"])
    if about.dry_run:
        about.count = reply["count"]
        about.sample.extend(letter_of(letter) for letter in reply["sample"])
    else:
        fill_message(about.status, reply)
    return about


async def delete_dead_letters(
    edge: GrpcEdge,
    request: pb.DeleteDeadLettersRequest,
    context: Context,  # noqa: ARG001
) -> pb.DeleteDeadLettersReply:
    values = values_of(request)
    confirm = _confirmed(values)
    reply = await translate.delete_dead_letters(edge.broker, convert(values, DeleteDeadLettersRequest), confirm)
    return fill_message(pb.DeleteDeadLettersReply(), reply)


# -- schedules ----------------------------------------------------------------------------------------------------


async def list_schedules(
    edge: GrpcEdge,
    request: pb.ListSchedulesRequest,
    context: Context,  # noqa: ARG001
) -> pb.ListSchedulesReply:
    page = await translate.list_schedules(edge.broker, request_of(request, SchedulesQuery))
    return pb.ListSchedulesReply(
        schedules=[_shown(each) for each in page.schedules], total=page.total, page=page.page, limit=page.limit
    )


async def get_schedule(edge: GrpcEdge, request: pb.ScheduleNameRequest, context: Context) -> pb.ScheduleReply:  # noqa: ARG001
    return _shown(await translate.get_schedule(edge.broker, request.name))


async def put_schedule(edge: GrpcEdge, request: pb.PutScheduleRequest, context: Context) -> pb.ScheduleReply:  # noqa: ARG001
    values = values_of(request)
    name = values.pop("name")
    # The content of the message has another form in `wire/`, so it is converted separately.
    message = scheduled_message(request.message)
    spec = convert({**values, "message": {}}, ScheduleRequest)
    spec.message = message
    shown, _ = await translate.put_schedule(edge.broker, name, spec)
    return _shown(shown)


async def delete_schedule(
    edge: GrpcEdge,
    request: pb.ScheduleNameRequest,
    context: Context,  # noqa: ARG001
) -> pb.DeleteScheduleReply:
    return fill_message(pb.DeleteScheduleReply(), await translate.delete_schedule(edge.broker, request.name))


async def pause_schedule(edge: GrpcEdge, request: pb.ScheduleNameRequest, context: Context) -> pb.ScheduleReply:  # noqa: ARG001
    return _shown(await translate.pause_schedule(edge.broker, request.name, paused=True))


async def resume_schedule(edge: GrpcEdge, request: pb.ScheduleNameRequest, context: Context) -> pb.ScheduleReply:  # noqa: ARG001
    return _shown(await translate.pause_schedule(edge.broker, request.name, paused=False))


def _shown(schedule: ScheduleReply) -> pb.ScheduleReply:
    shown = schedule.message
    reply = fill_message(pb.ScheduleReply(), {**msgspec.structs.asdict(schedule), "message": None})
    fill_message(
        reply.message,
        {name: getattr(shown, name) for name in ("key", "priority", "ttl_ms", "headers", "max_retries", "tenant")},
    )
    if isinstance(shown.payload_b64, str):
        reply.message.payload = b64decode(shown.payload_b64)
    else:
        reply.message.json = bytes(cast(msgspec.Raw, shown.payload)).decode()
    return reply


# -- webhooks -----------------------------------------------------------------------------------------------------


async def create_webhook(
    edge: GrpcEdge,
    request: pb.CreateWebhookRequest,
    context: Context,  # noqa: ARG001
) -> pb.WebhookReply:
    spec = convert(_with_delays(values_of(request)), WebhookRequest)
    return fill_message(pb.WebhookReply(), await translate.create_webhook(edge.broker, spec))


async def change_webhook(
    edge: GrpcEdge,
    request: pb.ChangeWebhookRequest,
    context: Context,  # noqa: ARG001
) -> pb.WebhookReply:
    values = _with_delays(values_of(request))
    id = values.pop("id")
    return fill_message(pb.WebhookReply(), await edge.broker.webhooks.change(id, convert(values, WebhookChanges)))


def _with_delays(values: dict[str, Any]) -> dict[str, Any]:
    """Unwrap the delays. They are a message in the contract, so that an empty list differs from an absent field."""
    if "retry_delays_ms" in values:
        values["retry_delays_ms"] = values["retry_delays_ms"].get("ms", [])
    return values
