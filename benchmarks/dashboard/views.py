"""First paint, bytes on the wire and work of the server for every view, with many queues, dead letters and messages."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.dashboard.server import BenchServer, serving
from penstock import Client

ACCEPTANCE = Path(__file__).resolve().parents[2] / "tests" / "acceptance"
QUEUES, LETTERS, MESSAGES = 1_000, 1_000_000, 10_000_000
BATCH = 5_000
BIG, DEAD = "/ui/q/shop/default/big", "/ui/q/shop/default/dead"
SCHEDULED = 100_000
WIRE_BYTES = (
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    ".reduce((sum, each) => sum + each.transferSize, 0)"
)


async def _fill(url: str, letters: int, messages: int, scheduled: int) -> dict[str, str]:
    """Returns ids of messages by name."""
    async with Client(url) as client:
        for number in range(QUEUES):
            await client.queue(f"many/q{number}").publish({"n": number})
        big, dead, later = (client.queue(f"shop/{name}") for name in ("big", "dead", "later"))
        (first, *_) = await big.publish_many([{"n": number} for number in range(BATCH)])
        for at in range(BATCH, messages, BATCH):
            await big.publish_many([{"n": number} for number in range(at, at + BATCH)])
        for at in range(0, scheduled, BATCH):
            (due, *_) = await later.publish_many([{"n": number} for number in range(at, at + BATCH)], delay=86_400)
        for at in range(0, letters, BATCH):
            await dead.publish_many([{"n": number} for number in range(at, at + BATCH)])
        done = 0
        async for batch in dead.consume_batches(max=BATCH):
            await batch.reject(error=f"ValueError: order {done} has no lines")
            done += len(batch)
            if done >= letters:
                break
    return {"first": first.id, "due": due.id}


def views(*, quick: bool = False) -> None:
    sys.path.insert(0, str(ACCEPTANCE))
    from browser import open_browser

    scale = 100 if quick else 1
    with serving() as server:
        began = time.monotonic()
        server.ask("PUT", "/v1/queues/shop/dead", {"max_retries": 0})
        ids = asyncio.run(_fill(server.url, LETTERS // scale, MESSAGES // scale, max(BATCH, SCHEDULED // scale)))
        print(f"filled in {time.monotonic() - began:.0f} s; load of the machine {os.getloadavg()[0]:.1f}")
        ids["letter"] = server.json("GET", "/v1/dlq?queue=shop/dead&limit=1")["messages"][0]["id"]
        server.ask("PUT", "/v1/groups", {"queue": "shop/big", "group": "audit", "start": "earliest"})
        schedule = {"queue": "shop/big", "cron": "0 3 * * *", "message": {"payload": 1}}
        server.ask("PUT", "/v1/schedules/nightly", schedule)
        hook = {"queue": "shop/big", "group": "hook", "url": "https://example.com/", "paused": True}
        ids["hook"] = server.json("POST", "/v1/webhooks", hook)["id"]
        print(" paint      wire   CPU of server   read from files")
        with open_browser() as browser:
            for path in _paths(ids, MESSAGES // scale):
                _paint(browser, server, path)
        for path, form in _acts(ids):
            _act(server, path, form)


def _paths(ids: dict[str, str], messages: int) -> tuple[str, ...]:
    return (
        "/", "/ui/queues", "/ui/queues?sort=depth&page=3", "/ui/queues?q=q99", "/ui/queues/new", BIG, f"{BIG}/messages",
        f"{BIG}/messages?view=log&offset={messages // 2}", f"{BIG}/messages?view=log&filter=payload.n+%3C+0",
        f"{BIG}/messages?view=log&offset=at:{time.time_ns() // 1_000_000 - 30_000}",
        f"{BIG}/messages/{ids['first']}", f"{BIG}/settings", f"{BIG}/publish", f"{BIG}/groups",
        f"{BIG}/groups/seek?group=audit", f"{BIG}/groups/delete?group=audit", f"{BIG}/purge", f"{BIG}/delete",
        DEAD, f"{DEAD}/dead", f"{DEAD}/dead?filter=error+~+%22lines%22", f"{DEAD}/dead?filter=error+~+%22nothing%22",
        f"{DEAD}/messages/{ids['letter']}", f"{DEAD}/messages/{ids['letter']}/edit", "/ui/dead", "/ui/scheduled",
        "/ui/q/shop/default/later/scheduled", f"/ui/q/shop/default/later/messages/{ids['due']}", "/ui/schedules",
        "/ui/schedules/new", "/ui/schedules/s/nightly", "/ui/webhooks", "/ui/webhooks/new",
        f"/ui/webhooks/w/{ids['hook']}", "/ui/live", "/ui/connections", "/ui/analytics", "/ui/jump?q=q9",
        f"/ui/jump?q={ids['first']}",
    )  # fmt: skip


def _acts(ids: dict[str, str]) -> tuple[tuple[str, dict[str, str]], ...]:
    """Steps that look at many messages without changing any."""
    return (
        (f"{DEAD}/dead/redrive", {"step": "plan", "filter": ""}),
        (f"{DEAD}/dead/redrive", {"step": "plan", "filter": 'error ~ "lines"'}),
        (f"{DEAD}/dead/redrive", {"step": "plan", "ids": ids["letter"]}),
        (f"{DEAD}/dead/delete", {"filter": ""}),
        (f"{BIG}/groups/seek", {"group": "audit", "to": "latest", "step": "preview"}),
    )


def _paint(browser: Any, server: BenchServer, path: str) -> None:
    """The median of three first paints in a browser without a cache, and the bytes on the wire."""
    paints, sizes = [], []
    for _ in range(3):
        page = browser.new_context().new_page()
        page.goto(server.url + path)
        page.wait_for_load_state("load" if path == "/ui/live" else "networkidle")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        sizes.append(page.evaluate(WIRE_BYTES))
        page.context.close()
    costs = _cost(server, lambda: server.ask("GET", path, accept="text/html"))
    _print(statistics.median(paints), max(sizes), costs, path)


def _acts(ids: dict[str, str]) -> tuple[tuple[str, dict[str, str]], ...]:
    """Steps that look at many messages without changing any."""
    return (
        (f"{DEAD}/dead/redrive", {"step": "plan", "filter": ""}),
        (f"{DEAD}/dead/redrive", {"step": "plan", "filter": 'error ~ "lines"'}),
        (f"{DEAD}/dead/redrive", {"step": "plan", "ids": ids["letter"]}),
        (f"{DEAD}/dead/delete", {"filter": ""}),
        (f"{BIG}/groups/seek", {"group": "audit", "to": "latest", "step": "preview"}),
    )


def _paint(browser: Any, server: BenchServer, path: str) -> None:
    """The median of three first paints in a browser without a cache, and the bytes on the wire."""
    paints, sizes = [], []
    for _ in range(3):
        page = browser.new_context().new_page()
        page.goto(server.url + path)
        page.wait_for_load_state("load" if path == "/ui/live" else "networkidle")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        sizes.append(page.evaluate(WIRE_BYTES))
        page.context.close()
    costs = _cost(server, lambda: server.ask("GET", path, accept="text/html"))
    _print(statistics.median(paints), max(sizes), costs, path)


def _act(server: BenchServer, path: str, form: dict[str, str]) -> None:
    """A form that is posted: the time of its reply instead of the paint."""
    connection, sizes = server.connect(), []

    def post() -> None:
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": server.url, "accept-encoding": "gzip"}
        connection.request("POST", path, urlencode(form), headers)
        reply = connection.getresponse()
        sizes.append(len(reply.read()))
        assert reply.status == 200, (path, form, reply.status)

    began = time.monotonic()
    costs = _cost(server, post)
    _print((time.monotonic() - began) / 3 * 1e3, max(sizes), costs, f"POST {path} {json.dumps(form)}")


def _cost(server: BenchServer, ask: Any) -> tuple[float, float]:
    """CPU milliseconds and bytes read from files of one request, as the mean of three."""
    cpu_s, read = server.cpu_s(), server.file_bytes()
    for _ in range(3):
        ask()
    return (server.cpu_s() - cpu_s) / 3 * 1e3, (server.file_bytes() - read) / 3


def _print(wall_ms: float, size: float, costs: tuple[float, float], name: str) -> None:
    cpu_ms, read = costs
    print(f"{wall_ms:6.0f} ms {size / 1024:6.1f} KiB {cpu_ms:8.1f} ms {read / 1024:10.1f} KiB  {name}")
