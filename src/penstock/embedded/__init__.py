"""The broker inside your own process: `penstock.open("./data")`, `penstock.sync.open("./data")`. See docs/embedded.md.

This module is light; the broker itself, which needs the `server` extra, is loaded by the first `open`.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.embedded._client import EmbeddedClient
    from penstock.embedded._sync import EmbeddedClient as SyncEmbeddedClient

Fsync = Literal["always", "interval", "batch", "never"]
MEMORY = ":memory:"


def open(
    data_dir: str | os.PathLike[str], *, fsync: Fsync = "always", auto_create: bool = True, retry_for: float = 30.0
) -> EmbeddedClient:
    """`async with penstock.open("./data") as client`: a `Client` whose broker is in this very process.

    The data directory is that of a server: `penstock serve --data-dir ./data` goes on where this leaves off, but only
    one process may have it at a time. With ":memory:" nothing is kept. `fsync` and `auto_create` are the server's
    settings of these names, `retry_for` is that of `Client`.

    Leaving the block finishes what was begun, makes it durable and lets go of the directory. Entering it raises
    Unavailable if the directory is in use or damaged, InvalidRequest if it cannot be used at all.
    """
    client: EmbeddedClient = _part("_client").EmbeddedClient(
        data_dir, fsync=fsync, auto_create=auto_create, retry_for=retry_for
    )
    return client


def open_sync(
    data_dir: str | os.PathLike[str], *, fsync: Fsync = "always", auto_create: bool = True, retry_for: float = 30.0
) -> SyncEmbeddedClient:
    """`with penstock.sync.open("./data") as client`: the blocking twin of `penstock.open`.

    The broker runs in a thread of its own. The client may be shared by threads, but not by processes: open it after
    a fork, not before.
    """
    client: SyncEmbeddedClient = _part("_sync").EmbeddedClient(
        data_dir, fsync=fsync, auto_create=auto_create, retry_for=retry_for
    )
    return client


def _part(name: str) -> ModuleType:
    try:
        return import_module(f"penstock.embedded.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise ModuleNotFoundError(
            f"penstock.open needs the broker: pip install 'penstock[server]' ({error.name} is missing)", name=error.name
        ) from error
