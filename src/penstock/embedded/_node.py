"""A node without sockets, opened and closed by its embedded client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.embedded import MEMORY
from penstock.errors import InvalidRequest, PenstockError
from penstock.server.compose import Node, open_node
from penstock.server.config import ConfigError, Settings, load_settings
from penstock.transports.http.answer import Answer
from penstock.transports.http.in_process import InProcessHttp


class EmbeddedNode:
    """The broker of one embedded client. `open`, `ask` and `close` must run in one event loop."""

    def __init__(self, data_dir: str | os.PathLike[str], options: Mapping[str, Any]):
        """Check the settings without opening the store. Raises InvalidRequest."""
        where = os.fspath(data_dir)
        store = {"store": "memory:"} if where == MEMORY else {"data_dir": where}
        # Environment variables are ignored: the program alone sets the options.
        self._settings: Settings = _checked({**options, **store})
        self._node: Node | None = None
        self._direct: InProcessHttp | None = None

    async def open(self) -> None:
        if not __debug__:
            raise PenstockError("assertions are part of the broker's safety, it does not run under python -O")
        if self._node is None:
            try:
                self._node = await open_node(self._settings)
            except ConfigError as error:
                raise InvalidRequest(str(error)) from None
            self._node.courier.start()
            self._direct = InProcessHttp(self._node.app)

    async def ask(self, method: str, target: str, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> Answer:
        if self._direct is None:
            raise PenstockError("the broker is not open: use the client with `with` or `async with`")
        return await self._direct.ask(method, target, headers, body)

    async def close(self) -> None:
        """Answer waiting calls, make all writes durable and release the directory."""
        node, self._node, self._direct = self._node, None, None
        if node is not None:
            node.courier.stop()
            await node.close()


def _checked(values: dict[str, Any]) -> Settings:
    try:
        return load_settings(values, {})
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
