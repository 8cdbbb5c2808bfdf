"""Clients that flood the server or fill its memory: the share that other clients keep, and the memory of the server.

    python -m benchmarks.abuse              # everything
    python -m benchmarks.abuse floods
    python -m benchmarks.abuse connections --count 9990

`floods`: one connection sends a megabyte a second of empty WebSocket fragments, pings, pongs, junk or one-byte chunks.
Another client publishes one message at a time; its rate beside the flood is divided by its rate without one, in
alternating slices. `connections`: many connections that leave a body unfinished, or never read the answer to a lease.
The server's resident memory is compared with that of the idle server, and a publish must still be answered.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.process import ServerProcess
from benchmarks.websocket_client import raise_file_limit
from penstock import limits

SLICE_S = 2.0
SLICES = 5
FLOOD_BYTES_A_SECOND = limits.MIB
SHARE_MIN = 0.5
MEMORY_MAX = 400 * limits.MIB
BODY_BYTES = 100 * limits.KIB
"""What a connection sends of a body of which it never sends the rest."""
PUBLISH = json.dumps({"queue": "orders", "messages": [{"payload": {"n": 1}}]}).encode()


@contextmanager
def server() -> Iterator[tuple[ServerProcess, int]]:
    with tempfile.TemporaryDirectory(prefix="abuse-") as directory:
        command = [
            str(Path(sys.executable).with_name("penstock")), "serve", "--data-dir", f"{directory}/data",
            "--listen", "127.0.0.1:0", "--log-format", "json",
        ]  # fmt: skip
        process = ServerProcess(command, Path(directory), env=dict(os.environ))
        try:
            yield process, int(process.wait_for_line(r"^ready http=http://127\.0\.0\.1:(\d+)")[1])
        finally:
            process.stop()


# -- floods -------------------------------------------------------------------------------------------------------

_UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_CHUNKED = b"POST /v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_NO_MASK = b"\0\0\0\0"
_FRAGMENT = struct.pack("!BB", 0x00, 0x80) + _NO_MASK
_FIRST_FRAGMENT = struct.pack("!BB", 0x01, 0x80) + _NO_MASK
_PING = struct.pack("!BB", 0x89, 0x80) + _NO_MASK
_PONG = struct.pack("!BB", 0x8A, 0x80) + _NO_MASK

FLOODS: dict[str, tuple[bytes, bytes]] = {
    "fragments": (_UPGRADE + _FIRST_FRAGMENT, _FRAGMENT),
    "pings": (_UPGRADE, _PING),
    "pongs": (_UPGRADE, _PONG),
    "junk": (b"", b"\xff\xfe junk \r\n"),
    "chunks": (_CHUNKED, b"1\r\n \r\n"),
}
"""For each flood: the bytes that open it, and the bytes that are repeated."""


def flood(port: int, opening: bytes, repeated: bytes, stop: threading.Event) -> None:
    """Send the bytes at the rate of a flood; connect again when the server ends the connection."""
    piece = repeated * (16 * limits.KIB // len(repeated))
    pause_s = len(piece) / FLOOD_BYTES_A_SECOND
    while not stop.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                connection.sendall(opening)
                while not stop.wait(pause_s):
                    connection.sendall(piece)
                    _discard(connection)
        except OSError:
            stop.wait(0.01)


def _discard(connection: socket.socket) -> None:
    connection.setblocking(False)
    try:
        if not connection.recv(limits.MIB):
            raise ConnectionResetError
    except BlockingIOError:
        pass
    finally:
        connection.settimeout(1.0)


def publishes_a_second(port: int) -> float:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        began, done = time.monotonic(), 0
        while time.monotonic() - began < SLICE_S:
            connection.request("POST", "/v1/publish", PUBLISH)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 201, reply.status
            done += 1
        return done / (time.monotonic() - began)


def floods() -> bool:
    good = True
    for name, (opening, repeated) in FLOODS.items():
        shares = []
        with server() as (_, port):
            for _ in range(SLICES):
                alone = publishes_a_second(port)
                stop = threading.Event()
                flooding = threading.Thread(target=flood, args=(port, opening, repeated, stop))
                flooding.start()
                try:
                    shares.append(publishes_a_second(port) / alone)
                finally:
                    stop.set()
                    flooding.join()
        share = statistics.median(shares)
        good &= share >= SHARE_MIN
        print(f"{name:12} others keep {share:.2f} of their rate ({SHARE_MIN} asked)", flush=True)
    return good


# -- connections --------------------------------------------------------------------------------------------------


def unfinished_body(connection: socket.socket) -> None:
    head = b"POST /v1/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (8 * limits.MIB)
    connection.sendall(head)
    connection.sendall(b" " * BODY_BYTES)


def unread_answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(b"GET /v1/read?queue=large&max=10 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


def connections(count: int) -> bool:
    good = True
    acts: list[Callable[[socket.socket], None]] = [unfinished_body, unread_answer]
    for act in acts:
        with server() as (process, port):
            _publish_large(port)
            process.wait_until_idle()
            before = process.rss_bytes()
            held, refused = _open_all(count, port, act)
            process.wait_until_idle(300.0)
            served = publishes_a_second(port)
            most = (process.rss_bytes() - before) / limits.MIB
            for each in held:
                each.close()
        good &= most <= MEMORY_MAX / limits.MIB and served > 0
        print(
            f"{act.__name__:16} {len(held)} connections ({refused} ended by the server): +{most:.0f} MiB"
            f" ({MEMORY_MAX // limits.MIB} allowed), {served:.0f} publishes a second beside them",
            flush=True,
        )
    return good


def _publish_large(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        body = json.dumps({"queue": "large", "messages": [{"payload": "x" * 100_000}] * 10})
        connection.request("POST", "/v1/publish", body)
        assert connection.getresponse().status == 201


def _open_all(count: int, port: int, act: Callable[[socket.socket], None]) -> tuple[list[socket.socket], int]:
    held: list[socket.socket] = []
    refused = 0
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        try:
            act(connection)
        except OSError:
            refused += 1
        held.append(connection)
    return held, refused


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse", description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["floods", "connections"], help="floods, connections")
    parser.add_argument("--count", type=int, default=9_990, help="number of connections; the server takes 10,000")
    chosen = parser.parse_args()
    raise_file_limit()
    good = True
    if "floods" in chosen.kinds:
        good &= floods()
    if "connections" in chosen.kinds:
        good &= connections(chosen.count)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
