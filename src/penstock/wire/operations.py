"""The operations of the broker, each described once.

HTTP routes, gRPC methods and `/openapi.json` are derived from this table; the calls of the SDK, the pipeline and the
command line are checked against it by a test.
"""

from __future__ import annotations

from typing import Any

from penstock import limits
from penstock.wire import (
    analytics,
    audit,
    cloudevents,
    diagnostics,
    encryption,
    event_stream,
    events,
    groups,
    holds,
    keys,
    logs,
    messages,
    queue_table,
    readers,
    replies,
    schedules,
    series,
    settings,
    stats,
    users,
    webhooks,
)
from penstock.wire import limits as limits_wire
from penstock.wire.messages import NoQuery, Request
from penstock.wire.operation import BATCH, EVENT_STREAM, JSON, OPENMETRICS, READS, TEXT, WRITES, Method, Operation, Verb

__all__ = [
    "BATCH",
    "EVENT_STREAM",
    "JSON",
    "OPENMETRICS",
    "OPERATIONS",
    "READS",
    "TEXT",
    "WRITES",
    "Method",
    "Operation",
    "Verb",
]

_publish = Operation(
    "publish", Verb.PUBLISH, "POST", "/v1/publish",
    "Store messages; the answer comes when they are durable.", None,
    messages.PublishFrameQuery, messages.PublishRequest, queues=("queue", "messages[].queue"),
    errors=(*WRITES, "fenced_producer"), created=replies.PublishReply, partial=replies.PublishResultsReply,
    idempotent=False, streams=True, takes=(JSON, BATCH, cloudevents.STRUCTURED_TYPE, cloudevents.BATCH_TYPE),
)  # fmt: skip
_lease = Operation(
    "lease", Verb.CONSUME, "POST", "/v1/lease",
    "Lease messages. The holder settles them by receipt before the lease expires, or they are delivered again.",
    replies.LeaseReply, body=messages.LeaseRequest, queues=("queue", "scope", "ack[]"),
    errors=(*WRITES, "stale_generation", "unknown_member"),
    idempotent=False, large=True, gives=(JSON, BATCH), streams=True,
)  # fmt: skip


def _settle(name: str, body: type[Request], summary: str) -> Operation:
    return Operation(
        name, Verb.CONSUME, "POST", f"/v1/{name}", summary, replies.SettleReply, body=body, queues=("receipts[]",),
        errors=WRITES,
    )  # fmt: skip


def _member(name: str, path: str, body: type[Request], reply: type, summary: str) -> Operation:
    return Operation(
        name, Verb.CONSUME, "POST", f"/v1/groups/{path}", summary, reply, body=body,
        errors=(*WRITES, "stale_generation", "unknown_member"),
    )  # fmt: skip


def _look(
    name: str,
    path: str,
    query: type[Request],
    reply: Any,
    summary: str,
    scope: Verb,
    **more: Any,
) -> Operation:
    return Operation(name, scope, "GET", path, summary, reply, query, **{"errors": READS, **more})


def _past(name: str, query: type[Request], reply: type, summary: str, *queues: str) -> Operation:
    return Operation(
        f"analytics_{name}", Verb.METRICS, "GET", f"/v1/analytics/{name}", summary, reply, query, queues=queues,
        errors=(*READS, "conflict"),
    )  # fmt: skip


def _schedule(name: str, method: Method, suffix: str, summary: str, reply: type, **more: Any) -> Operation:
    return Operation(
        name, Verb.QUEUE_ADMIN, method, f"/v1/schedules/{{name}}{suffix}", summary, reply, schedules.ScheduleNamed,
        queues=("name", "queue") if "body" in more else ("name",), errors=WRITES, **more,
    )  # fmt: skip


def _webhook(name: str, method: Method, path: str, summary: str, reply: Any, **more: Any) -> Operation:
    return Operation(
        name, Verb.WEBHOOK_ADMIN, method, f"/v1/webhooks{path}", summary, reply,
        **{"errors": WRITES, "queues": ("id",), "body_max": limits.WEBHOOK_BYTES_MAX, **more},
    )  # fmt: skip


def _hold(name: str, method: Method, summary: str, reply: type, **more: Any) -> Operation:
    return Operation(
        name, Verb.QUEUE_ADMIN, method, "/v1/holds/{name}", summary, reply, holds.HoldNamed, errors=WRITES,
        **{"queues": (), **more},
    )  # fmt: skip


