"""One request of a browser and its page."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from penstock.dashboard import NO_OPTIONS, SiteOptions
from penstock.dashboard.api import Api, Headers
from penstock.dashboard.rendering import render
from penstock.dashboard.snippets import Snippets, snippets
from penstock.security.scopes import Scope, parse_scope_text

FORM_BYTES_MAX = 4 * 2**20
FORM_FIELDS_MAX = 1_000
COMPRESS_ABOVE_BYTES = 1_024
HTML = b"text/html; charset=utf-8"
SAFE_HEADERS: Headers = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # With `no-referrer` browsers would send `Origin: null` with forms, which the server refuses.
    (b"referrer-policy", b"same-origin"),
)
_ACCESS_PAGES = (
    ("key.admin", "/ui/keys", "Keys"), ("key.admin", "/ui/users", "Users"), ("audit.read", "/ui/audit", "Audit"),
)  # fmt: skip
NOT_STORED: Headers = ((b"cache-control", b"no-store"),)


class Page(NamedTuple):
    status: int
    body: bytes
    content_type: bytes = HTML
    headers: Headers = SAFE_HEADERS + NOT_STORED


class BadForm(Exception):
    """The query or the form cannot be read."""


class Visit:
    """A request to the dashboard."""

    def __init__(
        self, api: Api, method: str, path: str, query: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes,
        options: SiteOptions = NO_OPTIONS,
    ):  # fmt: skip
        """Raises BadForm."""
        self.api = api
        self.options = options
        self.method = method
        self.path = path
        self.query = _single(_pairs(query))
        self.names: Mapping[str, str] = {}
        """Parts of the path that its route names."""
        pairs = _pairs(body) if method == "POST" else []
        self.form = _single(pairs)
        self.chosen = [value for name, value in pairs if name == "ids"]
        """Ids of selected rows."""
        named = dict(headers)
        self.is_fragment = named.get(b"hx-request") == b"true"
        """The request refreshes the live part of a page that is open."""
        self.session: Mapping[str, Any] = {"kind": "none", "scopes": []}
        """The identity of the visitor, as `/v1/session` has it."""
        self._scopes: tuple[Scope, ...] = ()
        self._host = named.get(b"host", b"").decode("latin-1")
        self._secure = options.secure or named.get(b"x-forwarded-proto") == b"https"
        self._gzip = b"gzip" in named.get(b"accept-encoding", b"")
        self._cookies = _cookies(named.get(b"cookie", b""))

    def know(self, session: Mapping[str, Any]) -> None:
        self.session = session
        self._scopes = tuple(map(parse_scope_text, session["scopes"]))

    def may(self, verb: str, queue: str | None = None) -> bool:
        """Whether the API would allow the visitor to do this: to the queue, or (without one) to any queue at all.

        Pages offer nothing else. The API decides, whatever a page has offered.
        """
        return any(scope.verb == verb and (queue is None or scope.matches(queue)) for scope in self._scopes)

    @property
    def access_pages(self) -> tuple[tuple[str, str], ...]:
        """The pages about keys, people and the audit trail that the visitor may see, with their names."""
        if self.session["kind"] == "none":
            return ()
        return tuple((path, name) for verb, path, name in _ACCESS_PAGES if self.may(verb))

    @property
    def code(self) -> Snippets:
        """Code for the visitor to paste."""
        return snippets(self._host, secure=self._secure, needs_key=self.session["kind"] != "none")

    @property
    def queue(self) -> str:
        return "/".join(self.names[name] for name in ("ns", "task", "name"))

    @property
    def pins(self) -> list[str]:
        """The queues that the visitor keeps on top."""
        return [name for name in self._cookies.get("penstock_pins", "").split("~") if name]

    def url(self, **changes: Any) -> str:
        """The URL of this page with changed query parameters; None removes a parameter."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value not in (None, "")}
        return quote(self.path) + (f"?{urlencode(query)}" if query else "")

    def page(self, template: str, status: int = 200, **context: Any) -> Page:
        theme = self._cookies.get("penstock_theme", "")
        context["shell"] = "fragment.html" if self.is_fragment else "layout.html"
        text = render(template, visit=self, theme=theme if theme in ("light", "dark") else "", **context)
        return self.sent(Page(status, text.encode("utf-8", "replace")))

    def sent(self, page: Page) -> Page:
        """The page, compressed if the browser accepts that and it is worth the time."""
        if not self._gzip or len(page.body) < COMPRESS_ABOVE_BYTES:
            return page
        headers = (*page.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
        return page._replace(body=gzip.compress(page.body, 4, mtime=0), headers=headers)

    def redirect(self, target: str, **query: str) -> Page:
        """Answer a form that was accepted: the browser continues with a GET."""
        location = quote(target) + (f"?{urlencode(query)}" if query else "")
        return self.moved(location)

    def moved(self, location: str) -> Page:
        """Continue at this URL, with the cookies that the API set meanwhile."""
        headers = (*SAFE_HEADERS, *NOT_STORED, *self.api.cookies, (b"location", location.encode()))
        return Page(303, b"", headers=headers)


def _pairs(text: bytes) -> list[tuple[str, str]]:
    if len(text) > FORM_BYTES_MAX:
        raise BadForm("the form is too large")
    try:
        decoded = text.decode()
        return parse_qsl(decoded, keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        raise BadForm("the form or the query is not percent-encoded UTF-8") from None


def _single(pairs: list[tuple[str, str]]) -> dict[str, str]:
    # Browsers end lines of text fields with CR LF.
    return {name: value.replace("\r\n", "\n").strip() for name, value in pairs}


def _cookies(text: bytes) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(text.decode("latin-1")).items()}
    except CookieError:
        return {}
