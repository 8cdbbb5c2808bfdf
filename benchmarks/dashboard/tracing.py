"""The cost of tracing on one server that turns it on and off. The collector takes the spans and drops them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.dashboard.server import serving
from benchmarks.dashboard.slices import PER_SLICE, ROUNDS, Cost, compare, work

SWITCHED = (sys.executable, "-m", "benchmarks.dashboard.traced_server")


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


def tracing(*, quick: bool = False) -> None:
    rounds, operations = ROUNDS // 4 if quick else ROUNDS, PER_SLICE
    with contextlib.ExitStack() as stack:
        collector = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        stack.callback(collector.shutdown)
        url = f"http://127.0.0.1:{collector.server_port}"
        server = stack.enter_context(
            serving("--fsync", "never", "--trace", url, "--trace-sample", "0.01", command=SWITCHED)
        )

        def measured(switch: signal.Signals) -> Cost:
            os.kill(server.process.pid, switch)
            server.ask("GET", "/healthz")
            return work(server, operations)

        off, on = (lambda: measured(signal.SIGUSR2)), (lambda: measured(signal.SIGUSR1))
        compare({"off": off, "off, again": off, "on at 1 %": on}, rounds)
