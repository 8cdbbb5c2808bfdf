"""`/openapi.json`: the shapes of `wire` and one line per operation, put together into OpenAPI 3.1.

Nothing is described twice: fields, bounds and their words come from the structs that decode the requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock._version import __version__
from penstock.transports.http.request import BATCH_TYPE, JSON_TYPE
from penstock.wire import (
    analytics,
    cloudevents,
    diagnostics,
    events,
    groups,
    holds,
    messages,
    readers,
    replies,
    schedules,
    webhooks,
)
from penstock.wire.status import STATUS

_JSON = JSON_TYPE.decode()
_BATCH = BATCH_TYPE.decode()
_BINARY_SCHEMA = {"type": "string", "format": "binary"}
_OBJECT_SCHEMA = {"type": "object"}
_EVENT_SCHEMA = {
    "type": "object",
    "description": "A CloudEvent 1.0.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
    },
}


class Described(NamedTuple):
    """The request and the replies of an operation."""

    summary: str
    body: type | None = None
    query: type | None = None
    answers: tuple[tuple[int, type | None], ...] = ((200, None),)
    refusals: tuple[int, ...] = ()
    takes_batch: bool = False
    gives_batch: bool = False
    gives_events: bool = False
    text: bool = False


_EVERYWHERE = (400, 403, 405, 500, 503)
_DATA = (404, 409, 413, 429, 507)

OPERATIONS: dict[str, Described] = {
    "publish": Described(
        "Store messages; the answer comes when they are durable.",
        messages.PublishRequest,
        messages.PublishFrameQuery,
        answers=((201, replies.PublishReply), (207, replies.PublishResultsReply)),
        refusals=(*_DATA, 415),
        takes_batch=True,
    ),
    "lease": Described(
        "Lease messages. The holder settles them by receipt before the lease expires, or they are delivered again.",
        messages.LeaseRequest,
        answers=((200, replies.LeaseReply),),
        refusals=_DATA,
        gives_batch=True,
    ),
    "ack": Described(
        "Done: never deliver these again.", messages.AckRequest, answers=((200, replies.SettleReply),), refusals=_DATA
    ),
    "nack": Described(
        "Failed: deliver again later.", messages.NackRequest, answers=((200, replies.SettleReply),), refusals=_DATA
    ),
    "reject": Described(
        "Hopeless: move to the dead letters.",
        messages.RejectRequest,
        answers=((200, replies.SettleReply),),
        refusals=_DATA,
    ),
    "release": Described(
        "Not handled: back to the queue at once, as if not delivered.",
        messages.AckRequest,
        answers=((200, replies.SettleReply),),
        refusals=_DATA,
    ),
    "extend": Described(
        "Hold a lease longer.", messages.ExtendRequest, answers=((200, replies.SettleReply),), refusals=_DATA
    ),
    "transact": Described(
        "Ack and publish together: all of it, or nothing.",
        messages.TransactRequest,
        answers=((200, replies.TransactReply),),
        refusals=_DATA,
    ),
    "cancel": Described(
        "Take back messages that are not delivered yet.",
        messages.CancelRequest,
        answers=((200, replies.CancelReply),),
        refusals=_DATA,
    ),
    "reschedule": Described(
        "Move messages that are not delivered yet to another time.",
        messages.RescheduleRequest,
        answers=((200, replies.RescheduleReply),),
        refusals=_DATA,
    ),
    "put_group": Described(
        "Create a group before its first lease, at a place of its own.",
        groups.PutGroupRequest,
        answers=((200, groups.PutGroupReply), (201, groups.PutGroupReply)),
        refusals=_DATA,
    ),
    "seek_group": Described(
        "Let a group begin anew at another place: its leases there end. A dry run says what would be delivered again.",
        groups.SeekGroupRequest,
        answers=((200, groups.SeekGroupReply),),
        refusals=_DATA,
    ),
    "delete_group": Described(
        "Delete a group, its dead letters, and what only it had not finished, with a confirmation.",
        query=groups.DeleteGroupQuery,
        answers=((200, groups.DeleteGroupReply),),
        refusals=_DATA,
    ),
    "join_group": Described(
        "Become a member of a group, and get a share of the queue's partitions.",
        messages.JoinRequest,
        answers=((200, replies.ShareReply),),
        refusals=_DATA,
    ),
    "heartbeat": Described(
        "Stay a member, and hear which partitions come and go.",
        messages.HeartbeatRequest,
        answers=((200, replies.ShareReply),),
        refusals=_DATA,
    ),
    "leave_group": Described(
        "Give back one's partitions.", messages.LeaveRequest, answers=((200, replies.LeftReply),), refusals=_DATA
    ),
    "read": Described(
        "Read a partition by offset, without leases.",
        query=messages.ReadQuery,
        answers=((200, replies.ReadReply),),
        refusals=_DATA,
        gives_batch=True,
    ),
    "keep_offsets": Described(
        "Remember where a reader of the log is.",
        readers.KeepOffsetsRequest,
        answers=((200, readers.OffsetsReply),),
        refusals=_DATA,
    ),
    "get_offsets": Described(
        "Where a reader of the log left off.",
        query=readers.OffsetsQuery,
        answers=((200, readers.OffsetsReply),),
        refusals=(404,),
    ),
    "forget_offsets": Described(
        "Forget where a reader of the log is.",
        query=readers.OffsetsQuery,
        answers=((200, readers.OffsetsReply),),
        refusals=_DATA,
    ),
    "peek": Described(
        "The messages that would be delivered next, left where they are.",
        query=messages.PeekQuery,
        answers=((200, replies.MessagesReply),),
        refusals=_DATA,
    ),
    "explain": Described(
        "Why a message, or the head of each partition, is not being delivered now.",
        query=messages.ExplainQuery,
        answers=((200, diagnostics.ExplainReply),),
        refusals=(404,),
    ),
    "history": Described(
        "What became of a message, as far back as the journal goes.",
        query=messages.HistoryQuery,
        answers=((200, diagnostics.HistoryReply),),
        refusals=(404,),
    ),
    "autoscale": Described(
        "How fast messages come and go, and how many workers it takes.",
        query=messages.AutoscaleQuery,
        answers=((200, diagnostics.AutoscaleReply),),
        refusals=(404,),
    ),
    **{
        f"analytics_{name}": Described(words, query=query, answers=((200, reply),), refusals=(404, 409, 503))
        for name, words, query, reply in (
            (
                "queues",
                "What was counted of every queue in a time.",
                analytics.AnalyticsQueuesQuery,
                analytics.AnalyticsQueuesReply,
            ),
            (
                "queue",
                "The past of a queue: counts, times, depth, consumers, failures.",
                analytics.AnalyticsQueueQuery,
                analytics.AnalyticsReply,
            ),
            (
                "namespace",
                "The past of all queues of a namespace.",
                analytics.AnalyticsNamespaceQuery,
                analytics.AnalyticsReply,
            ),
            ("task", "The past of all queues of a task.", analytics.AnalyticsTaskQuery, analytics.AnalyticsReply),
            (
                "depths",
                "How deep a queue was, or all were together.",
                analytics.AnalyticsSeriesQuery,
                analytics.DepthsReply,
            ),
            (
                "throughput",
                "How much came and went, of a queue or of all.",
                analytics.AnalyticsSeriesQuery,
                analytics.ThroughputReply,
            ),
            (
                "latency",
                "How long things took, in a queue or in all.",
                analytics.AnalyticsSeriesQuery,
                analytics.LatencyReply,
            ),
        )
    },
    "list_queues": Described("Queues by name.", query=messages.QueuesQuery, answers=((200, replies.QueuesReply),)),
    "get_queue": Described("Settings of a queue.", answers=((200, replies.QueueReply),), refusals=(404,)),
    "put_queue": Described(
        "Create a queue, or change exactly the settings that are named. A change that would let go of stored messages "
        "needs a confirmation.",
        dict,
        messages.ConfirmQuery,
        answers=((200, replies.QueueReply), (201, replies.QueueReply)),
        refusals=_DATA,
    ),
    "patch_queue": Described(
        "Change exactly the settings that are named, of a queue that exists. A change that would let go of stored "
        "messages needs a confirmation.",
        dict,
        messages.ConfirmQuery,
        answers=((200, replies.QueueReply),),
        refusals=_DATA,
    ),
    "delete_queue": Described(
        "Remove a queue and its messages, with a confirmation.",
        query=messages.ConfirmQuery,
        answers=((200, replies.DestroyedReply),),
        refusals=_DATA,
    ),
    "purge_queue": Described(
        "Remove the messages of a queue, with a confirmation.",
        query=messages.ConfirmQuery,
        answers=((200, replies.DestroyedReply),),
        refusals=_DATA,
    ),
    "list_schedules": Described(
        "Schedules by name.", query=schedules.SchedulesQuery, answers=((200, schedules.SchedulesReply),)
    ),
    "get_schedule": Described(
        "A schedule and its next fire times.", answers=((200, schedules.ScheduleReply),), refusals=(404,)
    ),
    "put_schedule": Described(
        "Create a schedule, or change it.",
        schedules.ScheduleRequest,
        answers=((200, schedules.ScheduleReply), (201, schedules.ScheduleReply)),
        refusals=_DATA,
    ),
    "delete_schedule": Described(
        "Remove a schedule. The messages that it has published stay.",
        answers=((200, schedules.ScheduleRemovedReply),),
        refusals=_DATA,
    ),
    "pause_schedule": Described(
        "Stop firing until it is resumed.", answers=((200, schedules.ScheduleReply),), refusals=_DATA
    ),
    "resume_schedule": Described(
        "Go on firing; what was missed is made up for as `catch_up` says.",
        answers=((200, schedules.ScheduleReply),),
        refusals=_DATA,
    ),
    "list_webhooks": Described(
        "Webhooks, oldest first.", query=webhooks.WebhooksQuery, answers=((200, webhooks.WebhooksReply),)
    ),
    "create_webhook": Described(
        "Send the messages of a group to a URL. The answer has the secret that they are signed with, once.",
        webhooks.WebhookRequest,
        answers=((201, webhooks.WebhookReply),),
        refusals=_DATA,
    ),
    "get_webhook": Described("A webhook and how it goes.", answers=((200, webhooks.WebhookReply),), refusals=(404,)),
    "change_webhook": Described(
        "Change some settings of a webhook.",
        webhooks.WebhookChanges,
        answers=((200, webhooks.WebhookReply),),
        refusals=_DATA,
    ),
    "delete_webhook": Described(
        "Remove a webhook. Messages of its group stay.",
        answers=((200, webhooks.WebhookRemovedReply),),
        refusals=_DATA,
    ),
    "pause_webhook": Described(
        "Send nothing until it is resumed.",
        webhooks.WebhookNamed,
        answers=((200, webhooks.WebhookReply),),
        refusals=_DATA,
    ),
    "resume_webhook": Described(
        "Go on sending, also to an endpoint that was given up or is left alone for a while.",
        webhooks.WebhookNamed,
        answers=((200, webhooks.WebhookReply),),
        refusals=_DATA,
    ),
    "rotate_webhook": Described(
        "Sign with a new secret, which this answer shows; and with the earlier one as well for a while.",
        webhooks.RotateRequest,
        answers=((200, webhooks.WebhookReply),),
        refusals=_DATA,
    ),
    "test_webhook": Described(
        "Send something to the endpoint that is not a message, and say what came of it.",
        webhooks.WebhookNamed,
        answers=((200, webhooks.TestReply),),
        refusals=(404,),
    ),
    "webhook_attempts": Described(
        "The latest attempts, newest first.",
        query=webhooks.AttemptsQuery,
        answers=((200, webhooks.AttemptsReply),),
        refusals=(404,),
    ),
    "extent": Described(
        "From where to where the log of each partition goes.",
        query=messages.ExtentQuery,
        answers=((200, holds.ExtentReply),),
        refusals=(404,),
    ),
    "events": Described(
        "What happened to messages: the records of the journal, without payloads.",
        query=events.EventsQuery,
        answers=((200, events.EventsReply),),
        refusals=(404,),
        gives_events=True,
    ),
    "event_ranges": Described(
        "Where to cut the journal so that several can read its events at once.",
        query=events.EventRangesQuery,
        answers=((200, events.EventRangesReply),),
    ),
    "list_holds": Described("What archives hold back retention.", answers=((200, holds.HoldsReply),)),
    "get_hold": Described(
        "Where a hold is, and how much it spans.", answers=((200, holds.HoldReply),), refusals=(404,)
    ),
    "put_hold": Described(
        "Let nothing go that an archive has not copied yet; or move on.",
        holds.HoldRequest,
        answers=((200, holds.HoldReply),),
        refusals=_DATA,
    ),
    "delete_hold": Described("Hold nothing any more.", answers=((200, holds.HoldRemovedReply),), refusals=_DATA),
    "stats": Described("How a queue is doing.", query=messages.QueueQuery, refusals=(404,)),
    "summary": Described("How the whole server is doing."),
    "groups": Described(
        "The groups of a queue: their lag, the messages that only they keep, and their members with partitions.",
        query=messages.QueueQuery,
        answers=((200, groups.GroupsReply),),
        refusals=(404,),
    ),
    "dead_letters": Described(
        "Dead letters of a queue, oldest first.",
        query=messages.DeadLettersQuery,
        answers=((200, replies.DeadLettersReply),),
        refusals=(404,),
    ),
    "redrive": Described(
        "Bring dead letters back, in the background; or, as a dry run, say which.",
        messages.RedriveRequest,
        answers=((200, replies.RedriveReply),),
        refusals=_DATA,
    ),
    "redrives": Described(
        "Redrives under way, and the latest that ended.",
        query=messages.RedrivesQuery,
        answers=((200, replies.RedrivesReply),),
        refusals=(404,),
    ),
    "stop_redrive": Described(
        "Let a redrive move no more.",
        messages.StopRedriveRequest,
        answers=((200, replies.RedriveStatus),),
        refusals=_DATA,
    ),
    "delete_dead_letters": Described(
        "Delete dead letters, with a confirmation.",
        messages.DeleteDeadLettersRequest,
        messages.ConfirmQuery,
        answers=((200, replies.DeletedDeadLettersReply),),
        refusals=_DATA,
    ),
    "health": Described("Is the process up?", answers=((200, replies.StatusReply),)),
    "readiness": Described("Would a request be served?", answers=((200, replies.StatusReply),)),
    "metrics": Described("Metrics for Prometheus.", text=True),
    "openapi": Described("This document."),
    "asyncapi": Described("The same for the frames of `/v1/ws`, as AsyncAPI."),
    "front_page": Described("Where to look first.", answers=((200, replies.FrontPage),)),
}


def describe(operations: Iterable[tuple[str, str, str]]) -> bytes:
    """The document for these (name, method, path)."""
    structs = {described.body for described in OPERATIONS.values()} | {replies.ErrorReply, replies.PublishRunsReply}
    structs |= {shape for described in OPERATIONS.values() for _, shape in described.answers}
    shapes = sorted((each for each in structs if each not in (None, dict)), key=lambda each: each.__name__)
    schemas, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    references: dict[type | None, Any] = dict(zip(shapes, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for name, method, path in operations:
        paths.setdefault(path, {})[method.lower()] = _operation(name, path, OPERATIONS[name], references)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "summary": "A durable message broker you can query."},
        "paths": paths,
        "components": {"schemas": components, "responses": _refusals(references[replies.ErrorReply])},
    }
    return msgspec.json.encode(document)


def _operation(name: str, path: str, described: Described, references: dict[type | None, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": name, "summary": described.summary}
    parameters = _parameters(described.query) if described.query else []
    if described.takes_batch:
        of_events = [each for each in _parameters(messages.PublishEventQuery) if each["name"] != "queue"]
        parameters = [
            *({**each, "required": False, "description": "With a batch frame."} for each in parameters),
            *({**each, "description": "With a CloudEvent."} for each in of_events),
        ]
    if "{path}" in path:
        parameters.insert(0, _path_parameter())
    if "{id}" in path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 64}})
    if "{name}" in path:
        pattern = f"^{limits.SCHEDULE_NAME_PATTERN}$"
        parameters.insert(
            0, {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}
        )
    if parameters:
        operation["parameters"] = parameters
    if described.body is not None:
        content: dict[str, Any] = {_JSON: {"schema": references.get(described.body, _OBJECT_SCHEMA)}}
        if described.takes_batch:
            content[_BATCH] = {"schema": _BINARY_SCHEMA}
            content[cloudevents.STRUCTURED_TYPE] = {"schema": _EVENT_SCHEMA}
            content[cloudevents.BATCH_TYPE] = {"schema": {"type": "array", "items": _EVENT_SCHEMA}}
        operation["requestBody"] = {"required": True, "content": content}
    responses: dict[str, Any] = {}
    for status, shape in described.answers:
        schema = references.get(shape, _OBJECT_SCHEMA)
        if described.takes_batch and status == 201:
            schema = {"anyOf": [schema, references[replies.PublishRunsReply]]}
        given: dict[str, Any] = {_JSON: {"schema": schema}}
        if described.gives_batch:
            given[_BATCH] = {"schema": _BINARY_SCHEMA}
        if described.gives_events:
            given[events.EVENTS_TYPE] = {"schema": _BINARY_SCHEMA}
        if described.text:
            given = {"text/plain": {"schema": {"type": "string"}}}
        responses[str(status)] = {"description": described.summary, "content": given}
    for status in sorted({*_EVERYWHERE, *described.refusals}):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    operation["responses"] = responses
    return operation


def _refusals(schema: Any) -> dict[str, Any]:
    """One shared response per status of an error, named by the codes that can stand in it."""
    codes: dict[int, list[str]] = {}
    for code, row in STATUS.items():
        codes.setdefault(row.http, []).append(f"`{code}`")
    return {
        str(status): {"description": ", ".join(names), "content": {_JSON: {"schema": schema}}}
        for status, names in codes.items()
    }


def _parameters(query: type) -> list[dict[str, Any]]:
    """Query parameters out of a struct: its fields are their names."""
    (reference,), components = msgspec.json.schema_components([query])
    shape = components[reference["$ref"].rpartition("/")[2]]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in shape.get("required", ()),
            "schema": _without_null(schema),
        }
        for name, schema in shape["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query string cannot say null; leaving the parameter out is how to say nothing."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _path_parameter() -> dict[str, Any]:
    (parameter,) = _parameters(messages.QueueQuery)
    return {**parameter, "name": "path", "in": "path", "required": True}
