"""`python -m benchmarks.calls`: Python calls on the server's path of one publish, one lease and one ack.

One client sends JSON requests, one after the other, over a socket to a broker in this process, with synced commits.
`sys.setprofile` sees every call of a Python function of the package on the event loop's thread; generators and
comprehensions count as it counts them. The median of all requests is shown: a commit on the event loop's thread.
A package change is a call into another package (`penstock.wire`, `penstock.broker`, …) than the caller's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

import penstock
from penstock.server.compose import open_node
from penstock.server.config import load_settings
from penstock.transports.http.protocol import HttpProtocol

ROUNDS = 300
"""The first rounds fill caches, and show the broker that its client is alone (`runtime/inline_commit.py`)."""
NAMES = ("publish", "lease", "ack")
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_SOURCE = str(Path(penstock.__file__).parent) + "/"


class RequestCalls:
    """The calls from the first byte of a request to the first byte of the next one."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.package_changes = 0


class CountedProtocol(HttpProtocol):
    """A connection that counts the calls of its requests. Each request comes in one segment."""

    requests: list[RequestCalls] = []
    _packages: list[str] = []
    """The package of each Python frame on the stack, empty for a frame of another library."""

    def data_received(self, data: bytes) -> None:
        self.requests.append(RequestCalls())
        self._packages.clear()
        sys.setprofile(self._profile)
        super().data_received(data)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002
        if event == "call":
            path = frame.f_code.co_filename
            module = path.removeprefix(_SOURCE) if path.startswith(_SOURCE) else ""
            package = module.partition("/")[0]
            if package:
                counted = self.requests[-1]
                depth = sum(map(bool, self._packages))
                counted.calls.append(f"{'  ' * depth}{module}:{frame.f_code.co_qualname}")
                counted.package_changes += package != next(filter(None, reversed(self._packages)), package)
            self._packages.append(package)
        elif event == "return" and self._packages:
            self._packages.pop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list", action="store_true", help="also list the calls of each operation: by package, then as a tree"
    )
    listed = parser.parse_args().list
    uvloop.run(_serve())
    for number, name in enumerate(NAMES):
        requests = sorted(CountedProtocol.requests[number :: len(NAMES)], key=lambda request: len(request.calls))
        median = requests[len(requests) // 2]
        print(f"{name:8} {len(median.calls):4} calls {median.package_changes:4} package changes")
        if listed:
            for package, count in Counter(str(Path(call.strip()).parent) for call in median.calls).most_common():
                print(f"  {count:4} {package}")
            print("\n".join(f"    {call}" for call in median.calls))
    return 0


async def _serve() -> None:
    # On a slow disk, commits go through a thread (`runtime/inline_commit.py`).
    with tempfile.TemporaryDirectory(dir=_MEMORY) as directory:
        node = await open_node(load_settings({"data_dir": directory}, {}))
        config = uvicorn.Config(node.app, log_config=None)  # type: ignore[arg-type] # only HttpProtocol calls it
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: CountedProtocol(config, ServerState(), {}), "127.0.0.1", 0)
        try:
            await asyncio.to_thread(_ask, server.sockets[0].getsockname()[1])
        finally:
            sys.setprofile(None)
            server.close()
            await node.close()


def _ask(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(ROUNDS):
            _request(connection, "publish", {"queue": "q", "messages": [{"payload": {"n": 1}}]})
            leased = _request(connection, "lease", {"queue": "q"})
            _request(connection, "ack", {"receipts": [message["receipt"] for message in leased["messages"]]})


def _request(connection: socket.socket, name: str, values: Any) -> Any:
    body = json.dumps(values).encode()
    head = f"POST /v1/{name} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return json.loads(connection.recv(65_536).partition(b"\r\n\r\n")[2])


if __name__ == "__main__":
    sys.exit(main())
