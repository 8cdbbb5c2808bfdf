"""Keys of the server itself: files of 32 random bytes and mode 0600 in the data directory.

`webhook.key` encrypts the secrets of webhooks, `keys.hash` hashes API keys. A file is created on first use. A copy of
the journal without the files reveals no secret. If `webhook.key` is lost, webhooks cannot sign until their secrets are
rotated; if `keys.hash` is lost, no key is accepted until it is rotated.
"""

from __future__ import annotations

import os
import secrets
import stat
from functools import cache
from pathlib import Path

from penstock.broker.vault import KEY_BYTES
from penstock.errors import Unavailable
from penstock.server.secret_file import replace_secret_file

WEBHOOK_KEY_NAME = "webhook.key"
_STRANGERS = stat.S_IRWXG | stat.S_IRWXO


def private_key(name: str, store: str, data_dir: str) -> bytes:
    """Read or create the key. Raises Unavailable if the file cannot be read or is not a private key file."""
    if store.startswith("memory:"):
        return _process_key(name)
    path = Path(data_dir) / name
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)
    except OSError as error:
        raise Unavailable(f"cannot read {name} in the data directory: {error.strerror or error}") from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & _STRANGERS:
            raise Unavailable(f"{path.name} in the data directory can be read by others; chmod 600 it")
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise Unavailable(f"{path.name} in the data directory is not a key: it must have {KEY_BYTES} bytes")
    return key


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_secret_file(path, secrets.token_bytes(KEY_BYTES))


@cache
def _process_key(name: str) -> bytes:  # noqa: ARG001 - one key per name
    """A key for the lifetime of the process, as the memory store has."""
    return secrets.token_bytes(KEY_BYTES)
