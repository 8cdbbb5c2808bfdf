"""Logins of people: a password becomes a session, which a browser sends as a cookie.

A password costs 20 ms of a core and 19 MiB to check, so two are checked at once, a few wait, and the rest are refused.
Wrong passwords are counted per account and per address. While an address must wait, nothing of it is checked; while an
account must wait, nothing is checked from addresses that had it wrong. A browser in which the account has logged in
before is counted on its own (`security/devices.py`), so that no stranger keeps a person out. An unknown account takes
as long as a wrong password, and gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from penstock import limits
from penstock.broker.audit import AuditTrail
from penstock.broker.users import normal_email
from penstock.clock import Clock
from penstock.errors import Forbidden, RateLimited, Unauthenticated
from penstock.security.addresses import counted_address
from penstock.security.buckets import FailureBackoff
from penstock.security.passwords import PasswordHashes
from penstock.security.secret import Secret
from penstock.security.sessions import UserSession, UserSessions
from penstock.wire.users import UserChanges

if TYPE_CHECKING:
    from penstock.broker.service import Broker

P = ParamSpec("P")
T = TypeVar("T")

COOKIE = "penstock_session"
DEVICE_COOKIE = "penstock_device"
CSRF_HEADER = b"x-csrf-token"


class Login:
    """`on_ended` gets the sessions that are accepted no longer."""

    def __init__(
        self, broker: Broker, hashes: PasswordHashes, clock: Clock, audit: AuditTrail | None, failures_per_minute: int,
        on_ended: Callable[[list[UserSession]], None],
    ):  # fmt: skip
        self._broker = broker
        self._hashes = hashes
        self._clock = clock
        self._audit = audit
        self._on_ended = on_ended
        self._sessions = UserSessions()
        self._addresses = FailureBackoff(failures_per_minute)
        self._accounts = FailureBackoff(failures_per_minute)
        self._devices = FailureBackoff(failures_per_minute)
        self._failed_at: OrderedDict[tuple[str, str], float] = OrderedDict()
        """(account, address) -> the time of the last wrong password."""
        self._checks = asyncio.Semaphore(limits.PASSWORD_CHECKS_MAX)
        self._waiting = 0
        broker.users.attach(self, self._end_of, self._sessions.of)

    async def hash(self, password: str) -> str:
        return await self._in_thread(self._hashes.hash, password)

    async def begin(
        self, email: str, password: str, address: str, device: str | None = None
    ) -> tuple[Secret[str], UserSession]:
        """The value of the cookie, and the session. `device` is the token of an earlier login. Raises Unauthenticated
        or RateLimited."""
        account = normal_email(email)
        known = None if device is None else self._hashes.devices.device(device, account, self._clock.now_ms())
        checked = await self._check(account, password, counted_address(address), known)
        user = self._broker.users.find(account)
        if user is None or user.hash != checked:
            raise _refused()  # removed, or given another password, while this one was checked
        cookie, session = self._sessions.begin(user.email, user.role, self._clock.now_ms(), self._clock.monotonic())
        self._on_ended(self._sessions.trim())
        if self._audit is not None:
            await self._audit.write(session, "login", user.email, "ok")
        return cookie, session

    async def change_password(self, session: UserSession, password: str, new: str, address: str) -> None:
        """All sessions of the person end, also this one."""
        # The session is the proof that a device token gives elsewhere.
        await self._check(session.id, password, counted_address(address), f"account {session.id}")
        await self._broker.users.change(session.id, UserChanges(password=new))
        if self._audit is not None:
            await self._audit.write(session, "change_password", session.id, "ok")

    def device_token(self, session: UserSession) -> str:
        """For the browser of this session."""
        return self._hashes.devices.issue(session.id, self._clock.now_ms())

    def find(self, cookie: str) -> UserSession | None:
        return self._sessions.find(cookie, self._clock.now_ms(), self._clock.monotonic())

    async def end(self, session: UserSession) -> None:
        self._on_ended(self._sessions.end(lambda each: each is session))
        if self._audit is not None:
            await self._audit.write(session, "logout", session.id, "ok")

    def end_expired(self) -> None:
        self._on_ended(self._sessions.expire(self._clock.now_ms(), self._clock.monotonic()))

    def _end_of(self, email: str) -> None:
        self._on_ended(self._sessions.end(lambda each: each.id == email))

    async def _check(self, account: str, password: str, address: str, device: str | None) -> str:
        """The hash that the password was compared with. Raises Unauthenticated or RateLimited."""
        wait_s = self._wait_s(account, address, device)
        if wait_s:
            raise _too_many(wait_s)
        user = self._broker.users.find(account)
        checked = await self._in_thread(self._hashes.verify, None if user is None else user.hash, password)
        if checked and user is not None:
            return user.hash
        if self._audit is not None:
            # A text that is the name of no account may be a password in the wrong field.
            self._audit.note(None, "login", "" if user is None else account, Unauthenticated.code)
        wait_s = self._failed(account, address, device)
        raise _too_many(wait_s) if wait_s else _refused()

    def _wait_s(self, account: str, address: str, device: str | None) -> float:
        now_s = self._clock.monotonic()
        if device is not None:
            return self._devices.blocked(device, now_s)
        failed_at_s = self._failed_at.get((account, address), now_s - limits.FAILURE_BACKOFF_S_MAX)
        tried = now_s - failed_at_s < limits.FAILURE_BACKOFF_S_MAX
        return max(self._addresses.blocked(address, now_s), self._accounts.blocked(account, now_s) if tried else 0.0)

    def _failed(self, account: str, address: str, device: str | None) -> float:
        """Count a wrong password. Returns 0, or the seconds to wait."""
        now_s = self._clock.monotonic()
        if device is not None:
            return self._devices.failed(device, now_s)
        self._failed_at[account, address] = now_s
        self._failed_at.move_to_end((account, address))
        if len(self._failed_at) > limits.ADDRESSES_TRACKED_MAX:
            self._failed_at.popitem(last=False)
        return max(self._addresses.failed(address, now_s), self._accounts.failed(account, now_s))

    async def _in_thread(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        if self._waiting >= limits.PASSWORD_CHECKS_MAX + limits.PASSWORD_CHECKS_WAITING_MAX:
            raise RateLimited("too many passwords are being checked", retry_after_ms=1_000)
        self._waiting += 1
        try:
            async with self._checks:
                return await asyncio.to_thread(call, *arguments, **options)
        finally:
            self._waiting -= 1


def _refused() -> Unauthenticated:
    return Unauthenticated("the email or the password is wrong")


def _too_many(wait_s: float) -> RateLimited:
    return RateLimited(
        "too many wrong passwords for this account or from this address", retry_after_ms=int(wait_s * 1000) + 1
    )


def cookie_of(headers: Iterable[tuple[bytes, bytes]], cookie: str) -> str | None:
    """The value of a cookie in HTTP headers with names in lower case."""
    start = f"{cookie}=".encode()
    for name, value in headers:
        if name == b"cookie":
            for part in value.split(b";"):
                if part.strip().startswith(start):
                    return part.strip().removeprefix(start).decode("latin-1")
    return None


def cookie_header(value: str, *, secure: bool, max_age_s: int, name: str = COOKIE) -> tuple[bytes, bytes]:
    """SameSite=Strict: no other site can make a browser send it."""
    text = f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return b"set-cookie", text.encode()


def check_csrf(session: UserSession, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises Forbidden if a request that changes something does not have the token of its session."""
    given = dict(headers).get(CSRF_HEADER, b"").decode("latin-1")
    if Secret(given) != session.csrf:
        raise Forbidden(
            "this request needs the header X-CSRF-Token with the `csrf` of the session; load the page again",
            details={"field": "x-csrf-token"},
        )
