"""The Penstock server of the peers that use it: default settings, every reply after its fsync."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from benchmarks.peers.http_client import HttpConnection, HttpError
from benchmarks.process import ServerProcess

READY_SECONDS_MAX = 120.0


class PenstockServer(ServerProcess):
    """`python -m penstock serve` on a free port; the constructor returns when the server is ready."""

    def __init__(self, directory: Path, *flags: str):
        settings = [name for name in os.environ if name.startswith("PENSTOCK_")]
        super().__init__(
            [
                sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                "--data-dir", str(directory / "data"), *flags,
            ],
            directory,
            # The environment of the caller must not change the settings.
            env={name: value for name, value in os.environ.items() if name not in settings},
        )  # fmt: skip
        ready = self.wait_for_line(r"^ready http=(\S+) grpc=(\S+)", READY_SECONDS_MAX)
        self.url, self.grpc = ready[1], ready[2]

    def create_queue(self, queue: str) -> None:
        HttpConnection(self.url).request(b"PUT", b"/v1/queues/" + queue.encode(), b"{}")

    def delete_queue(self, queue: str) -> None:
        connection, path = HttpConnection(self.url), b"/v1/queues/" + queue.encode()
        try:
            connection.request(b"DELETE", path)
        except HttpError as refusal:
            if refusal.status != 409:
                raise
            # The first delete is refused with the loss and a confirm token.
            token = msgspec.json.decode(refusal.body)["error"]["details"]["confirm"]
            connection.request(b"DELETE", path + b"?confirm=" + str(token).encode())
