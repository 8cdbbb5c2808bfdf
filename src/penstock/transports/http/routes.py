"""Which operation a method and a path mean. The same table is the spine of `/openapi.json`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Protocol

from penstock.errors import MethodNotAllowed, NotFound
from penstock.transports.http import (
    admin,
    analytics,
    asyncapi,
    consume,
    deadletters,
    events,
    looks,
    members,
    publish,
    readers,
    schedules,
    settle,
    transact,
    webhooks,
)
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge, Handler
from penstock.transports.http.openapi import describe
from penstock.transports.http.request import Request


class Operation(NamedTuple):
    name: str
    method: str
    path: str
    handler: Handler


class Table(Protocol):
    """Something that knows which operation is meant. This module is one."""

    def find(self, method: str, path: str) -> Operation: ...
    def allowed(self, path: str) -> list[str]: ...


async def _openapi(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return Answer(200, document())


async def _asyncapi(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    return Answer(200, asyncapi.document())


OPERATIONS: tuple[Operation, ...] = (
    Operation("publish", "POST", "/v1/publish", publish.publish),
    Operation("lease", "POST", "/v1/lease", consume.lease),
    Operation("ack", "POST", "/v1/ack", settle.ack),
    Operation("nack", "POST", "/v1/nack", settle.nack),
    Operation("reject", "POST", "/v1/reject", settle.reject),
    Operation("release", "POST", "/v1/release", settle.release),
    Operation("extend", "POST", "/v1/extend", settle.extend),
    Operation("transact", "POST", "/v1/transact", transact.transact),
    Operation("cancel", "POST", "/v1/cancel", settle.cancel),
    Operation("reschedule", "POST", "/v1/reschedule", settle.reschedule),
    Operation("put_group", "PUT", "/v1/groups", members.put),
    Operation("seek_group", "POST", "/v1/groups/seek", members.seek),
    Operation("delete_group", "DELETE", "/v1/groups", members.delete),
    Operation("join_group", "POST", "/v1/groups/join", members.join),
    Operation("heartbeat", "POST", "/v1/groups/heartbeat", members.heartbeat),
    Operation("leave_group", "POST", "/v1/groups/leave", members.leave),
    Operation("read", "GET", "/v1/read", consume.read),
    Operation("keep_offsets", "POST", "/v1/offsets", readers.keep_offsets),
    Operation("get_offsets", "GET", "/v1/offsets", readers.get_offsets),
    Operation("forget_offsets", "DELETE", "/v1/offsets", readers.forget_offsets),
    Operation("peek", "GET", "/v1/peek", consume.peek),
    Operation("explain", "GET", "/v1/explain", looks.explain),
    Operation("history", "GET", "/v1/history", looks.history),
    Operation("autoscale", "GET", "/v1/autoscale", looks.autoscale),
    Operation("analytics_queues", "GET", "/v1/analytics/queues", analytics.queues),
    Operation("analytics_queue", "GET", "/v1/analytics/queue", analytics.queue),
    Operation("analytics_namespace", "GET", "/v1/analytics/namespace", analytics.namespace),
    Operation("analytics_task", "GET", "/v1/analytics/task", analytics.task),
    Operation("analytics_depths", "GET", "/v1/analytics/depths", analytics.depths),
    Operation("analytics_throughput", "GET", "/v1/analytics/throughput", analytics.throughput),
    Operation("analytics_latency", "GET", "/v1/analytics/latency", analytics.latency),
    Operation("list_queues", "GET", "/v1/queues", admin.list_queues),
    Operation("get_queue", "GET", "/v1/queues/{path}", admin.get_queue),
    Operation("put_queue", "PUT", "/v1/queues/{path}", admin.put_queue),
    Operation("patch_queue", "PATCH", "/v1/queues/{path}", admin.patch_queue),
    Operation("delete_queue", "DELETE", "/v1/queues/{path}", admin.delete_queue),
    Operation("purge_queue", "POST", "/v1/queues/{path}/purge", admin.purge_queue),
    Operation("list_schedules", "GET", "/v1/schedules", schedules.list_schedules),
    Operation("get_schedule", "GET", "/v1/schedules/{name}", schedules.get_schedule),
    Operation("put_schedule", "PUT", "/v1/schedules/{name}", schedules.put_schedule),
    Operation("delete_schedule", "DELETE", "/v1/schedules/{name}", schedules.delete_schedule),
    Operation("pause_schedule", "POST", "/v1/schedules/{name}/pause", schedules.pause_schedule),
    Operation("resume_schedule", "POST", "/v1/schedules/{name}/resume", schedules.resume_schedule),
    Operation("list_webhooks", "GET", "/v1/webhooks", webhooks.list_webhooks),
    Operation("create_webhook", "POST", "/v1/webhooks", webhooks.create_webhook),
    Operation("get_webhook", "GET", "/v1/webhooks/{id}", webhooks.get_webhook),
    Operation("change_webhook", "PATCH", "/v1/webhooks/{id}", webhooks.change_webhook),
    Operation("delete_webhook", "DELETE", "/v1/webhooks/{id}", webhooks.delete_webhook),
    Operation("pause_webhook", "POST", "/v1/webhooks/pause", webhooks.pause_webhook),
    Operation("resume_webhook", "POST", "/v1/webhooks/resume", webhooks.resume_webhook),
    Operation("rotate_webhook", "POST", "/v1/webhooks/rotate", webhooks.rotate_webhook),
    Operation("test_webhook", "POST", "/v1/webhooks/test", webhooks.test_webhook),
    Operation("webhook_attempts", "GET", "/v1/webhooks/attempts", webhooks.webhook_attempts),
    Operation("extent", "GET", "/v1/extent", events.extent),
    Operation("events", "GET", "/v1/events", events.events),
    Operation("event_ranges", "GET", "/v1/events/ranges", events.event_ranges),
    Operation("list_holds", "GET", "/v1/holds", events.list_holds),
    Operation("get_hold", "GET", "/v1/holds/{name}", events.get_hold),
    Operation("put_hold", "PUT", "/v1/holds/{name}", events.put_hold),
    Operation("delete_hold", "DELETE", "/v1/holds/{name}", events.delete_hold),
    Operation("stats", "GET", "/v1/stats", admin.stats),
    Operation("summary", "GET", "/v1/stats/summary", admin.summary),
    Operation("groups", "GET", "/v1/groups", admin.groups),
    Operation("dead_letters", "GET", "/v1/dlq", deadletters.dead_letters),
    Operation("redrive", "POST", "/v1/dlq/redrive", deadletters.redrive),
    Operation("redrives", "GET", "/v1/dlq/redrives", deadletters.redrives),
    Operation("stop_redrive", "POST", "/v1/dlq/redrive/stop", deadletters.stop_redrive),
    Operation("delete_dead_letters", "POST", "/v1/dlq/delete", deadletters.delete),
    Operation("health", "GET", "/healthz", admin.health),
    Operation("readiness", "GET", "/readyz", admin.readiness),
    Operation("metrics", "GET", "/metrics", admin.metrics),
    Operation("openapi", "GET", "/openapi.json", _openapi),
    Operation("asyncapi", "GET", "/asyncapi.json", _asyncapi),
    Operation("front_page", "GET", "/", admin.front_page),
)


def find(method: str, path: str) -> Operation:
    """Raises NotFound, or MethodNotAllowed with the methods that would do."""
    operation = _methods_of(path).get("GET" if method == "HEAD" else method)
    if operation is None:
        raise MethodNotAllowed(f"{method[:20]} is not possible here", details={"allow": allowed(path)})
    return operation


def allowed(path: str) -> list[str]:
    """The methods that a path takes; raises NotFound."""
    methods = {*_methods_of(path), "OPTIONS"}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


_BY_PATH: dict[str, dict[str, Operation]] = {}
for _operation in OPERATIONS:
    _BY_PATH.setdefault(_operation.path, {})[_operation.method] = _operation
_QUEUE = _BY_PATH.pop(admin.QUEUES_PREFIX + "{path}")
# `…/purge` is a queue's name as well as an end of a path: what is posted to it purges, anything else means the queue.
_QUEUE_OR_PURGE = _QUEUE | _BY_PATH.pop(admin.QUEUES_PREFIX + "{path}" + admin.PURGE_SUFFIX)

_WEBHOOK = _BY_PATH.pop(webhooks.WEBHOOKS_PREFIX + "{id}")
_HOLD = _BY_PATH.pop(events.HOLDS_PREFIX + "{name}")
_SCHEDULE = {
    suffix: _BY_PATH.pop(schedules.SCHEDULES_PREFIX + "{name}" + suffix)
    for suffix in (schedules.PAUSE_SUFFIX, schedules.RESUME_SUFFIX, "")
}


def _methods_of(path: str) -> dict[str, Operation]:
    methods = _BY_PATH.get(path)
    if methods is not None:
        return methods
    if path.startswith(schedules.SCHEDULES_PREFIX):
        return next(methods for suffix, methods in _SCHEDULE.items() if path.endswith(suffix))
    if path.startswith(webhooks.WEBHOOKS_PREFIX):
        return _WEBHOOK
    if path.startswith(events.HOLDS_PREFIX):
        return _HOLD
    if path.startswith(admin.QUEUES_PREFIX):
        return _QUEUE_OR_PURGE if path.endswith(admin.PURGE_SUFFIX) else _QUEUE
    raise NotFound(f"there is nothing at {path[:200]!r}; /openapi.json lists what is here")


@cache
def document() -> bytes:
    return describe([(operation.name, operation.method, operation.path) for operation in OPERATIONS])
