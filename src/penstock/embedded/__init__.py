"""A broker in the client's process: `penstock.open("./data")`, `penstock.sync.open("./data")`. See
docs/embedded.md.

The first `open` imports the broker, which needs the `server` extra.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.client.lowlevel import Duration
    from penstock.embedded._client import EmbeddedClient
    from penstock.embedded._sync import BlockingEmbeddedClient

Fsync = Literal["always", "interval", "batch", "never"]
MEMORY = ":memory:"


def open(
    data_dir: str | os.PathLike[str], *, fsync: Fsync = "always", auto_create: bool = True, retry_for: Duration = 30.0
) -> EmbeddedClient:
    """`async with penstock.open("./data") as client`: a `Client` with a broker in the same process.

    The data directory has the server's format: `penstock serve --data-dir ./data` can use it afterwards, but only one
    process at a time. ":memory:" stores nothing on disk. `fsync` and `auto_create` are the server's settings of these
    names, `retry_for` is that of `Client`.

    Leaving the block completes pending calls, makes them durable and releases the directory. Entering the block raises
    Unavailable if the directory is in use or damaged, InvalidRequest if the path cannot be used.
    """
    client: EmbeddedClient = _part("_client").EmbeddedClient(
        data_dir, fsync=fsync, auto_create=auto_create, retry_for=retry_for
    )
    return client


def open_sync(
    data_dir: str | os.PathLike[str], *, fsync: Fsync = "always", auto_create: bool = True, retry_for: Duration = 30.0
) -> BlockingEmbeddedClient:
    """`with penstock.sync.open("./data") as client`: the blocking twin of `penstock.open`.

    The broker runs in its own thread. Threads may share the client, but processes may not: open it after a fork.
    """
    client: BlockingEmbeddedClient = _part("_sync").BlockingEmbeddedClient(
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
