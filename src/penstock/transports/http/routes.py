"""The operations of `wire/operations.py` by method and path, each with its handler."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.errors import MethodNotAllowed, NotFound
from penstock.transports import translate
from penstock.transports.http import (
    cluster,
    connections,
    consume,
    deadletters,
    event_stream,
    process,
    publish,
    queue_table,
    series,
    session,
)
from penstock.transports.http.edge import Handler
from penstock.transports.http.plain import plain, settling
from penstock.wire import messages
from penstock.wire import operations as contract


class HttpOperation(NamedTuple):
    name: str
    method: str
    path: str
    handler: Handler
    large: bool = False
    """Refused while the memory budget of the connections is used up."""


class Table(Protocol):
    """Finds the operation of a request. This module is one."""

    def find(self, method: str, path: str) -> HttpOperation: ...
    def allowed(self, path: str) -> list[str]: ...


HANDLERS: dict[str, Handler] = {
    "publish": publish.publish,
    "transact": publish.transact,
    "lease": consume.lease,
    "read": consume.read,
    "peek": consume.peek,
    "events": consume.events,
    "ack": settling(translate.ack, messages.AckRequest),
    "nack": settling(translate.nack, messages.NackRequest),
    "reject": settling(translate.reject, messages.RejectRequest),
    "release": settling(translate.release, messages.AckRequest),
    "extend": settling(translate.extend, messages.ExtendRequest),
    "event_stream": event_stream.event_stream,
    "queue_table": queue_table.queue_table,
    "series": series.series,
    "connections": connections.connections,
    "dead_letter_reasons": deadletters.reasons,
    "dead_letters": deadletters.dead_letters,
    "redrive": deadletters.redrive,
    "audit": process.audit,
    "verify_audit": process.verify_audit,
    "session": session.session,
    "login": session.login,
    "logout": session.logout,
    "change_password": session.change_password,
    "create_ticket": session.create_ticket,
    "access_limits": session.access_limits,
    "storage": process.storage,
    "cluster": cluster.cluster,
    "cluster_map": cluster.cluster_map,
    "log_levels": process.log_levels,
    "set_log_levels": process.set_log_levels,
    "health": process.health,
    "readiness": process.readiness,
    "metrics": process.metrics,
    "openapi": process.describe_http,
    "asyncapi": process.describe_websocket,
    "front_page": process.front_page,
}
"""Operations with a form of their own in HTTP; `plain` handles the others."""

OPERATIONS = tuple(
    HttpOperation(
        each.name,
        each.method,
        each.path,
        HANDLERS.get(each.name) or plain(each, getattr(translate, each.name)),
        each.large,
    )
    for each in contract.OPERATIONS.values()
)


def find(method: str, path: str) -> HttpOperation:
    """Raises NotFound, or MethodNotAllowed with the allowed methods."""
    methods = _EXACT.get(path) or _methods_of(path)
    operation = methods.get("GET" if method == "HEAD" else method)
    if operation is None:
        raise MethodNotAllowed(f"{method[:20]} is not possible here", details={"allow": allowed(path)})
    return operation


def allowed(path: str) -> list[str]:
    """The methods that a path takes; raises NotFound."""
    methods = {*(_EXACT.get(path) or _methods_of(path)), "OPTIONS"}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


_Methods = dict[str, HttpOperation]
_EXACT: dict[str, _Methods] = {}
_WITH_PARAMETER: dict[tuple[str, str, str], _Methods] = {}
"""By the parameter's name and the texts before and after it."""
for _operation in OPERATIONS:
    _before, _brace, _rest = _operation.path.partition("{")
    _name, _, _after = _rest.partition("}")
    _methods = _WITH_PARAMETER.setdefault((_name, _before, _after), {}) if _brace else _EXACT.setdefault(_before, {})
    _methods[_operation.method] = _operation
_LONGEST_FIRST = sorted(_WITH_PARAMETER.items(), key=lambda entry: len(entry[0][2]), reverse=True)


def _methods_of(path: str) -> _Methods:
    found: _Methods = {}
    for (name, before, after), methods in _LONGEST_FIRST:
        if path.startswith(before) and path.endswith(after):
            found = {**methods, **found}
            # `purge` may be a name in the path of a queue: only its own methods mean the operation.
            if name != "path":
                break
    if not found:
        raise NotFound(f"there is nothing at {path[:200]!r}; /openapi.json lists what is here")
    return found
