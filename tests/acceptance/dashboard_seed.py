"""Queues of a small shop, for tests and screenshots of the dashboard."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from http_server import Server

from penstock.broker.series_block import SeriesBlock
from penstock.server.series_files import SeriesFiles

ERRORS = (
    "TimeoutError: payment provider did not answer within 30 s",
    "ValueError: order 4711 has no lines",
    "ConnectionError: connect to 10.0.0.7:5432 failed",
)


def fill(server: Server) -> None:
    for queue, count in (("shop/orders", 240), ("shop/invoices", 40), ("email/notifications/welcome", 12)):
        server.ask("PUT", f"/v1/queues/{queue}", {"max_retries": 1, "backoff": {"kind": "none"}})
        messages = [
            {
                "payload": {"order": 1000 + n, "customer": f"user-{n % 17}", "total": 19.9 + n, "lines": ["A1"]},
                "key": f"user-{n % 17}",
                "headers": {"tenant": "acme" if n % 3 else "globex"},
            }
            for n in range(count)
        ]  # fmt: skip
        server.ask("POST", "/v1/publish", {"queue": queue, "messages": messages})
    _work(server, "shop/orders", acked=90, dead=24)
    _work(server, "shop/invoices", acked=30, dead=3)
    server.ask("POST", "/v1/lease", {"queue": "shop/orders", "max": 6, "consumer": "worker-7", "lease_ms": 600_000})
    server.ask("PUT", "/v1/groups", {"queue": "shop/orders", "group": "audit", "start": "earliest"})
    later = [{"payload": {"remind": n}, "delay_ms": 3_600_000 * n, "id": f"reminder-{n}"} for n in range(1, 9)]
    server.ask("POST", "/v1/publish", {"queue": "email/reminders", "messages": later})
    server.ask("PUT", "/v1/queues/reports/daily", {})
    nightly = {"queue": "reports/daily", "cron": "0 3 * * *", "message": {"payload": {"kind": "daily"}}}
    server.ask("PUT", "/v1/schedules/nightly-report", nightly)
    hook = {"queue": "shop/invoices", "group": "erp", "url": "https://example.com/hooks", "paused": True}
    server.ask("POST", "/v1/webhooks", {**hook, "description": "invoices to the ERP system"})


def _work(server: Server, queue: str, *, acked: int, dead: int) -> None:
    leased = server.lease(queue, max=acked + dead, consumer="worker-3")
    server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in leased[:acked]]})
    for number, message in enumerate(leased[acked:]):
        error = ERRORS[min(number * 2 // max(1, dead) + number % 2, len(ERRORS) - 1)].replace(
            "4711", str(4700 + number)
        )
        server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]], "error": error})


def write_history(data_dir: Path) -> None:
    """A day of minute series, as an earlier process would have left them."""
    dice, now = random.Random(7), int(time.time() // 60)
    data_dir.mkdir(exist_ok=True)
    files, whole = SeriesFiles(data_dir / "series"), {}
    for start in range((now - 1440) // 60 * 60, now + 1, 60):
        block = SeriesBlock(start, 1, 60)
        for minute in range(start, min(start + 60, now)):
            whole[minute] = [0] * 9
            waits = [0, 0, 0, 0, 0, 0]
            for queue, scale in (
                ("shop/default/orders", 900),
                ("shop/default/invoices", 260),
                ("email/default/reminders", 60),
            ):
                wave = 1.15 + math.sin((minute % 1440) / 1440 * 2 * math.pi - 2)
                published = int(scale * wave * dice.uniform(0.85, 1.15))
                acked = max(0, int(published * (0.9 if minute % 360 < 40 else 1.0)))
                ready = int(scale * 0.4 * max(0.05, math.sin((minute % 360) / 360 * math.pi)) * dice.uniform(0.9, 1.1))
                row = (published, acked, acked, int(dice.random() < 0.02), ready + 6, ready, 6, 8, 20 + minute % 7)
                waits = [int(each * wave * dice.uniform(0.8, 1.3)) for each in (6, 22, 60, 40, 130, 310)]
                block.put(queue, minute, (*row, *waits))
                whole[minute] = [one + other for one, other in zip(whole[minute], row, strict=True)]
            block.put("", minute, (*whole[minute], *waits))
        files.save(f"m-{start}", block.encode())
