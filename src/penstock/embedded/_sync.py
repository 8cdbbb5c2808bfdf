"""The blocking client of a broker in its own thread."""

from __future__ import annotations

import os
from typing import Any, Self

from penstock.client.lowlevel import Duration, LoopThread
from penstock.embedded._node import EmbeddedNode
from penstock.sync import Client


class BlockingEmbeddedClient(Client):
    """A `penstock.sync.Client` with its broker; made by `penstock.sync.open`. The broker runs inside `with`."""

    def __init__(self, data_dir: str | os.PathLike[str], *, retry_for: Duration, **options: Any):
        self._node = EmbeddedNode(data_dir, options)
        self._home = LoopThread(f"penstock {os.fspath(data_dir)}")
        self._assemble_in_process(self._node.ask, self._home, retry_for)

    def __enter__(self) -> Self:
        try:
            self._home.run(self._node.open())
        except BaseException:
            self._home.stop()
            raise
        return self

    def close(self) -> None:
        """Complete pending calls, make them durable and release the data directory."""
        try:
            super().close()
            self._home.run(self._node.close())
        finally:
            self._home.stop()
