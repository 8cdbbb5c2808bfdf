"""Authentication of a server: the hash key of API keys, the bootstrap key, the keys of a token issuer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.broker.audit import AuditTrail
from penstock.broker.service import Broker
from penstock.clock import Clock
from penstock.errors import InvalidRequest
from penstock.logs import get_logger
from penstock.security.credentials import KeyTable
from penstock.security.key_set import KeySet, key_source
from penstock.security.passwords import PasswordHashes
from penstock.security.secret import Secret
from penstock.security.tokens import TokenVerifier
from penstock.server.config import ConfigError, Settings
from penstock.server.keyfile import private_key
from penstock.transports.auth import Authenticator

_log = get_logger("penstock.auth")

HASH_KEY_NAME = "keys.hash"
BOOTSTRAP_NAME = "bootstrap.key"
WATCH_S = 0.5
"""Seconds between two looks whether credentials of streams have expired, or the key set is old."""


async def open_authenticator(
    settings: Settings, broker: Broker, clock: Clock, audit: AuditTrail | None
) -> Authenticator:
    """Make the bootstrap key if there are no keys. Raises ConfigError if the key set of the issuer cannot be read."""
    hash_key = Secret(private_key(HASH_KEY_NAME, settings.store, settings.data_dir))
    tokens = await _open_tokens(settings, clock) if settings.jwks else None
    authenticator = Authenticator(
        broker,
        KeyTable(hash_key),
        tokens,
        clock,
        audit,
        settings.access_limits,
        PasswordHashes(hash_key),
        settings.proxies,
    )
    path = Path(settings.data_dir) / BOOTSTRAP_NAME
    if await broker.keys.bootstrap(partial(_write_private, path)):
        _log.warning("bootstrap_key_written", path=str(path))
    return authenticator


async def watch_credentials(authenticator: Authenticator, clock: Clock) -> None:
    """End streams whose credential has expired, and read the key set of the issuer again when it is due. An issuer that
    does not answer delays no end."""
    refreshing: asyncio.Task[None] | None = None
    while True:
        await asyncio.sleep(WATCH_S)
        authenticator.end_expired()
        if authenticator.tokens is not None and (refreshing is None or refreshing.done()):
            refreshing = asyncio.create_task(_refresh(authenticator.tokens.keys, clock))


async def _open_tokens(settings: Settings, clock: Clock) -> TokenVerifier:
    try:
        keys = KeySet(key_source(settings.jwks))
        await asyncio.to_thread(keys.refresh, clock.monotonic())
    except InvalidRequest as error:
        raise ConfigError(f"jwks: {error.message}") from None
    except OSError as error:
        if "://" not in settings.jwks:
            raise ConfigError(f"jwks: cannot read {settings.jwks}: {error.strerror or error}") from None
        # The issuer may be started after this server; until it answers, its tokens are refused.
        _log.warning("key_set_fetch_failed", url=settings.jwks, reason=str(error))
    return TokenVerifier(settings.jwt_issuer, settings.jwt_audience, keys)


async def _refresh(keys: KeySet, clock: Clock) -> None:
    if keys.is_due(clock.monotonic()):
        try:
            await asyncio.to_thread(keys.refresh, clock.monotonic())
        except (InvalidRequest, OSError) as error:
            _log.warning("key_set_fetch_failed", reason=str(error))


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    opener: Callable[[str, int], int] = lambda name, flags: os.open(name, flags | os.O_EXCL, 0o600)  # noqa: E731
    with open(path, "w", opener=opener) as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
