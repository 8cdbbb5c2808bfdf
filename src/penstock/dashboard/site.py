"""The routes of the dashboard: path -> view."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from penstock.dashboard import SiteOptions
from penstock.dashboard.api import Api, ApiError, Ask, Headers
from penstock.dashboard.assets import assets
from penstock.dashboard.views import (
    access,
    audit,
    dead_letters,
    groups,
    insight,
    jump,
    keys,
    live,
    message,
    messages,
    overview,
    publish,
    queue,
    queues,
    schedules,
    settings,
    users,
    webhooks,
)
from penstock.dashboard.visit import SAFE_HEADERS, BadForm, Page, Visit

View: TypeAlias = Callable[[Visit], Awaitable[Page]]

QUEUE = r"/ui/q/(?P<ns>[^/]+)/(?P<task>[^/]+)/(?P<name>[^/]+)"

ROUTES: tuple[tuple[str, View], ...] = (
    ("/", overview.show),
    ("/ui/jump", jump.find),
    ("/ui/queues", queues.show),
    ("/ui/queues/new", queues.create),
    ("/ui/queues/pin", queues.pin),
    (QUEUE, queue.show),
    (f"{QUEUE}/purge", queue.purge),
    (f"{QUEUE}/delete", queue.delete),
    (f"{QUEUE}/settings", settings.show),
    (f"{QUEUE}/groups", groups.create),
    (f"{QUEUE}/groups/seek", groups.seek),
    (f"{QUEUE}/groups/delete", groups.delete),
    (f"{QUEUE}/publish", publish.show),
    (f"{QUEUE}/messages", messages.show),
    (f"{QUEUE}/messages/(?P<id>.+)/timeline", message.timeline),
    (f"{QUEUE}/messages/(?P<id>.+)/cancel", message.cancel),
    (f"{QUEUE}/messages/(?P<id>.+)/reschedule", message.reschedule),
    (f"{QUEUE}/messages/(?P<id>.+)/edit", publish.edit),
    (f"{QUEUE}/messages/(?P<id>.+)", message.show),
    (f"{QUEUE}/dead", dead_letters.show),
    (f"{QUEUE}/dead/redrive", dead_letters.redrive),
    (f"{QUEUE}/dead/stop", dead_letters.stop),
    (f"{QUEUE}/dead/delete", dead_letters.delete),
    (f"{QUEUE}/dead/export", dead_letters.export),
    (f"{QUEUE}/scheduled", schedules.scheduled),
    ("/ui/dead", dead_letters.all_queues),
    ("/ui/scheduled", schedules.scheduled_queues),
    ("/ui/schedules", schedules.show),
    ("/ui/schedules/new", schedules.edit),
    ("/ui/schedules/s/(?P<schedule>.+)/(?P<act>pause|resume|run|delete)", schedules.act),
    ("/ui/schedules/s/(?P<schedule>.+)", schedules.detail),
    ("/ui/webhooks", webhooks.show),
    ("/ui/webhooks/new", webhooks.create),
    ("/ui/webhooks/w/(?P<webhook>[^/]+)", webhooks.detail),
    ("/ui/webhooks/w/(?P<webhook>[^/]+)/(?P<act>pause|resume|rotate|test|resend|delete)", webhooks.act),
    ("/ui/live", live.show),
    ("/ui/connections", insight.connections),
    ("/ui/analytics", insight.analytics),
    ("/ui/login", access.login),
    ("/ui/logout", access.logout),
    ("/ui/password", access.password),
    ("/ui/keys", keys.show),
    ("/ui/keys/new", keys.create),
    ("/ui/keys/(?P<key>[^/]+)/(?P<act>rotate|revoke)", keys.act),
    ("/ui/users", users.show),
    ("/ui/users/new", users.add),
    ("/ui/users/(?P<email>[^/]+)/(?P<act>change|remove)", users.act),
    ("/ui/audit", audit.show),
)
"""(regular expression of the whole path, view)."""

_COMPILED = [(re.compile(pattern), view) for pattern, view in ROUTES]


async def respond(
    ask: Ask, options: SiteOptions, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
) -> Page:  # fmt: skip
    """The page of a request. A refused call of the API becomes an error page."""
    if path.startswith("/ui/static/"):
        return _asset(path.removeprefix("/ui/static/"), headers)
    api = Api(ask)
    try:
        visit = Visit(api, method, path, query, headers, body, options)
    except BadForm as error:
        return Page(400, str(error).encode(), b"text/plain; charset=utf-8")
    if "csrf" in visit.form:
        # The API compares it with that of the session, in each call that changes something.
        api = visit.api = Api(ask, ((b"x-csrf-token", visit.form["csrf"].encode()),))
    if method not in ("GET", "HEAD", "POST"):
        return visit.page("problem.html", 405, title="Not possible", message=f"{method[:20]} is not possible here")
    for pattern, view in _COMPILED:
        if found := pattern.fullmatch(path):
            visit.names = found.groupdict()
            try:
                if view is not access.login:
                    visit.know(await api.get("/v1/session"))
                return await view(visit)
            except ApiError as error:
                return visit.page("problem.html", error.status, title=error.code, message=error.message)
    return visit.page("problem.html", 404, title="Not found", message=f"There is no page at {path[:200]}")


def _asset(name: str, headers: Sequence[tuple[bytes, bytes]]) -> Page:
    asset = assets().get(name)
    if asset is None:
        return Page(404, b"there is no such file", b"text/plain; charset=utf-8")
    kept: Headers = (*SAFE_HEADERS, (b"cache-control", b"public, max-age=31536000, immutable"))
    if b"gzip" in dict(headers).get(b"accept-encoding", b""):
        kept = (*kept, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
        return Page(200, asset.compressed, asset.content_type, kept)
    return Page(200, asset.body, asset.content_type, kept)
