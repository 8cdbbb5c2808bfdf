"""A webhook endpoint in a thread: records deliveries and replies with `answer`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

LOOPBACK = "127.0.0.0/8"


class Delivery(NamedTuple):
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answer = int | tuple[int, dict[str, str]]


class Receiver:
    """`answer` returns status and headers of each reply; it runs on the thread of the connection and may block."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.answer: Callable[[Delivery], Answer] = lambda _delivery: 204
        self.body = b""
        self.connections = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                named = {name.lower(): value for name, value in self.headers.items()}
                delivery = Delivery(self.path, named, body)
                receiver.deliveries.append(delivery)
                answer = receiver.answer(delivery)
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", str(len(receiver.body)))
                self.end_headers()
                if status != 204:
                    with contextlib.suppress(OSError):
                        self.wfile.write(receiver.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def wait_for(self, count: int, timeout: float = 30) -> list[Delivery]:
        deadline = time.monotonic() + timeout
        while len(self.deliveries) < count:
            assert time.monotonic() < deadline, f"{len(self.deliveries)} of {count} deliveries came"
            time.sleep(0.005)
        return list(self.deliveries)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()
