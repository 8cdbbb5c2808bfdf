"""The table of accepted keys follows the keys: a change costs one key, and nothing of a former key stays."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.clock import SystemClock
from penstock.errors import Unauthenticated
from penstock.security.credentials import HASH_KEY_BYTES, KeyTable
from penstock.security.secret import Secret
from penstock.testing.inprocess import in_process
from penstock.transports.auth import Authenticator
from penstock.wire.keys import KeyRequest


def with_auth(story) -> None:
    async def run() -> None:
        async with in_process() as box:
            table = KeyTable(Secret(b"h" * HASH_KEY_BYTES))
            await story(box.broker.keys, table, Authenticator(box.broker, table, None, SystemClock()))

    asyncio.run(run())


def test_a_change_of_one_key_leaves_the_others_alone(monkeypatch):
    async def story(keys, table, auth) -> None:
        made = [await keys.create(KeyRequest(f"service-{number}", ["publish:*"])) for number in range(5)]
        accepted, accept = [], table.accept
        monkeypatch.setattr(table, "accept", lambda entry: accepted.append(entry.id) or accept(entry))
        rotated = await keys.rotate(made[2].id, 0)
        await keys.revoke(made[3].id)
        assert accepted == [made[2].id]
        for text in (made[2].key, made[3].key):
            with pytest.raises(Unauthenticated):
                auth.authenticate(text, "")
        assert {auth.authenticate(text, "").id for text in (made[0].key, rotated.key)} == {made[0].id, made[2].id}

    with_auth(story)


def test_nothing_of_a_revoked_key_stays():
    async def story(keys, table, auth) -> None:
        for _ in range(3):
            made = await keys.create(KeyRequest("service", ["publish:*"]))
            keys.used(auth.authenticate(made.key, "").id, 1)
            await keys.revoke(made.id)
        assert not (keys._last_used or keys._named or keys._followed or table._by_id or table._by_hash)

    with_auth(story)


def test_certificates_that_were_seen_long_ago_are_forgotten_unless_they_have_streams(monkeypatch):
    monkeypatch.setattr("penstock.limits.CERTIFICATES_CACHED_MAX", 2)

    async def story(keys, table, auth) -> None:
        made = await keys.create(KeyRequest("service.example", ["publish:*"]))
        names = [("service.example", f"host-{number}.example") for number in range(20)]
        ended = []
        auth.open_stream(auth.authenticate(None, "", names[0]), lambda: ended.append(True))
        for each in names:
            assert auth.authenticate(None, "", each).name == "service.example"
        gc.collect()
        assert len(auth._last_certificates) == 2 and set(auth._certificates) == {names[0], *names[-2:]}
        await keys.revoke(made.id)
        assert ended == [True]
        for each in names:
            with pytest.raises(Unauthenticated):
                auth.authenticate(None, "", each)

    with_auth(story)


def test_the_look_of_every_second_finds_keys_that_expired_and_no_others(monkeypatch):
    async def story(keys, table, auth) -> None:
        await keys.create(KeyRequest("service.example", ["publish:*"]))
        auth.authenticate(None, "", ("service.example",))
        looks = []
        monkeypatch.setattr(auth, "_changed_certificates", lambda: looks.append(True) or [])
        auth.end_expired()
        assert not looks

    with_auth(story)
