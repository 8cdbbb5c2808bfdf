"""The web pages of a server: templates filled from replies of the public API.

A page can show and do nothing that an API call cannot: every view calls the API inside the process, with the
credentials of its request. Pages work without scripts; scripts add live numbers, charts and keyboard shortcuts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.dashboard.api import Ask
    from penstock.dashboard.visit import Page


class SiteOptions(NamedTuple):
    """Settings of the server for its pages."""

    environment: str = ""
    """The name in the bar on top; empty: there is no bar."""
    color: str = "red"
    masked: frozenset[str] = frozenset()
    """Names of fields and headers, in lower case, whose values are not shown."""
    secure: bool = False
    """The server has TLS itself. A proxy with TLS tells so by `x-forwarded-proto`."""


NO_OPTIONS = SiteOptions()
PREFIX = "/ui/"
LOGIN = "/ui/login"
STATIC = "/ui/static/"
SHARED_S = 1.0
"""Pages that are open several times share the renewal of their numbers for so long."""
SHARED_MAX = 64
_ASKED_BY = (b"accept-encoding", b"authorization", b"cookie", b"host", b"x-api-key", b"x-forwarded-proto")
"""Headers that the content of a page depends on."""


class DashboardSite:
    """Answers requests of browsers. The pages are loaded with the first request: many servers never show one."""

    def __init__(self, options: SiteOptions = NO_OPTIONS) -> None:
        self._options = options
        self._loaded = False
        self._shared: dict[tuple[object, ...], tuple[float, Page]] = {}

    def serves(self, path: str, accept: bytes) -> bool:
        """Whether a request belongs to the dashboard. `/` has a page for browsers and JSON for other clients."""
        return path.startswith(PREFIX) or (path == "/" and b"text/html" in accept)

    def is_open(self, path: str) -> bool:
        """Whether a page needs no credential: the login page and the files of pages."""
        return path == LOGIN or path.startswith(STATIC)

    async def respond(
        self, ask: Ask, visitor: str, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> Page:  # fmt: skip
        """`ask` calls the API as the visitor, whose name tells apart the pages of different visitors."""
        if not self._loaded:
            # In a thread: loading takes longer than the event loop may stand still.
            await asyncio.to_thread(_load)
            self._loaded = True
        from penstock.dashboard.site import respond

        if method != "GET" or (b"hx-request", b"true") not in headers:
            return await respond(ask, self._options, method, path, query, headers, body)
        key = visitor, path, query, *(pair for pair in headers if pair[0] in _ASKED_BY)
        now = asyncio.get_running_loop().time()
        shared = self._shared.get(key)
        if shared is not None and now - shared[0] < SHARED_S:
            return shared[1]
        page = await respond(ask, self._options, method, path, query, headers, body)
        self._shared = {each: kept for each, kept in self._shared.items() if now - kept[0] < SHARED_S}
        if len(self._shared) < SHARED_MAX:
            self._shared[key] = now, page
        return page


def _load() -> None:
    import_module("penstock.dashboard.site")
    import_module("penstock.dashboard.rendering").load()


__all__ = ["DashboardSite", "SiteOptions"]
