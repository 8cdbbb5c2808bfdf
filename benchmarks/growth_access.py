"""Rows of `growth`: keys, sessions and the audit trail, as there are more of them."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.growth import Bound, GrowthRow
from penstock.clock import SystemClock
from penstock.security.credentials import HASH_KEY_BYTES, KeyTable
from penstock.security.principal import Principal
from penstock.security.secret import Secret
from penstock.security.sessions import UserSessions
from penstock.server.audit_log import NAME, AuditLog
from penstock.testing.inprocess import in_process
from penstock.transports.auth import Authenticator
from penstock.wire.keys import KeyRequest

Figures = Mapping[str, float]
ACTOR = Principal("key", "k1", "billing", ())
CHANGE, CHECK, COOKIE = "longest stop by a change", "check of a key", "check of a cookie"
NEWEST, BEHIND, OPEN = "newest 100", "100 behind the middle", "open"


def cpu_us(call: Callable[[], Any], calls: int) -> float:
    """CPU of one call, in microseconds: the best of some turns."""
    gc.collect()
    gc.freeze()
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - begun) / calls)
    return best * 1e6


async def stop_ms(work: Awaitable[Any]) -> float:
    """The most CPU time between two turns of the event loop while this work runs."""
    task, longest = asyncio.ensure_future(work), 0.0
    while not task.done():
        begun = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - begun)
    await task
    return longest * 1e3


async def keys(size: int) -> Figures:
    async with in_process() as box:
        table = KeyTable(Secret(b"h" * HASH_KEY_BYTES))
        auth = Authenticator(box.broker, table, None, SystemClock())
        for number in range(size - 10):
            await box.broker.keys.create(KeyRequest(f"service-{number}", [f"publish:shop/{number}/*"]))
        gc.collect()
        gc.freeze()
        asked = [KeyRequest(f"another-{number}", ["publish:*"]) for number in range(10)]
        stops = [await stop_ms(box.broker.keys.create(each)) for each in asked]
        made = await box.broker.keys.rotate(next(iter(box.broker.keys._followed)), 0)
        return {CHANGE: min(stops), CHECK: cpu_us(lambda: auth.authenticate(made.key, ""), 2_000)}


async def sessions(size: int) -> Figures:
    opened = UserSessions()
    cookies = [opened.begin(f"user-{number}@example.com", "viewer", 0, 0.0)[0].reveal() for number in range(size)]
    return {COOKIE: cpu_us(lambda: opened.find(cookies[size // 2], 1, 1.0), 5_000)}


async def audit_trail(size: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="growth-") as root:
        path = Path(root) / NAME
        log = AuditLog(path, SystemClock())
        for first in range(0, size, 1_000):
            objects = [f"shop/default/queue-{number}" for number in range(first, first + 1_000)]
            await asyncio.gather(*(log.write(ACTOR, "queues.delete", each, "ok") for each in objects))
        await log.close()
        return {
            NEWEST: cpu_us(lambda: log.read(None, 100), 20),
            BEHIND: cpu_us(lambda: log.read(size // 2, 100), 20),
            OPEN: cpu_us(lambda: AuditLog(path, SystemClock()), 20),
        }


_US = Bound("us")

GROWTH = (
    GrowthRow(
        "keys", (100, 1_000, 9_900), keys, {CHANGE: Bound("ms", 10, "largest"), CHECK: _US}, rounds=1,
    ),
    GrowthRow("sessions", (100, 1_000, 10_000), sessions, {COOKIE: _US}),
    GrowthRow("audit trail", (1_000, 10_000, 100_000), audit_trail, {NEWEST: _US, BEHIND: _US, OPEN: _US}),
)  # fmt: skip
