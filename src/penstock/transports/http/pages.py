"""Web pages on the port of the API. The server sets the site; this package does not know its pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote

from penstock.errors import Unauthenticated
from penstock.security.quotas import principal_name
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request

LOGIN_PATH = "/ui/login"
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
Ask: TypeAlias = Callable[[str, str, Headers, bytes], Awaitable[Answer]]
"""Method, target, headers and body of a call of the API, as the visitor of the page."""


class Site(Protocol):
    def serves(self, path: str, accept: bytes) -> bool:
        """Whether a request is for a page and not for an operation."""

    def is_open(self, path: str) -> bool:
        """Whether a page needs no credential: the login page and its files."""

    def respond(
        self, ask: Ask, visitor: str, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> Coroutine[Any, Any, tuple[int, bytes, bytes, Headers]]:  # fmt: skip
        """Status, body, content type and headers of a page. Pages of different visitors differ."""


async def page(site: Site, ask: Ask, request: Request) -> Answer:
    visitor = "" if request.principal is None else principal_name(request.principal)
    found = await site.respond(
        ask, visitor, request.method, request.path, request.query, request.fields.headers, request.body()
    )
    return Answer(*found)


def to_login(request: Request, refusal: Unauthenticated) -> Answer:
    """Send a browser without a session to the login page, and from there back to the page."""
    target = request.path + (f"?{request.query.decode('latin-1')}" if request.query else "")
    location = f"{LOGIN_PATH}?next={quote(target, safe='')}" if request.method in ("GET", "HEAD") else LOGIN_PATH
    headers: Headers = ((b"cache-control", b"no-store"), (b"location", location.encode()))
    if (b"hx-request", b"true") in request.fields.headers:
        # A part of an open page is renewed by a script: the whole page must change.
        return Answer(
            401, refusal.message.encode(), b"text/plain; charset=utf-8", ((b"hx-redirect", LOGIN_PATH.encode()),)
        )
    return Answer(303, b"", b"text/html; charset=utf-8", headers)
