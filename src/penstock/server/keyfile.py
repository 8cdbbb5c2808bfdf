"""The key that secrets are sealed with: a file that nobody else can read, in the data directory.

It is made when it is first needed, and then only read. A copy of the journal without it gives no secret away; a data
directory that lost it has webhooks that cannot sign until their secrets are rotated.
"""

from __future__ import annotations

import os
import secrets
import stat
from functools import cache
from pathlib import Path

from penstock.broker.vault import KEY_BYTES
from penstock.errors import Unavailable

NAME = "webhook.key"
_STRANGERS = stat.S_IRWXG | stat.S_IRWXO


def key_of(store: str, data_dir: str) -> bytes:
    """Raises Unavailable if there is a file, and it is not fit to be used."""
    if store.startswith("memory:"):
        return _forgotten_at_the_end()
    path = Path(data_dir) / NAME
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)
    except OSError as error:
        raise Unavailable(f"cannot read {NAME} in the data directory: {error.strerror or error}") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & _STRANGERS:
            raise Unavailable(f"{NAME} in the data directory can be read by others; chmod 600 it")
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise Unavailable(f"{NAME} in the data directory is not a key: it has to have {KEY_BYTES} bytes")
    return key


def _make(path: Path) -> None:
    """Whole and durable, or not there: what is sealed with it must not outlive it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@cache
def _forgotten_at_the_end() -> bytes:
    """For a store that is forgotten as well."""
    return secrets.token_bytes(KEY_BYTES)
