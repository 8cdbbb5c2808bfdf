"""Figures of the dashboard, of the minute series and of tracing.

    python -m benchmarks.dashboard series       space of the minute series of 500 busy queues
    python -m benchmarks.dashboard views        first paint and bytes of every view at 1,000 queues, 1M dead letters, 10M messages
    python -m benchmarks.dashboard open_pages   cost of 20 open pages for publish, lease and ack
    python -m benchmarks.dashboard tracing      cost of tracing: off, and on at 1 %

Costs are CPU time of the server per operation, in rounds that alternate, so that other work on the machine does not count.
`views --quick` has a hundredth of the messages. `views` needs Chromium and the test dependencies.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from sys import getsizeof

from penstock import Client
from penstock.broker.series import DAY, HOUR, group_key
from penstock.broker.series_block import SeriesBlock

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = 1_000
ROUNDS = 5
PAGES = 20
RENEWAL_S = 5.0


class BenchServer:
    """A broker in a process of its own, and one connection to it."""

    def __init__(self, data_dir: str, *flags: str):
        command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off"]
        self.process = subprocess.Popen(
            [*command, "--data-dir", data_dir, "--log-level", "error", *flags], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[1].removeprefix("http=")
        self._connection = HTTPConnection(self.url.removeprefix("http://"))

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, target, data, {"content-type": "application/json", **headers})
        reply = self._connection.getresponse()
        content = reply.read()
        assert reply.status < 300, content
        return content

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[BenchServer]:
    with tempfile.TemporaryDirectory() as place:
        server = BenchServer(f"{place}/data", *flags)
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait()


def publish_us(server: BenchServer) -> float:
    before = server.cpu_s()
    for number in range(OPERATIONS):
        server.ask("POST", "/v1/publish", {"queue": "load", "messages": [{"payload": {"n": number}}]})
    return (server.cpu_s() - before) / OPERATIONS * 1e6


def lease_ack_us(server: BenchServer) -> float:
    before = server.cpu_s()
    for _ in range(OPERATIONS):
        (message,) = json.loads(server.ask("POST", "/v1/lease", {"queue": "load"}))["messages"]
        server.ask("POST", "/v1/ack", {"receipts": [message["receipt"]]})
    return (server.cpu_s() - before) / OPERATIONS * 1e6


def compare(names: list[str], measure: Callable[[str], tuple[float, float]]) -> None:
    """Rounds that alternate; the median of each, and the ratio of the first to it."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            taken[name].append(measure(name))
    for column, what in enumerate(("publish", "lease+ack")):
        medians = {name: statistics.median(each[column] for each in taken[name]) for name in names}
        for name in names:
            print(f"{what:10} {name:14} {medians[name]:8.1f} us CPU  {medians[names[0]] / medians[name]:.3f}x")


# -- series -------------------------------------------------------------------------------------------------------