def _process(name: str, path: str, summary: str, reply: Any, scope: Verb, **more: Any) -> Operation:
    return Operation(name, scope, "GET", path, summary, reply, queues=(), grpc=False, **more)


_OPERATIONS = (
    _publish,
    _lease,
    _settle("ack", messages.AckRequest, "Done: never deliver these again."),
    _settle("nack", messages.NackRequest, "Failed: deliver again later."),
    _settle("reject", messages.RejectRequest, "Hopeless: move to the dead letters."),
    _settle("release", messages.AckRequest, "Not handled: back to the queue at once, as if not delivered."),
    _settle("extend", messages.ExtendRequest, "Hold a lease longer."),
    Operation(
        "transact", Verb.CONSUME, "POST", "/v1/transact", "Ack and publish together: all of it, or nothing.",
        replies.TransactReply, body=messages.TransactRequest, queues=("ack[]", "publish[].queue"),
        errors=(*WRITES, "stale_receipt"),
    ),
    Operation(
        "cancel", Verb.PUBLISH, "POST", "/v1/cancel", "Take back messages that are not delivered yet.",
        replies.CancelReply, body=messages.CancelRequest, errors=WRITES,
    ),
    Operation(
        "reschedule", Verb.PUBLISH, "POST", "/v1/reschedule",
        "Move messages that are not delivered yet to another time.",
        replies.RescheduleReply, body=messages.RescheduleRequest, errors=WRITES,
    ),
    # -- groups
    Operation(
        "put_group", Verb.QUEUE_ADMIN, "PUT", "/v1/groups",
        "Create a group before its first lease, at a place of its own.",
        groups.PutGroupReply, body=groups.PutGroupRequest, errors=WRITES, created=groups.PutGroupReply,
    ),
    Operation(
        "seek_group", Verb.QUEUE_ADMIN, "POST", "/v1/groups/seek",
        "Let a group begin anew at another place: its leases there end. A dry run says what would be delivered again.",
        groups.SeekGroupReply, body=groups.SeekGroupRequest, errors=WRITES,
    ),
    Operation(
        "delete_group", Verb.QUEUE_ADMIN, "DELETE", "/v1/groups",
        "Delete a group, its dead letters, and what only it had not finished, with a confirmation.",
        groups.DeleteGroupReply, groups.DeleteGroupQuery, errors=WRITES,
    ),
    _member(
        "join_group", "join", messages.JoinRequest, replies.ShareReply,
        "Become a member of a group, and get a share of the queue's partitions.",
    ),
    _member(
        "heartbeat", "heartbeat", messages.HeartbeatRequest, replies.ShareReply,
        "Stay a member, and hear which partitions come and go.",
    ),
    _member("leave_group", "leave", messages.LeaveRequest, replies.LeftReply, "Give back one's partitions."),
    # -- the log
    _look(
        "read", "/v1/read", messages.ReadQuery, replies.ReadReply, "Read a partition by offset, without leases.",
        Verb.PEEK, large=True, gives=(JSON, BATCH), streams=True, errors=WRITES,
    ),
    Operation(
        "keep_offsets", Verb.PEEK, "POST", "/v1/offsets", "Remember where a reader of the log is.",
        readers.OffsetsReply, body=readers.KeepOffsetsRequest, errors=WRITES, body_max=limits.CONFIG_BYTES_MAX,
    ),
    _look(
        "get_offsets", "/v1/offsets", readers.OffsetsQuery, readers.OffsetsReply, "Where a reader of the log is.",
        Verb.PEEK,
    ),
    Operation(
        "forget_offsets", Verb.PEEK, "DELETE", "/v1/offsets", "Forget where a reader of the log is.",
        readers.OffsetsReply, readers.OffsetsQuery, errors=WRITES,
    ),
    _look(
        "peek", "/v1/peek", messages.PeekQuery, replies.MessagesReply,
        "The messages that would be delivered next, left where they are.", Verb.PEEK, large=True, errors=WRITES,
    ),
    _look(
        "extent", "/v1/extent", messages.ExtentQuery, holds.ExtentReply,
        "From where to where the log of each partition goes.", Verb.ANY,
    ),
    # -- diagnostics
    _look(
        "explain", "/v1/explain", messages.ExplainQuery, diagnostics.ExplainReply,
        "Why a message, or the head of each partition, is not being delivered now.", Verb.ANY,
    ),
    _look(
        "scheduled", "/v1/scheduled", messages.ScheduledQuery, diagnostics.ScheduledReply,
        "The messages whose delivery time has not come, in the order of partitions and offsets.", Verb.PEEK,
    ),
    _look(
        "history", "/v1/history", messages.HistoryQuery, diagnostics.HistoryReply,
        "The events of a message, as far back as the journal goes.", Verb.PEEK,
    ),
    _look(
        "autoscale", "/v1/autoscale", messages.AutoscaleQuery, diagnostics.AutoscaleReply,
        "How fast messages come and go, and how many workers it takes.", Verb.ANY,
    ),
    _look(
        "stats", "/v1/stats", messages.QueueQuery, stats.StatsReply, "The counts and rates of a queue.", Verb.ANY,
    ),
    _look(
        "summary", "/v1/stats/summary", NoQuery, stats.SummaryReply, "The counts of the whole server.", Verb.METRICS,
        queues=(), errors=(),
    ),
    _look(
        "queue_table", "/v1/stats/queues", queue_table.QueueTableQuery, queue_table.QueueTableReply,
        "All queues with their counts and rates: searched, sorted, by page. Counts are up to a second old; of a "
        "thousand queues three, of many more ten.",
        Verb.ANY, queues=(), errors=(), grpc=False,
    ),
    _look(
        "consumers", "/v1/stats/consumers", stats.ConsumersQuery, stats.ConsumersReply,
        "The consumers that hold messages of a queue, and how long messages wait and are worked on.", Verb.ANY,
        grpc=False,
    ),
    _look(
        "series", "/v1/series", series.SeriesQuery, series.SeriesReply,
        "History of a queue, a group or the whole server: minutes for two days, ten minutes for a month.",
        Verb.ANY, errors=(), grpc=False,
    ),
    _look(
        "storage", "/v1/stats/storage", NoQuery, queue_table.StorageReply,
        "The bytes that the server stores, the room that is left, and the speed of its commits.", Verb.METRICS,
        queues=(), errors=(), grpc=False,
    ),
    _look(
        "connections", "/v1/connections", queue_table.ConnectionsQuery, queue_table.ConnectionsReply,
        "The open connections, the newest first.", Verb.METRICS, queues=(), errors=(), grpc=False,
    ),
    _look(
        "groups", "/v1/groups", messages.QueueQuery, groups.GroupsReply,
        "The groups of a queue: their lag, the messages that only they keep, and their members with partitions.",
        Verb.ANY,
    ),
    _past(
        "queues", analytics.AnalyticsQueuesQuery, analytics.AnalyticsQueuesReply,
        "The counts of every queue in a range of time.",
    ),
    _past(
        "queue", analytics.AnalyticsQueueQuery, analytics.AnalyticsReply,
        "The past of a queue: counts, times, depth, consumers, failures.", "queue",
    ),
    _past(
        "namespace", analytics.AnalyticsNamespaceQuery, analytics.AnalyticsReply,
        "The past of all queues of a namespace.", "namespace",
    ),
    _past(
        "task", analytics.AnalyticsTaskQuery, analytics.AnalyticsReply, "The past of all queues of a task.",
        "namespace", "task",
    ),
    _past(
        "depths", analytics.AnalyticsSeriesQuery, analytics.DepthsReply,
        "How deep a queue was, or all were together.", "queue",
    ),
    _past(
        "throughput", analytics.AnalyticsSeriesQuery, analytics.ThroughputReply,
        "How much came and went, of a queue or of all.", "queue",
    ),
    _past(
        "latency", analytics.AnalyticsSeriesQuery, analytics.LatencyReply,
        "How long things took, in a queue or in all.", "queue",
    ),
    # -- queues
    _look(
        "list_queues", "/v1/queues", messages.QueuesQuery, replies.QueuesReply, "Queues by name.", Verb.ANY,
        queues=(), errors=(),
    ),
    _look("get_queue", "/v1/queues/{path}", messages.QueueQuery, replies.QueueReply, "Settings of a queue.", Verb.ANY),
    Operation(
        "put_queue", Verb.QUEUE_ADMIN, "PUT", "/v1/queues/{path}",
        "Create a queue, or change exactly the settings that are named. A change that would let go of stored messages "
        "needs a confirmation.",
        replies.QueueReply, messages.ConfirmedQueueQuery, settings.QueueSettings, errors=WRITES,
        created=replies.QueueReply, body_max=limits.CONFIG_BYTES_MAX,
    ),
    Operation(
        "patch_queue", Verb.QUEUE_ADMIN, "PATCH", "/v1/queues/{path}",
        "Change exactly the settings that are named, of a queue that exists. A change that would let go of stored "
        "messages needs a confirmation.",
        replies.QueueReply, messages.ConfirmedQueueQuery, settings.QueueSettings, errors=WRITES,
        body_max=limits.CONFIG_BYTES_MAX,
    ),
    Operation(
        "delete_queue", Verb.QUEUE_ADMIN, "DELETE", "/v1/queues/{path}",
        "Remove a queue and its messages, with a confirmation.",
        replies.DestroyedReply, messages.ConfirmedQueueQuery, errors=WRITES,
    ),
    Operation(
        "purge_queue", Verb.QUEUE_ADMIN, "POST", "/v1/queues/{path}/purge",
        "Remove the messages of a queue, with a confirmation.",
        replies.DestroyedReply, messages.ConfirmedQueueQuery, errors=WRITES,
    ),
    # -- recurring schedules
    _look(
        "list_schedules", "/v1/schedules", schedules.SchedulesQuery, schedules.SchedulesReply, "Schedules by name.",
        Verb.QUEUE_ADMIN, queues=(), errors=(),
    ),
    _schedule("get_schedule", "GET", "", "A schedule and its next fire times.", schedules.ScheduleReply),
    _schedule(
        "put_schedule", "PUT", "", "Create a schedule, or change it.", schedules.ScheduleReply,
        body=schedules.ScheduleRequest, created=schedules.ScheduleReply, body_max=limits.SCHEDULE_BYTES_MAX,
    ),
    _schedule(
        "delete_schedule", "DELETE", "", "Remove a schedule. The messages that it has published stay.",
        schedules.ScheduleRemovedReply,
    ),
    _schedule("pause_schedule", "POST", "/pause", "Stop firing until it is resumed.", schedules.ScheduleReply),
    _schedule(
        "resume_schedule", "POST", "/resume", "Go on firing; what was missed is made up for as `catch_up` says.",
        schedules.ScheduleReply,
    ),
    # -- webhooks
    _webhook(
        "list_webhooks", "GET", "", "Webhooks, oldest first.", webhooks.WebhooksReply, query=webhooks.WebhooksQuery,
        queues=("queue",), errors=(),
    ),
    _webhook(
        "create_webhook", "POST", "",
        "Send the messages of a group to a URL. The answer has the secret that they are signed with, once.",
        None, body=webhooks.WebhookRequest, created=webhooks.WebhookReply, queues=("queue",), idempotent=False,
    ),
    _webhook(
        "get_webhook", "GET", "/{id}", "A webhook and its deliveries.", webhooks.WebhookReply,
        query=webhooks.WebhookNamed,
    ),
    _webhook(
        "change_webhook", "PATCH", "/{id}", "Change some settings of a webhook.", webhooks.WebhookReply,
        query=webhooks.WebhookNamed, body=webhooks.WebhookChanges,
    ),
    _webhook(
        "delete_webhook", "DELETE", "/{id}", "Remove a webhook. Messages of its group stay.",
        webhooks.WebhookRemovedReply, query=webhooks.WebhookNamed,
    ),
    _webhook(
        "pause_webhook", "POST", "/pause", "Send nothing until it is resumed.", webhooks.WebhookReply,
        body=webhooks.WebhookNamed,
    ),
    _webhook(
        "resume_webhook", "POST", "/resume",
        "Go on sending, also to an endpoint that was given up or is left alone for a while.",
        webhooks.WebhookReply, body=webhooks.WebhookNamed,
    ),
    _webhook(
        "rotate_webhook", "POST", "/rotate",
        "Sign with a new secret, which this answer shows; and with the earlier one as well for a while.",
        webhooks.WebhookReply, body=webhooks.RotateRequest, idempotent=False,
    ),
    _webhook(
        "test_webhook", "POST", "/test", "Send a test request, which is not a message, and return its result.",
        webhooks.TestReply, body=webhooks.WebhookNamed, idempotent=False,
    ),
    _webhook(
        "resend_webhook", "POST", "/resend",
        "Send a message that is still stored once more, now. Its place in the queue does not change.",
        webhooks.TestReply, body=webhooks.ResendRequest, idempotent=False, grpc=False,
    ),
    _webhook(
        "webhook_attempts", "GET", "/attempts", "The latest attempts, newest first.", webhooks.AttemptsReply,
        query=webhooks.AttemptsQuery,
    ),
    # -- the journal
    _look(
        "events", "/v1/events", events.EventsQuery, events.EventsReply,
        "The records of the journal about messages, without payloads.", Verb.PEEK,
        large=True, gives=(JSON, events.EVENTS_TYPE),
    ),
    _look(
        "event_stream", "/v1/events/stream", event_stream.EventStreamQuery, str,
        "Events as they become durable, as server-sent events; a sample, for people and pages.", Verb.PEEK, errors=(),
        gives=(EVENT_STREAM,), grpc=False,
    ),
    _look(
        "event_ranges", "/v1/events/ranges", events.EventRangesQuery, events.EventRangesReply,
        "Where to cut the journal so that several can read its events at once.", Verb.PEEK, queues=(), errors=(),
    ),
    Operation(
        "list_holds", Verb.QUEUE_ADMIN, "GET", "/v1/holds", "The holds of archives on retention.", holds.HoldsReply,
        queues=(),
    ),
    _hold("get_hold", "GET", "Where a hold is, and how much it spans.", holds.HoldReply),
    _hold(
        "put_hold", "PUT", "Let nothing go that an archive has not copied yet; or move on.", holds.HoldReply,
        body=holds.HoldRequest, queues=("queues",),
    ),
    _hold("delete_hold", "DELETE", "Hold nothing any more.", holds.HoldRemovedReply),
    # -- dead letters
    _look(
        "dead_letters", "/v1/dlq", messages.DeadLettersQuery, replies.DeadLettersReply,
        "Dead letters of a queue, oldest first.", Verb.DLQ, large=True,
    ),
    _look(
        "dead_letter_reasons", "/v1/dlq/reasons", queue_table.LetterGroupsQuery, queue_table.LetterGroupsReply,
        "The dead letters of a queue by the pattern of their errors, from the oldest on, the most frequent first.",
        Verb.DLQ, grpc=False,
    ),
    Operation(
        "redrive", Verb.DLQ, "POST", "/v1/dlq/redrive",
        "Bring dead letters back, in the background; or, as a dry run, say which.",
        replies.RedriveReply, body=messages.RedriveRequest, queues=("queue", "target"), errors=WRITES,
        idempotent=False,
    ),
    _look(
        "redrives", "/v1/dlq/redrives", messages.RedrivesQuery, replies.RedrivesReply,
        "Redrives under way, and the latest that ended.", Verb.DLQ,
    ),
    Operation(
        "stop_redrive", Verb.DLQ, "POST", "/v1/dlq/redrive/stop", "Let a redrive move no more.",
        replies.RedriveStatus, body=messages.StopRedriveRequest, errors=WRITES,
    ),
    Operation(
        "delete_dead_letters", Verb.DLQ, "POST", "/v1/dlq/delete", "Delete dead letters, with a confirmation.",
        replies.DeletedDeadLettersReply, messages.ConfirmQuery, messages.DeleteDeadLettersRequest, errors=WRITES,
    ),
    # -- encryption at rest
    Operation(
        "erase", Verb.QUEUE_ADMIN, "POST", "/v1/erase",
        "Destroy the data keys of a queue, of a namespace, or of the messages with a key, with a confirmation.",
        encryption.ErasedReply, messages.ConfirmQuery, encryption.EraseRequest, queues=("queue", "namespace"),
        errors=WRITES, body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "encryption", Verb.CLUSTER_ADMIN, "GET", "/v1/encryption", "Is there an encryption key, and which?",
        encryption.EncryptionReply, queues=(), grpc=False,
    ),
    Operation(
        "rotate_encryption_key", Verb.CLUSTER_ADMIN, "POST", "/v1/encryption/rotate",
        "Read the encryption key again, and wrap the data keys by it.", encryption.EncryptionReply, queues=(),
        errors=("conflict", "disk_full"), grpc=False,
    ),
    # -- API keys
    Operation(
        "list_keys", Verb.KEY_ADMIN, "GET", "/v1/keys", "API keys, without their secrets.", keys.KeysReply, queues=(),
        grpc=False,
    ),
    Operation(
        "create_key", Verb.KEY_ADMIN, "POST", "/v1/keys", "Create an API key. The answer has the key, once.", None,
        body=keys.KeyRequest, queues=(), errors=("conflict", "disk_full"), created=keys.KeyReply, idempotent=False,
        body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "rotate_key", Verb.KEY_ADMIN, "POST", "/v1/keys/rotate",
        "Give an API key a new secret, which this answer shows; the former one is accepted as well for a while.",
        keys.KeyReply, body=keys.RotateKeyRequest, queues=(), errors=WRITES, idempotent=False,
        body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "revoke_key", Verb.KEY_ADMIN, "DELETE", "/v1/keys/{id}", "End an API key, and its streams.",
        keys.KeyRevokedReply, keys.KeyNamed, queues=(), errors=WRITES, grpc=False,
    ),
    # -- people
    Operation(
        "list_users", Verb.KEY_ADMIN, "GET", "/v1/users", "People that log in.", users.UsersReply, queues=(),
        grpc=False,
    ),
    Operation(
        "add_user", Verb.KEY_ADMIN, "POST", "/v1/users", "Add a person, with a role and a password.", None,
        body=users.UserRequest, queues=(), errors=("conflict", "disk_full", "rate_limited"), created=users.UserReply,
        idempotent=False, body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "change_user", Verb.KEY_ADMIN, "PATCH", "/v1/users/{email}",
        "Give a person another role or another password. Their sessions end.", users.UserReply, users.UserNamed,
        users.UserChanges, queues=(), errors=WRITES, body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "remove_user", Verb.KEY_ADMIN, "DELETE", "/v1/users/{email}", "Remove a person, and end their sessions.",
        users.UserRemovedReply, users.UserNamed, queues=(), errors=WRITES, grpc=False,
    ),
    # -- the identity behind a request
    Operation(
        "session", Verb.NONE, "GET", "/v1/session", "The identity behind this request, and its scopes.",
        users.SessionReply, queues=(), grpc=False,
    ),
    Operation(
        "login", Verb.NONE, "POST", "/v1/session",
        "Log in with email and password. The answer sets the cookie of the session, and has its CSRF token.", None,
        body=users.LoginRequest, queues=(), errors=("rate_limited",), created=users.SessionReply, idempotent=False,
        body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "logout", Verb.NONE, "DELETE", "/v1/session", "End the session of this request.", users.SessionEndedReply,
        queues=(), grpc=False,
    ),
    Operation(
        "change_password", Verb.NONE, "POST", "/v1/session/password",
        "Change the password of the person that asks. Their sessions end, and the answer begins a new one.", None,
        body=users.PasswordRequest, queues=(), errors=WRITES, created=users.SessionReply, idempotent=False,
        body_max=limits.CONFIG_BYTES_MAX, grpc=False,
    ),
    Operation(
        "create_ticket", Verb.NONE, "POST", "/v1/tickets",
        "A ticket that opens one WebSocket within 30 s, for clients that can set no header.", None, queues=(),
        errors=("not_found", "rate_limited"), created=users.TicketReply, idempotent=False, grpc=False,
    ),
    Operation(
        "access_limits", Verb.NONE, "GET", "/v1/limits",
        "The limits of addresses, keys, namespaces and queues, and how often each refused something.",
        limits_wire.AccessLimitsReply, queues=(), grpc=False,
    ),
    Operation(
        "audit", Verb.AUDIT_READ, "GET", "/v1/audit", "Entries of the audit trail, oldest first.", audit.AuditReply,
        audit.AuditQuery, queues=(), errors=("not_found",), grpc=False,
    ),
    Operation(
        "verify_audit", Verb.AUDIT_READ, "GET", "/v1/audit/verify", "Whether the chain of the audit trail holds.",
        audit.AuditStateReply, queues=(), errors=("not_found",), grpc=False,
    ),
    # -- the process
    _process("log_levels", "/v1/logs", "The levels of the log, by category.", logs.LogsReply, Verb.CLUSTER_ADMIN),
    Operation(
        "set_log_levels", Verb.CLUSTER_ADMIN, "PUT", "/v1/logs",
        "Change levels of the log until the server stops: `requests` at `info` writes one line per request.",
        logs.LogsReply, body=logs.LogsRequest, queues=(), grpc=False, body_max=limits.CONFIG_BYTES_MAX,
    ),
    _process("health", "/healthz", "Is the process up?", replies.StatusReply, Verb.NONE),
    _process("readiness", "/readyz", "Would a request be served?", replies.ReadinessReply, Verb.NONE),
    _process(
        "metrics", "/metrics", "Metrics for Prometheus.", str, Verb.METRICS, query=queue_table.MetricsQuery,
        gives=(TEXT, OPENMETRICS),
    ),
    _process("openapi", "/openapi.json", "This document.", None, Verb.NONE),
    _process("asyncapi", "/asyncapi.json", "The same for the frames of `/v1/ws`, as AsyncAPI.", None, Verb.NONE),
    _process("front_page", "/", "Links to the other pages.", replies.FrontPage, Verb.NONE),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _OPERATIONS}
"""By name."""
