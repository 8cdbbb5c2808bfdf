"""Wrong passwords: the waits of addresses and accounts, and of browsers with a device token."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from boxed import boxed

from penstock import limits
from penstock.errors import RateLimited, Unauthenticated
from penstock.security.credentials import KeyTable
from penstock.security.devices import DeviceTokens
from penstock.security.secret import Secret
from penstock.transports.auth import Authenticator
from penstock.wire.users import UserRequest

KEY = bytes(range(32))
ADA, BOB = "ada@example.com", "bob@example.com"
PASSWORD = "correct horse battery"


class PlainHashes:
    """Passwords without the cost of Argon2id."""

    def __init__(self) -> None:
        self.devices = DeviceTokens(KEY)

    def hash(self, password: str) -> str:
        return password

    def verify(self, hash: str | None, password: str) -> bool:
        return hash == password


@asynccontextmanager
async def doors(box):
    auth = Authenticator(box.broker, KeyTable(Secret(KEY)), None, box.clock, hashes=PlainHashes())
    for email in (ADA, BOB):
        await box.broker.users.add(UserRequest(email, "viewer", PASSWORD))
    yield auth.login


async def guess(login, times: int, address: str, account: str = ADA, device: str | None = None) -> list[type]:
    seen = []
    for _ in range(times):
        try:
            await login.begin(account, "wrong", address, device)
        except (RateLimited, Unauthenticated) as refused:
            seen.append(type(refused))
    return seen


@boxed
async def test_an_address_waits_after_wrong_passwords_for_any_account(box):
    async with doors(box) as login:
        seen = await guess(login, limits.FAILURES_PER_MINUTE + 1, "192.0.2.1")
        assert seen == [Unauthenticated] * limits.FAILURES_PER_MINUTE + [RateLimited]
        with pytest.raises(RateLimited):
            await login.begin(BOB, PASSWORD, "192.0.2.1")


@boxed
async def test_addresses_of_one_ipv6_network_wait_together(box):
    async with doors(box) as login:
        for number in range(limits.FAILURES_PER_MINUTE + 1):
            await guess(login, 1, f"2001:db8::{number:x}", f"person{number}@example.com")
        with pytest.raises(RateLimited):
            await login.begin(BOB, PASSWORD, "2001:db8::ffff")
        await login.begin(BOB, PASSWORD, "2001:db8:0:1::1")


@boxed
async def test_an_account_waits_for_addresses_that_had_it_wrong_and_for_no_other(box):
    async with doors(box) as login:
        for number in range(3 * limits.FAILURES_PER_MINUTE):
            await guess(login, 1, f"192.0.2.{number}")
        with pytest.raises(RateLimited):
            await login.begin(ADA, PASSWORD, "192.0.2.0")
        await login.begin(ADA, PASSWORD, "198.51.100.1")


@boxed
async def test_a_person_who_logged_in_before_is_not_kept_out_from_a_shared_address(box):
    async with doors(box) as login:
        _, session = await login.begin(ADA, PASSWORD, "192.0.2.1")
        device = login.device_token(session)
        await guess(login, 3 * limits.FAILURES_PER_MINUTE, "192.0.2.1")
        with pytest.raises(RateLimited):
            await login.begin(ADA, PASSWORD, "192.0.2.1")
        with pytest.raises(RateLimited):
            await login.begin(BOB, PASSWORD, "192.0.2.1", device)  # it is bound to its account
        await login.begin(ADA, PASSWORD, "192.0.2.1", device)
        await login.change_password(session, PASSWORD, f"{PASSWORD} two", "192.0.2.1")


@boxed
async def test_guesses_with_a_device_token_wait_and_disturb_no_other(box):
    async with doors(box) as login:
        _, session = await login.begin(ADA, PASSWORD, "192.0.2.1")
        device = login.device_token(session)
        assert RateLimited in await guess(login, limits.FAILURES_PER_MINUTE + 1, "192.0.2.1", device=device)
        with pytest.raises(RateLimited):
            await login.begin(ADA, PASSWORD, "192.0.2.1", device)
        await login.begin(ADA, PASSWORD, "192.0.2.1")


@boxed
async def test_the_password_of_a_session_is_guessed_no_faster(box):
    async with doors(box) as login:
        _, session = await login.begin(ADA, PASSWORD, "192.0.2.1")
        refused = 0
        for _ in range(limits.FAILURES_PER_MINUTE + 2):
            try:
                await login.change_password(session, "wrong", PASSWORD, "192.0.2.1")
            except RateLimited:
                refused += 1
            except Unauthenticated:
                pass
        assert refused == 2


@pytest.mark.parametrize("change", [lambda t: t + "0", lambda t: "", lambda t: "..", lambda t: t.replace(".", "..")])
def test_other_device_tokens_are_none(change):
    tokens = DeviceTokens(KEY)
    token = tokens.issue(ADA, 0)
    assert tokens.device(token, ADA, 1) and tokens.device(change(token), ADA, 1) is None
    assert tokens.device(token, BOB, 1) is None and DeviceTokens(bytes(32)).device(token, ADA, 1) is None
    assert tokens.device(token, ADA, limits.DEVICE_TOKEN_S * 1000) is None
