"""One process and two, over the same workload: `python -m benchmarks.processes [--rounds N]`.

Clients in processes of their own publish to eight queues in batches of 100 messages of 200 B, and lease and ack them,
as JSON over HTTP; each connection is accepted by any process. Slices with one and with two processes alternate. Beside
the rate it shows the CPU time that servers and clients take for a message: with two cores for all of them, the rate
cannot grow beyond two cores divided by their sum.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.process import ServerProcess

CLIENTS, QUEUES, BATCH, SIZE = 4, 8, 100, 200
SLICE_S = 2.0
WANTED = 1.5


class Slice(NamedTuple):
    rate: float
    """Messages a second that were published, leased and acked."""
    server_us: float
    client_us: float
    """CPU time for a message."""


def _serve(stack: ExitStack, processes: int, fsync: str) -> tuple[ServerProcess, int]:
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="processes-")))
    command = [
        sys.executable, "-m", "penstock", "serve", "--data-dir", str(root / "data"), "--listen", "127.0.0.1:0",
        "--grpc", "off", "--log-level", "error", "--shards", "2", "--processes", str(processes), "--fsync", fsync,
    ]  # fmt: skip
    server = ServerProcess(command, root, env=dict(os.environ))
    stack.callback(server.stop)
    return server, int(server.wait_for_line(r"^ready http=http://127\.0\.0\.1:(\d+)")[1])


def _client(port: int, number: int, seconds: float, results: multiprocessing.Queue[tuple[int, float]]) -> None:
    """Put (messages, CPU seconds) into `results`."""
    message = {"payload": "x" * SIZE}
    done, end, queue = 0, time.monotonic() + seconds, number
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(path: str, body: object) -> dict[str, list[dict[str, str]]]:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        with connection.getresponse() as answer:
            found: dict[str, list[dict[str, str]]] = json.loads(answer.read())
            assert answer.status < 300, found
            return found

    while time.monotonic() < end:
        name, queue = f"q{queue % QUEUES}", queue + 1
        ask("/v1/publish", {"queue": name, "messages": [message] * BATCH})
        leased = ask("/v1/lease", {"queue": name, "max": BATCH})["messages"]
        ask("/v1/ack", {"receipts": [each["receipt"] for each in leased]})
        done += len(leased)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    results.put((done, usage.ru_utime + usage.ru_stime))


def _slice(server: ServerProcess, port: int) -> Slice:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[tuple[int, float]] = context.Queue()
    before = server.cpu_seconds()
    clients = [context.Process(target=_client, args=(port, number, SLICE_S, results)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    found = [results.get() for _ in clients]
    for client in clients:
        client.join()
    messages = sum(count for count, _ in found)
    spent = server.cpu_seconds() - before
    return Slice(messages / SLICE_S, spent / messages * 1e6, sum(cpu for _, cpu in found) / messages * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--fsync", default="always", help="`never` shows the processes without the disk")
    asked = parser.parse_args()
    with ExitStack() as stack:
        servers = {count: _serve(stack, count, asked.fsync) for count in (1, 2)}
        slices: dict[int, list[Slice]] = {1: [], 2: []}
        for turn in range(asked.rounds + 1):
            for count, (server, port) in servers.items():
                found = _slice(server, port)
                if turn:  # the first round warms up
                    slices[count].append(found)
    middle = {
        count: Slice(*(statistics.median(values) for values in zip(*found, strict=True)))
        for count, found in slices.items()
    }
    for count, each in middle.items():
        sys.stdout.write(
            f"{count} process{'es' * (count > 1)}: {each.rate:,.0f} messages/s, CPU for a message: servers "
            f"{each.server_us:.1f} us, clients {each.client_us:.1f} us\n"
        )
    ratio = statistics.median(after.rate / before.rate for before, after in zip(slices[1], slices[2], strict=True))
    one, two = middle[1], middle[2]
    bound = 2e6 / (two.server_us + two.client_us) / one.rate
    apart = 2 * one.server_us / two.server_us
    sys.stdout.write(f"rate of two to one: {ratio:.2f}; these two cores allow at most {bound:.2f}\n")
    sys.stdout.write(
        f"with a core for each process, and others for the clients: {apart:.2f} by CPU time (wanted {WANTED})\n"
    )


if __name__ == "__main__":
    main()
