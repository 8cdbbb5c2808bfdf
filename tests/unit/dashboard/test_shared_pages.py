"""Pages that are open several times share the renewal of their numbers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.dashboard import DashboardSite


class Answered(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


SESSION = b'{"kind": "none", "scopes": ["metrics:*"]}'


RENEWAL = ((b"hx-request", b"true"), (b"accept", b"text/html"))


def test_renewals_of_one_page_are_answered_together_for_each_visitor():
    calls: list[str] = []

    async def ask(method, target, headers, body):
        if target == "/v1/session":
            return Answered(200, SESSION)
        calls.append(target)
        return Answered(200, b'{"connections": [], "total": 0, "grpc": 0}')

    async def story():
        site = DashboardSite()
        for _ in range(20):
            page = await site.respond(ask, "", "GET", "/ui/connections", b"", RENEWAL, b"")
            assert page.status == 200 and b"0 connections" in page.body
        assert len(calls) == 1
        await site.respond(ask, "", "GET", "/ui/connections", b"", (*RENEWAL, (b"cookie", b"session=other")), b"")
        await site.respond(ask, "user:ada@example.com", "GET", "/ui/connections", b"", RENEWAL, b"")
        assert len(calls) == 3
        await site.respond(ask, "", "GET", "/ui/connections", b"", RENEWAL[1:], b"")
        assert len(calls) == 4, "a page that is opened is always new"

    asyncio.run(story())


def test_front_page_belongs_to_the_dashboard_only_for_browsers():
    site = DashboardSite()
    assert site.serves("/", b"text/html,*/*") and site.serves("/ui/queues", b"")
    assert not site.serves("/", b"*/*") and not site.serves("/v1/queues", b"text/html")
