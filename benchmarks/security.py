"""The cost of TLS, and of a client that tries keys.

    python -m benchmarks.security tls          publish in batches of 100 messages of 200 B over TLS, in turns with plaintext
    python -m benchmarks.security wrong_keys   publishes of others beside 1,000 wrong keys a second from one address

The cost of a key check is that of `python -m benchmarks.key_check`. Slices alternate, and ratios are of neighbours, so that
other work on the machine concerns both. CPU is user and system time of server and client.
"""  # noqa: E501

from __future__ import annotations

import argparse
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import uvloop

from benchmarks.process import ServerProcess
from penstock import Client
from penstock.server.tls_dev import make_certificates

BATCH, SIZE = 100, 200
TLS_BATCHES = 200
TLS_SHARE_MIN = 0.8
WRONG_A_SECOND = 1_000
WRONG_TOGETHER = 10
PUBLISHES = 100
"""In a slice."""
SLICES = 5
"""In a round, of each kind."""
P99_RATIO_MAX = 1.2
ATTACKER, OTHER = "127.0.0.9", "127.0.0.2"
"""Addresses of this machine: limits count by address."""


@contextmanager
def server(directory: Path, *flags: str) -> Iterator[tuple[ServerProcess, int]]:
    directory.mkdir()
    command = [
        sys.executable, "-m", "penstock", "serve", "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0",
        "--grpc", "off", "--log-level", "error", *flags,
    ]  # fmt: skip
    process = ServerProcess(command, directory, env=dict(os.environ))
    try:
        yield process, int(process.wait_for_line(r"^ready http=https?://127\.0\.0\.1:(\d+)")[1])
    finally:
        process.stop()


# -- TLS ----------------------------------------------------------------------------------------------------------


async def tls(rounds: int) -> bool:
    values = [os.urandom(SIZE) for _ in range(BATCH)]
    with tempfile.TemporaryDirectory(prefix="security-") as folder:
        root = Path(folder)
        make_certificates(root / "tls", ["localhost"], "client")
        trusted = ssl.create_default_context(cafile=root / "tls" / "ca.pem")
        flags = ("--tls-cert", str(root / "tls" / "server.pem"), "--tls-key", str(root / "tls" / "server.key"))
        with server(root / "plain") as (plain, plain_port), server(root / "secure", *flags) as (secure, secure_port):
            async with (
                Client(f"http://127.0.0.1:{plain_port}") as over_plain,
                Client(f"https://localhost:{secure_port}", ssl=trusted) as over_tls,
            ):
                rates, costs = [], []
                for _ in range(rounds + 1):  # the first one warms up
                    plain_rate, plain_cost = await _publish(over_plain, plain, values)
                    tls_rate, tls_cost = await _publish(over_tls, secure, values)
                    rates.append(tls_rate / plain_rate)
                    costs.append((plain_cost, tls_cost))
                    print(
                        f"plain {plain_rate:9,.0f} messages/s, {plain_cost:.2f} us CPU each; "
                        f"TLS {tls_rate:9,.0f} messages/s, {tls_cost:.2f} us"
                    )
    share = statistics.median(rates[1:])
    # The least of each, because other programs only add to the CPU time of this one.
    cost = min(each for each, _ in costs[1:]) / min(each for _, each in costs[1:])
    print(f"TLS / plain: {share:.2f} of the rate ({TLS_SHARE_MIN} asked), {cost:.2f} of the messages per CPU second")
    return share >= TLS_SHARE_MIN


async def _publish(client: Client, process: ServerProcess, values: list[bytes]) -> tuple[float, float]:
    """Messages per second, and microseconds of CPU per message."""
    queue = client.queue("orders")
    cpu, began = process.cpu_seconds() + time.process_time(), time.perf_counter()
    for _ in range(TLS_BATCHES):
        await queue.publish_many(values)
    taken, count = time.perf_counter() - began, TLS_BATCHES * BATCH
    return count / taken, (process.cpu_seconds() + time.process_time() - cpu) / count * 1e6


