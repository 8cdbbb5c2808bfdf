"""The table of routes: which shards each method of the facade concerns.

A route gets the router, the name of the method, and the arguments of the call. It answers as the method of one shard
would: with a value, a coroutine or a `PendingReply`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker import merging, route_messages, route_objects
from penstock.broker.joint import merged
from penstock.broker.routing import META, Arguments, Options, Route

if TYPE_CHECKING:
    from penstock.broker.router import Router


# -- by queue -----------------------------------------------------------------------------------------------------


def _by_queue(router: Router, method: str, queue: str, arguments: Arguments, options: Options) -> Any:
    if not router.has_home(queue):
        return router.route(router.home_of(queue), method, arguments, options)
    return router.call(router.shard_of(queue), method, arguments, options)


def _queue(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """The shard of the queue that is the first argument."""
    return _by_queue(router, method, arguments[0], arguments, options)


def _meta(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    return router.call(META, method, arguments, options)


def _series(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
    """The series of a queue or of a group of it; that of all queues together has no queue in its key."""
    queue, _, _ = arguments[0].partition("\0")
    if queue:
        return _by_queue(router, method, queue, arguments, options)
    return merged(router.everywhere(method, arguments, options), merging.SERIES[method])


def _all(merge: Callable[[list[Any]], Any]) -> Route:
    return lambda router, method, arguments, options: merged(router.everywhere(method, arguments, options), merge)


def _here(merge: Callable[[list[Any]], Any]) -> Route:
    """The shards of this process: what it does for each shard that it serves."""
    return lambda router, method, arguments, options: merge(
        [router.call(shard, method, arguments, options) for shard in router.numbers if router.is_here(shard)]
    )


def _paged(merge: Callable[[list[Any], int, int], Any]) -> Route:
    """A page of a sorted list: it is somewhere in the first pages of all shards together."""

    def route(router: Router, method: str, arguments: Arguments, options: Options) -> Any:
        page, limit = options.get("page", 1), options.get("limit", 50)
        first = {**options, "page": 1, "limit": page * limit}
        return merged(router.everywhere(method, arguments, first), lambda parts: merge(parts, page, limit))

    return route


ROUTES: dict[str, Route] = {
    "messages.publish": route_messages.publish,
    "messages.transact": route_messages.transact,
    "messages.lease": route_messages.lease,
    "messages.lease_scope": route_messages.lease_scope,
    "messages.queues_of": route_messages.queues_of,
    **dict.fromkeys(
        ("messages.ack", "messages.nack", "messages.reject", "messages.release", "messages.extend"),
        route_messages.settle,
    ),
    **dict.fromkeys(
        (
            "scheduled.page", "scheduled.cancel", "scheduled.reschedule",
            "members.join", "members.heartbeat", "members.leave",
            "groups.begin", "groups.create", "groups.seek", "groups.delete", "groups.list",
            "in_flight.is_held", "in_flight.count",
            "log.read", "log.peek", "log.has_next", "log.watch", "log.watch_end", "log.extent",
            "events.history", "explanations.explain", "autoscale.signal",
            "readers.keep", "readers.get", "readers.forget",
            "queues.get", "queues.patch", "queues.purge", "stats.queue", "stats.consumers",
            "dead_letters.page", "dead_letters.delete", "letter_groups.largest",
            "redrives.list", "redrives.stop",
        ),
        _queue,
    ),
    "in_flight.receipts": route_objects.receipts_of_ids,
    "in_flight.held": _all(merging.summed),
    "queues.put": route_objects.put_queue,
    "queues.delete": route_objects.delete_queue,
    "queues.list": _paged(merging.queue_page),
    "queues.paths": _all(merging.paths),
    "stats.rows": _all(merging.rows),
    "stats.summary": route_objects.summary,
    "series.read": _series,
    "series.recent": _series,
    "erasure.erase": route_objects.erase,
    "erasure.rotate": _all(merging.encryption),
    "erasure.status": _all(merging.encryption),
    "redrives.start": route_objects.redrive,
    "schedules.get": route_objects.schedule,
    "schedules.pause": route_objects.schedule,
    "schedules.remove": route_objects.schedule,
    "schedules.put": route_objects.put_schedule,
    "schedules.list": _paged(merging.schedule_page),
    "webhooks.create": route_objects.create_webhook,
    **dict.fromkeys(
        (
            "webhooks.get", "webhooks.change", "webhooks.remove", "webhooks.pause", "webhooks.resume",
            "webhooks.rotate", "webhooks.test", "webhooks.resend", "webhooks.attempts", "webhooks.registration",
            "webhooks.secrets", "webhooks.disable",
        ),
        route_objects.webhook,
    ),
    "webhooks.list": _paged(merging.webhook_page),
    "webhooks.registrations": _here(merging.joined),
    "webhooks.attach": _here(merging.nothing),
    "holds.set": route_objects.set_hold,
    "holds.get": route_objects.get_hold,
    "holds.list": _all(merging.holds),
    "holds.remove": _all(merging.removed_hold),
    "events.queues_of": _all(merging.paths),
    "events.read": route_objects.events,
    "events.read_bulk": route_objects.events,
    "events.ranges": route_objects.events,
    "feed.watch": route_objects.watch_feed,
    **dict.fromkeys(
        (
            "keys.list", "keys.create", "keys.rotate", "keys.revoke", "keys.attach", "keys.used", "keys.bootstrap",
            "keys.certificate_entries",
            "users.attach", "users.find", "users.list", "users.add", "users.change", "users.remove",
        ),
        _meta,
    ),
}  # fmt: skip
"""By `<room>.<method>`."""
