"""The asyncio client of a broker in the same event loop."""

from __future__ import annotations

import os
from typing import Any, Self

from penstock.client import Client
from penstock.client.lowlevel import Duration, InProcessTransport
from penstock.embedded._node import EmbeddedNode


class EmbeddedClient(Client):
    """A `Client` with its broker; made by `penstock.open`. The broker runs inside `async with`, in its event loop."""

    def __init__(self, data_dir: str | os.PathLike[str], *, retry_for: Duration, **options: Any):
        self._node = EmbeddedNode(data_dir, options)
        self._assemble(InProcessTransport(self._node.ask), retry_for)

    async def __aenter__(self) -> Self:
        await self._node.open()
        return self

    async def aclose(self) -> None:
        """Complete pending calls, make them durable and release the data directory."""
        try:
            await super().aclose()
        finally:
            await self._node.close()
