"""Which operation is meant where more than one interface is served on one address.

A path that only one of them has is found as ever. A path that several have is told by what comes with it: each names
the fields of its body (or of its query) that no other has, and what fits none of them, or more than one, is refused.
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
from penstock.transports.http.routes import Operation, Table
from penstock.wire.parse import parse_json

Names: TypeAlias = dict[str, str]
"""What stands in the path where its template has `{name}`."""
RouteHandler: TypeAlias = Callable[[Edge, Request, Names], Awaitable[Answer]]

_QUERY_FIELDS_MAX = 32
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Route(NamedTuple):
    """One operation of a dialect."""

    name: str
    method: str
    path: str
    handler: RouteHandler
    marks: frozenset[str] = frozenset()
    """Fields by which it is told from others with the same method and path; none: it takes what no other claims."""
    refusal: Callable[[PenstockError], Answer] = error_answer
    """How this dialect says no."""
    takes: bool = False
    """A GET that takes messages. It is no HEAD, and not for pages of other sites, whose GETs carry no origin."""


OURS: dict[tuple[str, str], frozenset[str]] = {
    ("POST", "/v1/ack"): frozenset({"receipts"}),
    ("POST", "/v1/nack"): frozenset({"receipts"}),
    ("POST", "/v1/extend"): frozenset({"receipts"}),
    ("GET", "/v1/stats"): frozenset({"queue"}),
    ("GET", "/v1/peek"): frozenset({"queue"}),
}
"""By what our own operations are told from a dialect's, where both are at one path."""


class Router:
    """A table of operations: those of the dialects, and behind them those that are always there."""

    def __init__(self, ours: Table, routes: Sequence[Route]):
        self._ours = ours
        self._exact: dict[str, dict[str, list[Route]]] = {}
        self._templates: dict[int, list[tuple[list[str], dict[str, list[Route]]]]] = {}
        """By the number of slashes, which tells most paths from all of them."""
        by_path: dict[str, dict[str, list[Route]]] = {}
        for route in routes:
            by_path.setdefault(route.path, {}).setdefault(route.method, []).append(route)
        for path, methods in by_path.items():
            if "{" in path:
                self._templates.setdefault(path.count("/"), []).append((path.split("/"), methods))
            else:
                self._exact[path] = methods

    def find(self, method: str, path: str) -> Operation:
        methods, names = self._match(path)
        candidates = methods.get("GET" if method == "HEAD" else method, [])
        if not candidates or (method == "HEAD" and any(route.takes for route in candidates)):
            if not methods:
                return self._ours.find(method, path)
            return self._ours_beside(method, path)
        choices = [(route.marks, _handler(route, names)) for route in candidates]
        marks = OURS.get((candidates[0].method, path))
        if marks is not None:
            choices.append((marks, self._ours.find(method, path).handler))
        if len(choices) == 1:
            return Operation(candidates[0].name, method, path, choices[0][1])
        return Operation(f"shared.{candidates[0].name.partition('.')[2]}", method, path, partial(_choose, choices))

    def allowed(self, path: str) -> list[str]:
        methods, _ = self._match(path)
        if not methods:
            return self._ours.allowed(path)
        found = {*methods, "OPTIONS"}
        if "GET" in methods and not any(route.takes for route in methods["GET"]):
            found.add("HEAD")
        with contextlib.suppress(NotFound):
            found.update(self._ours.allowed(path))
        return sorted(found)

    def _ours_beside(self, method: str, path: str) -> Operation:
        """The path is a dialect's; the method may be ours."""
        try:
            return self._ours.find(method, path)
        except (NotFound, MethodNotAllowed):
            details = {"allow": self.allowed(path)}
            raise MethodNotAllowed(f"{method[:20]} is not possible here", details=details) from None

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
            if route.takes:
                _check_site(request)
            return await route.handler(edge, request, names)
        except PenstockError as error:
            return route.refusal(error)

    return handle


def _check_site(request: Request) -> None:
    """Browsers say where a request comes from, also where it has no `Origin`. Programs do not."""
    for name, value in request.fields.headers:
        if name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
            raise Forbidden("pages of other sites may not take messages", details={"field": "sec-fetch-site"})


def _choose(choices: Sequence[tuple[frozenset[str], Handler]], edge: Edge, request: Request) -> Outcome:
    fields = _fields(request)
    fitting = [handler for marks, handler in choices if marks & fields]
    if not fitting:
        fitting = [handler for marks, handler in choices if not marks]
    if len(fitting) != 1:
        names = " or ".join(sorted("/".join(sorted(marks)) for marks, _ in choices if marks))
        raise InvalidRequest(f"this path has several meanings: give the fields of exactly one, {names}")
    return fitting[0](edge, request)


def _fields(request: Request) -> set[str]:
    if request.method in ("GET", "HEAD", "DELETE"):
        try:
            pairs = parse_qsl(
                request.query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError:
            raise InvalidRequest("the query string cannot be read: names and values in percent-encoded UTF-8") from None
        return {name for name, _ in pairs}
    return {*parse_json(_fields_decoder, request.json_body())}
