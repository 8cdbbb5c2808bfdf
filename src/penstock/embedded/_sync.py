"""The blocking shell over a broker in a thread of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from penstock.client.transport.direct import Across, Direct, SyncAcross
from penstock.client.transport.loop_thread import Background
from penstock.embedded._node import EmbeddedNode
from penstock.sync import Client

T = TypeVar("T")


class EmbeddedClient(Client):
    """A `penstock.sync.Client` with its broker; made by `penstock.sync.open`. The broker runs inside `with`."""

    def __init__(self, data_dir: str | os.PathLike[str], *, retry_for: float, **options: Any):
        self._node = EmbeddedNode(data_dir, options)
        self._home = Background(f"penstock {os.fspath(data_dir)}")
        self._assemble(self._transport(SyncAcross), partial(self._transport, Across), retry_for)

    def _transport(self, kind: Callable[[Direct, Background], T]) -> T:
        return kind(Direct(self._node.ask), self._home)

    def __enter__(self) -> Self:
        try:
            self._home.run(self._node.open())
        except BaseException:
            self._home.stop()
            raise
        return self

    def close(self) -> None:
        """Finish what was begun, make it durable, let go of the data directory."""
        try:
            super().close()
            self._home.run(self._node.close())
        finally:
            self._home.stop()
