"""Operations about the identity behind a request: login, logout, tickets, limits."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.errors import Forbidden, NotFound
from penstock.security.principal import Principal
from penstock.security.scopes import VERBS
from penstock.security.sessions import UserSession
from penstock.transports.auth import Authenticator
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.transports.login import DEVICE_COOKIE, Login, cookie_header, cookie_of
from penstock.wire.limits import AccessLimitsReply
from penstock.wire.parse import parse_json
from penstock.wire.users import LoginRequest, PasswordRequest, SessionEndedReply, SessionReply, TicketReply

_login_decoder = msgspec.json.Decoder(LoginRequest)
_password_decoder = msgspec.json.Decoder(PasswordRequest)


def session(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    principal = request.principal
    if principal is None:
        return json_answer(SessionReply("none", "", "", [f"{verb}:*" for verb in VERBS], None))
    return json_answer(_shown(principal))


async def login(edge: Edge, request: Request) -> Answer:
    asked = parse_json(_login_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    door, address = _login_of(edge), request.peer.address
    _auth_of(edge).quotas.demand_address(address)
    return await _begin(request, door, asked.email, asked.password)


async def change_password(edge: Edge, request: Request) -> Answer:
    """The cookie of the answer is that of a new session."""
    asked = parse_json(_password_decoder, request.json_body(limits.CONFIG_BYTES_MAX))
    door, principal = _login_of(edge), request.principal
    if not isinstance(principal, UserSession):
        raise Forbidden("only a person who has logged in has a password to change")
    await door.change_password(principal, asked.password, asked.new_password, request.peer.address)
    return await _begin(request, door, principal.id, asked.new_password)


async def logout(edge: Edge, request: Request) -> Answer:
    ended = isinstance(request.principal, UserSession)
    if isinstance(request.principal, UserSession):
        await _login_of(edge).end(request.principal)
    gone = cookie_header("", secure=_browser(request).is_secure, max_age_s=0)
    return json_answer(SessionEndedReply(ended))._replace(headers=(gone,))


def create_ticket(edge: Edge, request: Request) -> Answer:
    if request.principal is None:
        raise NotFound("this server asks for no credentials, so a WebSocket needs no ticket")
    return json_answer(TicketReply(*_auth_of(edge).issue_ticket(request.principal)), 201)


def access_limits(edge: Edge, request: Request) -> Answer:  # noqa: ARG001
    """The limits that are configured, and how often each refused something."""
    if edge.auth is None:
        return json_answer(AccessLimitsReply({}, {}))
    quotas = edge.auth.quotas
    configured = {
        name: str(value) if isinstance(value, tuple) else value
        for name, value in quotas.bounds._asdict().items()
    }  # fmt: skip
    return json_answer(AccessLimitsReply(configured, dict(quotas.refused)))


async def _begin(request: Request, door: Login, email: str, password: str) -> Answer:
    browser = _browser(request)
    device = cookie_of(browser.fields.headers, DEVICE_COOKIE)
    cookie, opened = await door.begin(email, password, request.peer.address, device)
    header = cookie_header(cookie.reveal(), secure=browser.is_secure, max_age_s=limits.SESSION_S_MAX)
    known = cookie_header(
        door.device_token(opened), secure=browser.is_secure, max_age_s=limits.DEVICE_TOKEN_S, name=DEVICE_COOKIE
    )
    return json_answer(_shown(opened), 201)._replace(headers=(header, known, (b"cache-control", b"no-store")))


def _browser(request: Request) -> Request:
    """The request that a browser sent: this one, or that for the page that this one is made for."""
    return request.made_for or request


def _shown(principal: Principal) -> SessionReply:
    person = principal if isinstance(principal, UserSession) else None
    return SessionReply(
        principal.kind, principal.id, principal.name, [str(scope) for scope in principal.scopes],
        principal.expires_at_ms or None, person.role if person else None, person.csrf.reveal() if person else None,
    )  # fmt: skip


def _auth_of(edge: Edge) -> Authenticator:
    if edge.auth is None:
        raise Forbidden("this server asks for no credentials, so there is no login; start it with --auth keys")
    return edge.auth


def _login_of(edge: Edge) -> Login:
    found = _auth_of(edge).login
    if found is None:
        raise Forbidden("this server has no login for people")
    return found
