"""One server for all tests of a file; each test ends without queues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from http_server import Server


@contextlib.contextmanager
def emptied(server: Server) -> Iterator[Server]:
    """The server; queues are deleted after the test."""
    yield server
    for queue in server.ask("GET", "/v1/queues?limit=500").json["queues"]:
        target = f"/v1/queues/{queue['queue']}"
        token = server.ask("DELETE", target).json["error"]["details"]["confirm"]
        assert server.ask("DELETE", f"{target}?confirm={token}").status == 200
