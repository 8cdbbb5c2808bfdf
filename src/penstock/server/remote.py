"""The operations of a running server, for the command line: one call at a time, not repeated."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

TIMEOUT_S = 30


class Remote:
    """The server at an http:// address. The key is the user part of the URL, or else PENSTOCK_KEY.

    Calls raise the error of the reply, Unreachable or AnswerLost.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S):
        """Raises InvalidRequest for a URL of no use."""
        from penstock.client.lowlevel import BlockingCalls  # not with the help, which needs no server

        self.url = url
        self._calls = BlockingCalls(url, token=None, timeout_s=timeout_s, retry_for_s=0)

    def ask(self, name: str, /, *, body: Any = None, **fields: Any) -> Any:
        """The reply of an operation of `wire/operations.py`. Fields that are None are left out; a `body` is not
        looked at."""
        from penstock.client.lowlevel import operation

        return self._calls.request(operation(name, dict[str, Any], body=body, **fields), patient=False)

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, *, body: object = None, query: dict[str, Any] | None = None) -> Any:
        """The reply of an operation that is named by its path."""
        from penstock.client.lowlevel import Call

        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        content = b"" if body is None else msgspec.json.encode(body)
        read = msgspec.json.Decoder().decode
        return self._calls.request(
            Call("", method, target, lambda response: read(response.body), content), patient=False
        )  # fmt: skip
