"""A full disk: fill it until 507, ack all, and measure how long publishing is refused and what stays on the disk."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from torture.broker import Broker, Connection
from torture.disk import tmpfs

DISK_BYTES = 600 << 20
BATCH = [{"payload": "x" * 50_000}] * 20


def measure(root: Path, cycles: int, idle_s: float) -> dict[str, object]:
    """Of the broker with its usual file sizes, on a tmpfs of 600 MiB."""
    with tmpfs(root / "small", DISK_BYTES) as disk:
        broker = Broker(disk / "data", root / "full.log", program="penstock")
        try:
            assert broker.ready, (root / "full.log").read_text()
            with contextlib.closing(broker.connect()) as connection:
                refused = [_cycle(connection) for _ in range(cycles)]
                _ack_all(connection)
                time.sleep(idle_s)
                left = sum(file.stat().st_blocks * 512 for file in disk.rglob("*") if file.is_file())
                left_by_name = {
                    kind: sum(file.stat().st_blocks * 512 for file in disk.rglob(pattern))
                    for kind, pattern in (("journal", "*.log"), ("spare", "*spare*"), ("segments", "segment-*"))
                }
        finally:
            broker.kill()
    return {
        "kind": "full", "cycles": len(refused), "refused_s": [round(seconds, 2) for seconds in refused],
        "idle_s": idle_s, "left_mib": left >> 20, "left_by_kind_mib": {k: v >> 20 for k, v in left_by_name.items()},
        "violations": [f"publishing was refused for {worst:.1f} s" for worst in [max(refused)] if worst > 5],
    }  # fmt: skip


def _cycle(connection: Connection) -> float:
    """Seconds from the last ack to the next publish that is taken."""
    while _publish(connection) == 201:
        pass
    _ack_all(connection)
    began = time.monotonic()
    while _publish(connection) != 201:
        time.sleep(0.05)
    return time.monotonic() - began


def _publish(connection: Connection) -> int:
    status, answer = connection.ask("POST", "/v1/publish", {"queue": "full", "messages": BATCH})
    assert status in (201, 507), answer
    return status


def _ack_all(connection: Connection) -> None:
    ack: list[str] = []
    while True:
        status, answer = connection.ask("POST", "/v1/lease", {"queue": "full", "max": 200, "ack": ack})
        assert status == 200, answer
        ack = [message["receipt"] for message in answer["messages"]]
        if not ack:
            return
