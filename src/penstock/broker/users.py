"""People as their administrators see them.

A person has one of three roles, which stand for scopes on all queues. To administer people a principal needs
`key.admin:*`, and it gives at most its own scopes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from penstock import limits
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.state.users import StoredUser
from penstock.errors import Forbidden, InvalidRequest
from penstock.runtime.view import ShardView
from penstock.security.principal import Principal
from penstock.security.roles import ROLES
from penstock.security.scopes import not_covered
from penstock.wire.users import UserChanges, UserRemovedReply, UserReply, UserRequest, UsersReply

_EMAIL = re.compile(limits.EMAIL_PATTERN)


class Hasher(Protocol):
    async def hash(self, password: str) -> str: ...


class Users:
    """The people of one shard. Without a hasher the server has no login, and adds none."""

    def __init__(self, view: ShardView, submit: Submit):
        self._view = view
        self._submit = submit
        self._hasher: Hasher | None = None
        self._on_changed: Callable[[str], None] = lambda _: None
        self._sessions: Callable[[str], int] = lambda _: 0

    def attach(
        self, hasher: Hasher, on_changed: Callable[[str], None], sessions: Callable[[str], int] = lambda _: 0
    ) -> None:
        """`on_changed` gets the email of a person whose role or password changed, or was removed; `sessions` tells
        how many sessions a person has."""
        self._hasher, self._on_changed, self._sessions = hasher, on_changed, sessions

    def find(self, email: str) -> StoredUser | None:
        return self._view.users().get(normal_email(email))

    def list(self, by: Principal | None = None) -> UsersReply:
        _demand(by)
        return UsersReply([self._shown(user) for _, user in sorted(self._view.users().items())])

    async def add(self, asked: UserRequest, by: Principal | None = None) -> UserReply:
        """`by` is the administrator; None is the server itself."""
        _demand(by, asked.role)
        email = normal_email(asked.email)
        if not _EMAIL.fullmatch(email):
            raise InvalidRequest(
                f"{asked.email[:100]!r} is not an email address like ada@example.com", details={"field": "email"}
            )
        hash = await self._required_hasher().hash(asked.password)
        await self._submit(commands.AddUser(email, asked.role, hash, by.id if by is not None else ""))
        return self._shown(self._view.user(email))

    async def change(self, email: str, changes: UserChanges, by: Principal | None = None) -> UserReply:
        """Sessions of the person end: the next login has the new role."""
        _demand(by)
        user = self._view.user(normal_email(email))
        _demand(by, user.role, changes.role)
        if changes.role is None and changes.password is None:
            raise InvalidRequest("name a new role or a new password")
        hasher = self._required_hasher()
        hash = await hasher.hash(changes.password) if changes.password is not None else ""
        await self._submit(commands.ChangeUser(user.email, changes.role or "", hash))
        self._on_changed(user.email)
        return self._shown(self._view.user(user.email))

    async def remove(self, email: str, by: Principal | None = None) -> UserRemovedReply:
        _demand(by)
        user = self._view.user(normal_email(email))
        _demand(by, user.role)
        await self._submit(commands.RemoveUser(user.email))
        self._on_changed(user.email)
        return UserRemovedReply(user.email, True)

    def _required_hasher(self) -> Hasher:
        if self._hasher is None:
            raise Forbidden("this server has no login; start it with --auth keys")
        return self._hasher

    def _shown(self, user: StoredUser) -> UserReply:
        return UserReply(
            user.email, user.role, [str(scope) for scope in ROLES[user.role]], user.created_at, user.changed_at,
            user.creator or None, self._sessions(user.email),
        )  # fmt: skip


def normal_email(text: str) -> str:
    """Emails are compared without case, as people write them."""
    return text.strip().lower()


def _demand(by: Principal | None, *roles: str | None) -> None:
    if by is None:
        return
    by.demand_everywhere("key.admin")
    for role in filter(None, roles):
        missing = not_covered(ROLES[role], by.scopes)
        if missing:
            shown = ", ".join(map(str, missing))
            raise Forbidden(
                f"a person can have at most the scopes of the credential that administers them, which lacks {shown}",
                details={"scopes": [str(scope) for scope in missing]},
            )