# -- wrong keys ---------------------------------------------------------------------------------------------------


def try_keys(port: int) -> None:
    """Send wrong keys at the rate, on one connection, until the process is ended. It is a process of its own, which is
    stopped and continued: what it did not send meanwhile is left out."""
    head = "GET /v1/queues HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: psk_{:012d}_{:043d}_000000\r\n\r\n"
    number, due = 0, time.monotonic()
    while True:
        with closing(socket.create_connection(("127.0.0.1", port), source_address=(ATTACKER, 0))) as connection:
            while True:
                requests = "".join(head.format(number + each, number) for each in range(WRONG_TOGETHER))
                number += WRONG_TOGETHER
                connection.sendall(requests.encode())
                if not connection.recv(65536):
                    break
                now = time.monotonic()
                due = max(due + WRONG_TOGETHER / WRONG_A_SECOND, now - 0.1)
                time.sleep(max(0.0, due - now))


def wrong_keys(rounds: int) -> bool:
    taken: dict[tuple[str, bool], list[float]] = {}
    costs = []
    with (
        tempfile.TemporaryDirectory(prefix="security-") as folder,
        server(Path(folder) / "guarded", "--auth", "keys") as (process, port),
    ):
        key = (Path(folder) / "guarded" / "data" / "bootstrap.key").read_text().strip()
        _publishes(port, key, OTHER)
        trying = subprocess.Popen([sys.executable, "-m", "benchmarks.security", "try_keys", "--port", str(port)])
        try:
            time.sleep(2.0)  # until it sends
            for _ in range(rounds * SLICES):
                for address in (OTHER, ATTACKER):
                    for tries in (False, True):
                        trying.send_signal(signal.SIGCONT if tries else signal.SIGSTOP)
                        taken.setdefault((address, tries), []).extend(_publishes(port, key, address))
                cpu, began = process.cpu_seconds(), time.monotonic()
                time.sleep(0.5)
                costs.append((process.cpu_seconds() - cpu) / (time.monotonic() - began) / WRONG_A_SECOND * 1e6)
        finally:
            trying.kill()
            trying.wait(30)
    good = True
    for address, whose in ((OTHER, "another address"), (ATTACKER, "the same address")):
        (p50, p99), (p50_beside, p99_beside) = (_percentiles(taken[address, tries]) for tries in (False, True))
        good &= p99_beside / p99 <= P99_RATIO_MAX
        print(
            f"publishes with a valid key of {whose}: p50 {p50:.2f} ms alone, {p50_beside:.2f} beside wrong keys; "
            f"p99 {p99:.2f}, {p99_beside:.2f}: {p99_beside / p99:.2f} ({P99_RATIO_MAX} allowed)"
        )
    print(f"a wrong key: {statistics.median(costs):.0f} us CPU of the server")
    return good


def _percentiles(taken: list[float]) -> tuple[float, float]:
    """p50 and p99, in milliseconds."""
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def _publishes(port: int, key: str, address: str) -> list[float]:
    """The seconds of publishes one after the other."""
    body = b'{"queue": "orders", "messages": [{"payload": 1}]}'
    request = (
        f"POST /v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    taken = []
    with closing(socket.create_connection(("127.0.0.1", port), source_address=(address, 0))) as connection:
        for _ in range(PUBLISHES):
            began = time.perf_counter()
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 201"), "a valid key is accepted"
            taken.append(time.perf_counter() - began)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["tls", "wrong_keys"], help="tls, wrong_keys")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.kinds == ["try_keys"]:
        try_keys(chosen.port)
    good = True
    if "tls" in chosen.kinds:
        good &= uvloop.run(tls(chosen.rounds))
    if "wrong_keys" in chosen.kinds:
        good &= wrong_keys(chosen.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
