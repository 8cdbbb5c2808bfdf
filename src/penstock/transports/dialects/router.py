"""The routing table of a server with dialects.

Several interfaces may have operations with one method and path. Each such operation names fields of its body (or query)
that the others do not have, and the fields of the request select the operation. A request that matches no operation or
more than one is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from penstock.errors import Forbidden, InvalidRequest, MethodNotAllowed, NotFound, PenstockError
from penstock.transports.http.answer import Answer, error_answer
from penstock.transports.http.edge import Edge, Handler, Outcome
from penstock.transports.http.request import Request
from penstock.transports.http.routes import HttpOperation, Table
from penstock.wire.parse import parse_json

Names: TypeAlias = dict[str, str]
"""The segments of the path at the places where its template has `{name}`."""
RouteHandler: TypeAlias = Callable[[Edge, Request, Names], Awaitable[Answer]]

_QUERY_FIELDS_MAX = 32
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Route(NamedTuple):
    """One operation of a dialect."""

    name: str
    method: str
    path: str
    handler: RouteHandler
    fields: frozenset[str] = frozenset()
    """Fields that select this route among routes with the same method and path. Without fields it is the default."""
    render_error: Callable[[PenstockError], Answer] = error_answer
    """Writes an error in the form of this dialect."""
    consumes: bool = False
    """A GET that leases messages. It has no HEAD and is refused to pages of other sites, whose GETs have no Origin."""


NATIVE_FIELDS: dict[tuple[str, str], frozenset[str]] = {
    ("POST", "/v1/ack"): frozenset({"receipts"}),
    ("POST", "/v1/nack"): frozenset({"receipts"}),
    ("POST", "/v1/extend"): frozenset({"receipts"}),
    ("GET", "/v1/stats"): frozenset({"queue"}),
    ("GET", "/v1/peek"): frozenset({"queue"}),
}
"""Fields that select the native operation where a dialect has an operation with the same method and path."""


class Router:
    """A table of operations: those of the dialects, then the native ones."""

    def __init__(self, native: Table, routes: Sequence[Route]):
        self._native = native
        self._exact: dict[str, dict[str, list[Route]]] = {}
        self._templates: dict[int, list[tuple[list[str], dict[str, list[Route]]]]] = {}
        """By the number of slashes in the path."""
        by_path: dict[str, dict[str, list[Route]]] = {}
        for route in routes:
            by_path.setdefault(route.path, {}).setdefault(route.method, []).append(route)
        for path, methods in by_path.items():
            if "{" in path:
                self._templates.setdefault(path.count("/"), []).append((path.split("/"), methods))
            else:
                self._exact[path] = methods

    def find(self, method: str, path: str) -> HttpOperation:
        methods, names = self._match(path)
        candidates = methods.get("GET" if method == "HEAD" else method, [])
        if not candidates or (method == "HEAD" and any(route.consumes for route in candidates)):
            if not methods:
                return self._native.find(method, path)
            return self._native_operation(method, path)
        choices = [(route.fields, _handler(route, names)) for route in candidates]
        fields = NATIVE_FIELDS.get((candidates[0].method, path))
        if fields is not None:
            choices.append((fields, self._native.find(method, path).handler))
        if len(choices) == 1:
            return HttpOperation(candidates[0].name, method, path, choices[0][1])
        return HttpOperation(f"shared.{candidates[0].name.partition('.')[2]}", method, path, partial(_choose, choices))

    def allowed(self, path: str) -> list[str]:
        methods, _ = self._match(path)
        if not methods:
            return self._native.allowed(path)
        found = {*methods, "OPTIONS"}
        if "GET" in methods and not any(route.consumes for route in methods["GET"]):
            found.add("HEAD")
        with contextlib.suppress(NotFound):
            found.update(self._native.allowed(path))
        return sorted(found)

    def _native_operation(self, method: str, path: str) -> HttpOperation:
        """The native operation at a path that dialects have with other methods."""
        try:
            return self._native.find(method, path)
        except (NotFound, MethodNotAllowed):
            details = {"allow": self.allowed(path)}
            raise MethodNotAllowed(f"{method[:20]} is not allowed for this path", details=details) from None

    def _match(self, path: str) -> tuple[dict[str, list[Route]], Names]:
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        for template, methods in self._templates.get(path.count("/"), ()):
            names = _names(template, path.split("/"))
            if names is not None:
                return methods, names
        return {}, {}


def _names(template: list[str], segments: list[str]) -> Names | None:
    if len(template) != len(segments):
        return None
    names: Names = {}
    for expected, segment in zip(template, segments, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return names


def _handler(route: Route, names: Names) -> Handler:
    async def handle(edge: Edge, request: Request) -> Answer:
        try:
            if route.consumes:
                _check_site(request)
            return await route.handler(edge, request, names)
        except PenstockError as error:
            return route.render_error(error)

    return handle


def _check_site(request: Request) -> None:
    """Refuse pages of other sites. Browsers send `Sec-Fetch-Site` also without `Origin`; programs do not."""
    for name, value in request.fields.headers:
        if name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
            raise Forbidden("pages of other sites may not lease messages", details={"field": "sec-fetch-site"})


def _choose(choices: Sequence[tuple[frozenset[str], Handler]], edge: Edge, request: Request) -> Outcome:
    given = _fields(request)
    matching = [handler for fields, handler in choices if fields & given]
    if not matching:
        matching = [handler for fields, handler in choices if not fields]
    if len(matching) != 1:
        names = " or ".join(sorted("/".join(sorted(fields)) for fields, _ in choices if fields))
        raise InvalidRequest(f"this path has several operations: give the fields of exactly one, {names}")
    return matching[0](edge, request)


def _fields(request: Request) -> set[str]:
    if request.method in ("GET", "HEAD", "DELETE"):
        try:
            pairs = parse_qsl(
                request.query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError:
            raise InvalidRequest(
                "the query string is invalid: write names and values in percent-encoded UTF-8"
            ) from None
        return {name for name, _ in pairs}
    return {*parse_json(_fields_decoder, request.json_body())}
