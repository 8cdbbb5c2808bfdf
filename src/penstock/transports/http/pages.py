"""Web pages on the port of the API. The server sets the site; this package does not know its pages."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from penstock.transports.http.answer import Answer
from penstock.transports.http.request import Request


class Site(Protocol):
    def serves(self, path: str, accept: bytes) -> bool:
        """Whether a request is for a page and not for an operation."""

    def respond(
        self, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> Coroutine[Any, Any, tuple[int, bytes, bytes, tuple[tuple[bytes, bytes], ...]]]:
        """Status, body, content type and headers of a page."""


async def page(site: Site, request: Request) -> Answer:
    found = await site.respond(request.method, request.path, request.query, request.fields.headers, request.body())
    return Answer(*found)
