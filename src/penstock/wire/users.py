"""People that log in, their sessions, and tickets, in requests and replies."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.wire.messages import Request

Role: TypeAlias = Literal["viewer", "operator", "admin"]
Password: TypeAlias = Annotated[str, Meta(min_length=limits.PASSWORD_CHARS_MIN, max_length=limits.PASSWORD_CHARS_MAX)]
GivenPassword: TypeAlias = Annotated[str, Meta(max_length=limits.PASSWORD_CHARS_MAX)]
"""A password to compare: it may be older than the rule for new ones."""


class UserRequest(Request):
    email: str
    role: Role
    password: Password


class UserChanges(Request):
    """Another role, or another password, which ends the sessions of the person."""

    role: Role | None = None
    password: Password | None = None


class UserNamed(Request):
    email: str


class UserReply(msgspec.Struct):
    email: str
    role: str
    scopes: list[str]
    created_at_ms: int
    changed_at_ms: int
    creator: str | None
    sessions: int
    """Sessions that are open now."""


class UsersReply(msgspec.Struct):
    users: list[UserReply]


class UserRemovedReply(msgspec.Struct):
    email: str
    removed: bool


class LoginRequest(Request):
    email: Annotated[str, Meta(max_length=320)]
    password: GivenPassword


class PasswordRequest(Request):
    """A new password of the person that asks."""

    password: GivenPassword
    """The present one."""
    new_password: Password


class SessionReply(msgspec.Struct):
    """The identity behind a request."""

    kind: str
    """`user`, `key`, `jwt` or `certificate`; `none` if the server asks for no credentials."""
    id: str
    """The email, the id of the key, or the subject."""
    name: str
    scopes: list[str]
    expires_at_ms: int | None
    role: str | None = None
    csrf: str | None = None
    """Of a session: the value of `X-CSRF-Token` in requests that change something."""


class SessionEndedReply(msgspec.Struct):
    ended: bool


class TicketReply(msgspec.Struct):
    ticket: str
    """Opens one WebSocket: `/v1/ws?ticket=…`."""
    expires_at_ms: int
