"""Sessions of people, and one-use tickets: random texts that stand for a principal for a while.

Both are in the memory of the process: a restart ends them. Tables are looked up by the hash of the text, so time
reveals nothing about texts that exist.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable

from penstock import limits
from penstock.errors import RateLimited
from penstock.security.principal import Principal
from penstock.security.quotas import principal_name
from penstock.security.roles import ROLES
from penstock.security.secret import Secret

TICKET_PREFIX = "pst_"


class UserSession(Principal):
    """A person that has logged in. Each login is a principal of its own, so that a logout ends its streams alone."""

    __slots__ = ("csrf", "role", "seen_s")

    def __init__(self, email: str, role: str, expires_at_ms: int, csrf: Secret[str], now_s: float):
        super().__init__("user", email, email, ROLES[role], expires_at_ms)
        self.role = role
        self.csrf = csrf
        """A page of another origin does not know it, so it cannot act with the cookie of this session."""
        self.seen_s = now_s


class UserSessions:
    """The open sessions, by the hash of their cookie; the least recently used first."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, UserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, email: str, role: str, now_ms: int, now_s: float) -> tuple[Secret[str], UserSession]:
        """The value of the cookie, and the session."""
        cookie = secrets.token_urlsafe(32)
        session = UserSession(
            email, role, now_ms + limits.SESSION_S_MAX * 1000, Secret(secrets.token_urlsafe(32)), now_s
        )
        self._open[_hash(cookie)] = session
        return Secret(cookie), session

    def trim(self) -> list[UserSession]:
        """Forget sessions above the limit: the oldest one of the account that has most, so that the logins of one
        account do not end the sessions of the others."""
        ended = []
        while len(self._open) > limits.SESSIONS_MAX:
            largest, _ = Counter(session.id for session in self._open.values()).most_common(1)[0]
            oldest = next(name for name, session in self._open.items() if session.id == largest)
            ended.append(self._open.pop(oldest))
        return ended

    def find(self, cookie: str, now_ms: int, now_s: float) -> UserSession | None:
        """None if there is no such session, or if its time is over."""
        name = _hash(cookie)
        session = self._open.get(name)
        if session is None or _is_over(session, now_ms, now_s):
            return None
        session.seen_s = now_s
        self._open.move_to_end(name)
        return session

    def of(self, email: str) -> int:
        return sum(session.id == email for session in self._open.values())

    def end(self, ends: Callable[[UserSession], bool]) -> list[UserSession]:
        """Forget the sessions for which `ends` is true, and return them."""
        ended = {name: session for name, session in self._open.items() if ends(session)}
        for name in ended:
            del self._open[name]
        return list(ended.values())

    def expire(self, now_ms: int, now_s: float) -> list[UserSession]:
        return self.end(lambda session: _is_over(session, now_ms, now_s))


def _is_over(session: UserSession, now_ms: int, now_s: float) -> bool:
    return session.expires_at_ms <= now_ms or now_s - session.seen_s > limits.SESSION_IDLE_S_MAX


class Tickets:
    """Tickets that open one WebSocket each, for clients that can set no header."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        """Open tickets of each identity."""

    def __len__(self) -> int:
        return len(self._open)

    def issue(self, principal: Principal, now_ms: int) -> tuple[str, int]:
        """The ticket, and the time at which it ends. Raises RateLimited if the identity has too many: no ticket takes
        the place of another one."""
        name = principal_name(principal)
        while self._open and next(iter(self._open.values()))[1] <= now_ms:
            self._forget(next(iter(self._open)))
        if self._counts[name] >= limits.TICKETS_EACH_MAX or len(self._open) >= limits.TICKETS_MAX:
            raise RateLimited(
                f"{min(self._counts[name], limits.TICKETS_EACH_MAX)} tickets of this credential are unused; each ends "
                "30 s after it was made",
                retry_after_ms=1_000, details={"limit": "tickets"},
            )  # fmt: skip
        ticket, until = f"{TICKET_PREFIX}{secrets.token_urlsafe(32)}", now_ms + limits.TICKET_MS
        self._open[_hash(ticket)] = principal, until
        self._counts[name] += 1
        return ticket, until

    def take(self, ticket: str, now_ms: int) -> Principal | None:
        """The principal of an unused ticket, which is used from now on."""
        principal, until = self._forget(_hash(ticket))
        return principal if until > now_ms else None

    def _forget(self, name: bytes) -> tuple[Principal | None, int]:
        principal, until = self._open.pop(name, (None, 0))
        if principal is not None:
            self._counts[principal_name(principal)] -= 1
            if not self._counts[principal_name(principal)]:
                del self._counts[principal_name(principal)]
        return principal, until

    def forget(self, principals: set[Principal], now_ms: int) -> None:
        """Forget tickets that are over, and those of principals that are accepted no longer."""
        for name, (principal, until) in list(self._open.items()):
            if until <= now_ms or principal in principals:
                self._forget(name)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
