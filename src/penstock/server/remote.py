"""The operations of a running server, for the command line: one call at a time, not repeated."""

from __future__ import annotations

from typing import Any

TIMEOUT_S = 30


class Remote:
    """The server at an http:// address. The key is the user part of the URL, or else PENSTOCK_KEY.

    Calls raise the error of the reply, Unreachable or AnswerLost.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S):
        """Raises InvalidRequest for a URL of no use."""
        from penstock.client.lowlevel import BlockingCalls  # not with the help, which needs no server

        self.url = url
        scheme, _, place = url.partition("://")
        self.shown_url = f"{scheme}://{place.rpartition('@')[2]}"
        """Without the key."""
        self._calls = BlockingCalls(url, token=None, timeout_s=timeout_s, retry_for_s=0)

    def ask(self, name: str, /, *, body: Any = None, **fields: Any) -> Any:
        """The reply of an operation of `wire/operations.py`. Fields that are None are left out; a `body` is not
        looked at."""
        from penstock.client.lowlevel import operation

        return self._calls.request(operation(name, dict[str, Any], body=body, **fields), patient=False)