def series() -> None:
    dice, start = random.Random(3), 29_916_000
    hour, day = SeriesBlock(start, 1, HOUR), SeriesBlock(start, 10, DAY // 10)
    for number in range(500):
        rate, depth = dice.randrange(5_000), dice.randrange(100_000)
        for block in (hour, day):
            for at in range(0, block.count * block.step, block.step):
                wait, work = dice.randrange(1, 40), dice.randrange(1, 40)
                sums = (rate + dice.randrange(100), rate, rate, dice.randrange(3))
                gauges = (depth + dice.randrange(200), depth, 40, 0, 12)
                latencies = (wait, 2 * wait, 4 * wait, work, 2 * work, 4 * work)
                block.put(f"shop/orders/queue-{number}", start + at, (*sums, *gauges, *latencies))
                group = (0, 0, rate, 0, depth, depth, 40, 0, 0, -1, -1, -1, *latencies[3:])
                block.put(group_key(f"shop/orders/queue-{number}", "default"), start + at, group)
    on_disk = 48 * len(hour.encode()) + 31 * len(day.encode())
    in_memory = 2 * sum(
        getsizeof(rows) + getsizeof(rows.columns) + sum(getsizeof(each) for each in rows.columns if each is not None)
        for rows in hour.keys.values()
    )
    print(f"500 busy queues with a group each, 30 days: {on_disk / 2**20:.1f} MiB on disk (64)")
    print(f"two hours in memory: {in_memory / 2**20:.1f} MiB (8)")


# -- open pages ---------------------------------------------------------------------------------------------------


def open_pages() -> None:
    with serving() as server:
        for number in range(200):
            server.ask("PUT", f"/v1/queues/shop/q{number}", {})
        watching, stopping = threading.Event(), threading.Event()
        viewers = [threading.Thread(target=_view, args=(server.url, at, watching, stopping)) for at in range(PAGES)]
        for viewer in viewers:
            viewer.start()

        def measure(name: str) -> tuple[float, float]:
            (watching.set if name != "no page" else watching.clear)()
            time.sleep(RENEWAL_S / 2)
            return publish_us(server), lease_ack_us(server)

        try:
            compare(["no page", f"{PAGES} pages"], measure)
        finally:
            stopping.set()
            watching.set()
            for viewer in viewers:
                viewer.join()


def _view(url: str, number: int, watching: threading.Event, stopping: threading.Event) -> None:
    """An open page: it asks as the script of the pages does, as another visitor than the others."""
    path = ("/", "/ui/queues", "/ui/q/default/default/load", "/ui/dead")[number % 4]
    headers = {"hx-request": "true", "accept": "text/html", "accept-encoding": "gzip", "cookie": f"visitor={number}"}
    while not stopping.wait(RENEWAL_S * (0.8 + 0.4 * random.random())):
        if watching.is_set():
            connection = HTTPConnection(url.removeprefix("http://"))
            connection.request("GET", path, headers=headers)
            connection.getresponse().read()
            connection.close()


# -- tracing ------------------------------------------------------------------------------------------------------


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


def tracing() -> None:
    """The collector takes the spans and drops them."""
    with contextlib.ExitStack() as stack:
        collector = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        stack.callback(collector.shutdown)
        url = f"http://127.0.0.1:{collector.server_port}"
        flags = {"off": (), "off again": (), "on at 1 %": ("--trace", url, "--trace-sample", "0.01")}
        servers = {name: stack.enter_context(serving(*each)) for name, each in flags.items()}
        compare(list(servers), lambda name: (publish_us(servers[name]), lease_ack_us(servers[name])))


# -- views --------------------------------------------------------------------------------------------------------

LETTERS, MESSAGES = 1_000_000, 10_000_000
BATCH = 5_000


async def _fill(url: str, letters: int, messages: int) -> None:
    async with Client(url) as client:
        for number in range(1_000):
            await client.queue(f"many/q{number}").publish({"n": number})
        big = client.queue("shop/big")
        for at in range(0, messages, BATCH):
            await big.publish_many([{"n": number} for number in range(at, at + BATCH)])
        dead = client.queue("shop/dead")
        for at in range(0, letters, BATCH):
            await dead.publish_many([{"n": number} for number in range(at, at + BATCH)])
        done = 0
        async for batch in dead.consume_batches(max=BATCH):
            await batch.reject(error=f"ValueError: order {done} has no lines")
            done += len(batch)
            if done >= letters:
                break


def views(*options: str) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "acceptance"))
    from browser import open_browser

    scale = 100 if "--quick" in options else 1
    with serving() as server:
        begun = time.monotonic()
        server.ask("PUT", "/v1/queues/shop/dead", {"max_retries": 0})
        asyncio.run(_fill(server.url, LETTERS // scale, MESSAGES // scale))
        print(f"filled in {time.monotonic() - begun:.0f} s")
        letter = json.loads(server.ask("GET", "/v1/dlq?queue=shop/dead&limit=1"))["messages"][0]["id"]
        big, dead = "/ui/q/shop/default/big", "/ui/q/shop/default/dead"
        with open_browser() as browser:
            for path in (
                "/", "/ui/queues", "/ui/queues?sort=depth&page=3", "/ui/queues?q=q99", big, f"{big}/messages",
                f"{big}/messages?view=log&offset={5_000_000 // scale}", f"{big}/settings", f"{dead}/dead",
                f"{dead}/dead?filter=error+~+%22lines%22", f"{dead}/messages/{letter}", "/ui/dead", "/ui/scheduled",
                "/ui/schedules", "/ui/webhooks", "/ui/live", "/ui/connections", "/ui/analytics",
            ):  # fmt: skip
                _paint(browser, server, path)


def _paint(browser: object, server: BenchServer, path: str) -> None:
    """The median of three first paints in a browser without a cache, and the bytes on the wire."""
    paints, sizes = [], []
    for _ in range(3):
        page = browser.new_context().new_page()  # type: ignore[attr-defined]
        page.goto(server.url + path)
        page.wait_for_load_state("load" if path == "/ui/live" else "networkidle")
        while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
            time.sleep(0.01)
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        sizes.append(
            page.evaluate(
                "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
                ".reduce((sum, each) => sum + each.transferSize, 0)"
            )
        )
        page.context.close()
    before = server.cpu_s()
    for _ in range(3):
        server.ask("GET", path, accept="text/html")
    cpu_ms = (server.cpu_s() - before) / 3 * 1000
    print(f"{statistics.median(paints):6.0f} ms  {max(sizes) / 1024:6.1f} KiB  {cpu_ms:6.1f} ms CPU  {path}")


if __name__ == "__main__":
    named = {each.__name__: each for each in (series, open_pages, tracing, views)}
    if len(sys.argv) < 2 or sys.argv[1] not in named:
        sys.exit(f"python -m benchmarks.dashboard {'|'.join(named)}")
    named[sys.argv[1]](*sys.argv[2:])
