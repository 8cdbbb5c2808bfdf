"""The broker as one principal may use it: the table of authorisation, and the object that enforces it.

Every transport and every dialect reaches the broker through its facade, so permission is checked here, once for all of
them: a transport turns a credential into a principal and calls the `GuardedBroker` of that principal in place of the
broker. A method that has no row in `RULES` cannot be called. A check happens before the call, from its arguments alone,
so it does not depend on what exists, and a refused call has changed nothing.

Settings, counts and explanations of a queue may be read with any scope that names the queue. Payloads need a scope of
their own: `peek` for the log, `consume` for deliveries, `dlq` for dead letters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from penstock.broker.audit import AUDITED, AuditTrail, object_of
from penstock.broker.metering import Metering
from penstock.errors import Forbidden, NotFound, PenstockError
from penstock.ids import parse_queue
from penstock.security.principal import Principal

if TYPE_CHECKING:
    from penstock.broker.service import Broker

_RECORDING: set[asyncio.Task[Any]] = set()
"""Calls whose entry is not written yet. The event loop itself keeps weak references only."""

Arguments: TypeAlias = tuple[Any, ...]
Options: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Principal, "Broker", Arguments, Options], None]
"""Returns if the principal may make this call. Raises Forbidden, or NotFound for objects of others."""
View: TypeAlias = Callable[..., Any]
"""Answers a call with the part that the principal may see: (principal, broker, *arguments)."""


# -- rules --------------------------------------------------------------------------------------------------------


def _queue(verb: str) -> Rule:
    """The verb on the queue that is the first argument."""
    return lambda principal, _, arguments, __: principal.demand(verb, arguments[0])


def _see(principal: Principal, broker: Broker, arguments: Arguments, options: Options) -> None:  # noqa: ARG001
    if not principal.may_see(arguments[0]):
        raise principal.refusal("peek", arguments[0])


def _series(principal: Principal, broker: Broker, arguments: Arguments, options: Options) -> None:
    """The series of a queue or of a group of it; that of all queues together has no queue in its key."""
    queue, _, _ = arguments[0].partition("\0")
    if queue:
        _see(principal, broker, (queue,), options)
    else:
        principal.demand_everywhere("metrics")


def _everywhere(verb: str) -> Rule:
    return lambda principal, *_: principal.demand_everywhere(verb)


def _demand_receipts(principal: Principal, broker: Broker, receipts: Sequence[str]) -> None:
    for queue in broker.messages.queues_of(receipts) if receipts else ():
        principal.demand("consume", queue)


def _settle(principal: Principal, broker: Broker, arguments: Arguments, _: Options) -> None:
    _demand_receipts(principal, broker, arguments[0])


def _publish(principal: Principal, _: Broker, arguments: Arguments, __: Options) -> None:
    for part in arguments[0]:
        principal.demand("publish", part.queue)


def _transact(principal: Principal, broker: Broker, arguments: Arguments, options: Options) -> None:
    _demand_receipts(principal, broker, arguments[0])
    _publish(principal, broker, arguments[1:], options)


def _lease(principal: Principal, broker: Broker, arguments: Arguments, options: Options) -> None:
    principal.demand("consume", arguments[0])
    _demand_receipts(principal, broker, options.get("ack", ()))


def _lease_scope(principal: Principal, broker: Broker, arguments: Arguments, options: Options) -> None:
    principal.demand_everywhere("consume", f"{arguments[0]}/")
    _demand_receipts(principal, broker, options.get("ack", ()))


def _redrive(principal: Principal, _: Broker, arguments: Arguments, options: Options) -> None:
    principal.demand("dlq", arguments[0])
    if options.get("target") is not None:
        principal.demand("publish", options["target"])


def _receipts_of_ids(principal: Principal, _: Broker, __: Arguments, options: Options) -> None:
    queue = options.get("queue")
    if queue is None:
        principal.demand_everywhere("consume")
    else:
        principal.demand("consume", queue)


def _schedule(principal: Principal, broker: Broker, arguments: Arguments, _: Options) -> None:
    """The queue of the schedule that has this name; and the queue that a change would give it."""
    if len(arguments) > 1:
        principal.demand("queue.admin", parse_queue(arguments[1].queue))
        if not any(
            each.name == arguments[0] for each in broker.schedules.list(prefix=arguments[0], page=1, limit=1).schedules
        ):
            return
    owned = broker.schedules.get(arguments[0])
    if not principal.may("queue.admin", owned.queue):
        raise NotFound(f"there is no schedule {arguments[0]}")


def _webhook(principal: Principal, broker: Broker, arguments: Arguments, _: Options) -> None:
    webhook = broker.webhooks.get(arguments[0])
    if not principal.may("webhook.admin", webhook.queue):
        raise NotFound(f"there is no webhook {webhook.id}", details={"webhook": webhook.id})


def _new_webhook(principal: Principal, _: Broker, arguments: Arguments, __: Options) -> None:
    principal.demand("webhook.admin", parse_queue(arguments[0].queue))


def _events(principal: Principal, _: Broker, arguments: Arguments, __: Options) -> None:
    queue = arguments[1] if len(arguments) > 1 else None
    if queue is None:
        principal.demand_everywhere("peek")
    else:
        principal.demand("peek", queue)


def _erase(principal: Principal, _: Broker, arguments: Arguments, __: Options) -> None:
    """The first argument is a queue, or a namespace followed by `/*`."""
    target = arguments[0]
    if target.endswith("/*"):
        principal.demand_everywhere("queue.admin", target.removesuffix("*"))
    else:
        principal.demand("queue.admin", target)


def _any_credential(*_: Any) -> None:
    """Every credential may."""


RULES: dict[str, Rule] = {
    "messages.publish": _publish,
    "scheduled.page": _queue("peek"),
    "scheduled.cancel": _queue("publish"),
    "scheduled.reschedule": _queue("publish"),
    "messages.lease": _lease,
    "messages.lease_scope": _lease_scope,
    "messages.ack": _settle,
    "messages.nack": _settle,
    "messages.reject": _settle,
    "messages.release": _settle,
    "messages.extend": _settle,
    "messages.transact": _transact,
    "members.join": _queue("consume"),
    "members.heartbeat": _queue("consume"),
    "members.leave": _queue("consume"),
    "groups.begin": _queue("consume"),
    "in_flight.receipts": _receipts_of_ids,
    "in_flight.is_held": _queue("consume"),
    "log.has_next": _queue("consume"),
    "groups.create": _queue("queue.admin"),
    "groups.seek": _queue("queue.admin"),
    "groups.delete": _queue("queue.admin"),
    "log.read": _queue("peek"),
    "log.peek": _queue("peek"),
    "log.watch": _queue("peek"),
    "events.history": _queue("peek"),
    "readers.keep": _queue("peek"),
    "readers.get": _queue("peek"),
    "readers.forget": _queue("peek"),
    "events.read": _events,
    "events.read_bulk": _events,
    "events.ranges": _events,
    "feed.watch": _everywhere("peek"),
    "log.watch_end": _see,
    "log.extent": _see,
    "queues.get": _see,
    "stats.queue": _see,
    "stats.consumers": _see,
    "groups.list": _see,
    "explanations.explain": _see,
    "autoscale.signal": _see,
    "series.read": _series,
    "series.recent": _series,
    "queues.put": _queue("queue.admin"),
    "queues.patch": _queue("queue.admin"),
    "queues.delete": _queue("queue.admin"),
    "queues.purge": _queue("queue.admin"),
    "erasure.erase": _erase,
    "erasure.rotate": _everywhere("cluster.admin"),
    "erasure.status": _everywhere("cluster.admin"),
    "dead_letters.page": _queue("dlq"),
    "letter_groups.largest": _queue("dlq"),
    "redrives.start": _redrive,
    "redrives.list": _queue("dlq"),
    "redrives.stop": _queue("dlq"),
    "dead_letters.delete": _queue("dlq"),
    "schedules.get": _schedule,
    "schedules.put": _schedule,
    "schedules.remove": _schedule,
    "schedules.pause": _schedule,
    "webhooks.create": _new_webhook,
    "webhooks.get": _webhook,
    "webhooks.change": _webhook,
    "webhooks.remove": _webhook,
    "webhooks.pause": _webhook,
    "webhooks.resume": _webhook,
    "webhooks.rotate": _webhook,
    "webhooks.test": _webhook,
    "webhooks.resend": _webhook,
    "webhooks.attempts": _webhook,
    "holds.set": _everywhere("queue.admin"),
    "holds.get": _everywhere("queue.admin"),
    "holds.list": _everywhere("queue.admin"),
    "holds.remove": _everywhere("queue.admin"),
    "stats.summary": _everywhere("metrics"),
    "analytics.queues": _everywhere("metrics"),
    "analytics.history": _everywhere("metrics"),
    "analytics.depths": _everywhere("metrics"),
    "analytics.throughput": _everywhere("metrics"),
    "analytics.latency": _everywhere("metrics"),
    "commit_now": _any_credential,
}
"""The table: what a principal needs for each method of the facade."""


# -- views --------------------------------------------------------------------------------------------------------


async def _list_queues(
    principal: Principal, broker: Broker, *, prefix: str = "", page: int = 1, limit: int = 50
) -> dict[str, Any]:
    paths = [path for path in _paths(principal, broker) if path.startswith(prefix)]
    chosen = paths[(page - 1) * limit : page * limit]
    queues = [broker.queues.get(parse_queue(path)) for path in chosen]
    return {"queues": queues, "total": len(paths), "page": page, "limit": limit}


def _paths(principal: Principal, broker: Broker) -> list[str]:
    return [path for path in broker.queues.paths() if principal.may_see(path)]


async def _queues_of(principal: Principal, broker: Broker, id: str) -> list[str]:
    return [path for path in await broker.events.queues_of(id) if principal.may("peek", path)]


async def _overview(principal: Principal, broker: Broker, prefix: str = "") -> list[Any]:
    return [row for row in await broker.stats.rows(prefix) if principal.may_see(row.queue)]


def _list_schedules(principal: Principal, broker: Broker, *, prefix: str, page: int, limit: int) -> Any:
    reply = broker.schedules.list(prefix=prefix, page=1, limit=2**31)
    found = [each for each in reply.schedules if principal.may("queue.admin", each.queue)]
    return type(reply)(found[(page - 1) * limit : page * limit], len(found), page, limit)


def _list_webhooks(principal: Principal, broker: Broker, *, queue: str | None, page: int, limit: int) -> Any:
    reply = broker.webhooks.list(queue=queue, page=1, limit=2**31)
    found = [each for each in reply.webhooks if principal.may("webhook.admin", each.queue)]
    return type(reply)(found[(page - 1) * limit : page * limit], len(found), page, limit)


def _as_principal(room: str, method: str) -> View:
    """The call with the principal as `by`: the rooms of keys and people compare the scopes themselves."""

    def call(principal: Principal, broker: Broker, *arguments: Any, **options: Any) -> Any:
        if not principal.has("key.admin"):
            principal.demand_everywhere("key.admin")
        return getattr(getattr(broker, room), method)(*arguments, **options, by=principal)

    return call


VIEWS: dict[str, View] = {
    "queues.list": _list_queues,
    "queues.paths": _paths,
    "events.queues_of": _queues_of,
    "stats.rows": _overview,
    "schedules.list": _list_schedules,
    "webhooks.list": _list_webhooks,
    "keys.list": _as_principal("keys", "list"),
    "keys.create": _as_principal("keys", "create"),
    "keys.rotate": _as_principal("keys", "rotate"),
    "keys.revoke": _as_principal("keys", "revoke"),
    "users.list": _as_principal("users", "list"),
    "users.add": _as_principal("users", "add"),
    "users.change": _as_principal("users", "change"),
    "users.remove": _as_principal("users", "remove"),
}
"""Methods that answer with less, or on behalf of the principal."""

VALUES = frozenset({"id", "ready", "damage", "waiting", "auto_create"})
"""Attributes that every credential may read."""
ROOMS = frozenset(name.partition(".")[0] for name in (*RULES, *VIEWS) if "." in name)


class _Guarded:
    """The facade, or one of its rooms. Guarded methods are made at their first use and kept."""

    def __init__(
        self, principal: Principal, broker: Broker, audit: AuditTrail | None, metering: Metering | None, target: object,
        path: str = "",
    ):  # fmt: skip
        self._principal = principal
        self._audit = audit
        self._metering = metering
        self._broker = broker
        self._target = target
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}{name}"
        if path in VALUES:
            return getattr(self._target, name)
        found: Any
        if path in ROOMS:
            target = getattr(self._target, name)
            found = _Guarded(self._principal, self._broker, self._audit, self._metering, target, f"{path}.")
        elif path in VIEWS:
            found = self._viewed(path, VIEWS[path])
        elif path in RULES:
            found = self._checked(path, RULES[path], getattr(self._target, name))
        else:
            raise AttributeError(f"{path} has no row in the table of authorisation")
        if path in AUDITED and self._audit is not None:
            found = self._recorded(self._audit, path, found)
        setattr(self, name, found)
        return found

    def _checked(self, path: str, rule: Rule, method: Callable[..., Any]) -> Callable[..., Any]:
        principal, broker, audit = self._principal, self._broker, self._audit
        if self._metering is not None:
            method = self._metering.wrap(path, method, principal)

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                rule(principal, broker, arguments, options)
            except PenstockError as error:
                if audit is not None and path not in AUDITED:
                    audit.note(principal, path, object_of(arguments), error.code)
                raise
            return method(*arguments, **options)

        return call

    def _viewed(self, path: str, view: View) -> Callable[..., Any]:
        principal, broker, audit = self._principal, self._broker, self._audit

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return view(principal, broker, *arguments, **options)
            except Forbidden as error:
                if audit is not None and path not in AUDITED:
                    audit.note(principal, path, object_of(arguments), error.code)
                raise

        return call

    def _recorded(self, audit: AuditTrail, path: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The call, and then its entry: both are durable before it returns. A caller that goes away ends neither: the
        command may be decided already."""
        principal = self._principal

        async def run(*arguments: Any, **options: Any) -> Any:
            try:
                done = await method(*arguments, **options)
            except PenstockError as error:
                await audit.write(principal, path, object_of(arguments), error.code)
                raise
            await audit.write(principal, path, object_of(arguments), "ok")
            return done

        async def call(*arguments: Any, **options: Any) -> Any:
            task = asyncio.ensure_future(run(*arguments, **options))
            _RECORDING.add(task)
            task.add_done_callback(_recorded)
            return await asyncio.shield(task)

        return call


def _recorded(task: asyncio.Task[Any]) -> None:
    _RECORDING.discard(task)
    if not task.cancelled():
        task.exception()  # the caller may have gone, and then the error has no other reader


def guarded_broker(
    broker: Broker, principal: Principal, audit: AuditTrail | None = None, metering: Metering | None = None
) -> Broker:
    """The broker for calls of this principal."""
    return cast("Broker", _Guarded(principal, broker, audit, metering, broker))
