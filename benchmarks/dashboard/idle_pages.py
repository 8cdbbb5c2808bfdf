"""The CPU time that a page which was left open costs a server of 1,000 queues, for each minute: real Chromium."""

from __future__ import annotations

import sys
import time

from benchmarks.dashboard.server import BenchServer, serving
from benchmarks.dashboard.views import ACCEPTANCE

PAGES = 10
QUEUES = 1_000
SECONDS = 60.0
QUEUE = "/ui/q/many/default/q7"
VIEWS = ("/", "/ui/queues", QUEUE, f"{QUEUE}/messages", "/ui/dead", "/ui/connections", "/ui/live")


def idle_pages(*, quick: bool = False) -> None:
    sys.path.insert(0, str(ACCEPTANCE))
    from browser import open_browser

    seconds = SECONDS / 4 if quick else SECONDS
    with serving() as server, open_browser() as browser:
        for number in range(QUEUES):
            server.ask("POST", "/v1/publish", {"queue": f"many/q{number}", "messages": [{"payload": number}]})
        asked: list[str] = []
        blank = browser.new_page()
        base = _cpu_per_s(server, blank, seconds)
        print(f"{base * 60_000:7.1f} ms CPU a minute  no page")
        for view in VIEWS:
            # Browsers have few connections for one server, and each live tail holds one.
            pages = [browser.new_page() for _ in range(PAGES)]
            for page in pages:
                page.on("request", lambda request: asked.append(request.url))
                page.goto(server.url + view)
                page.wait_for_load_state("load" if view == "/ui/live" else "networkidle")
            asked.clear()
            cost = (_cpu_per_s(server, blank, seconds) - base) / PAGES
            print(
                f"{cost * 60_000:7.1f} ms CPU a minute  {len(asked) / PAGES / seconds * 60:5.1f} requests a minute"
                f"  each page {view}"
            )
            for page in pages:
                page.close()


def _cpu_per_s(server: BenchServer, page: object, seconds: float) -> float:
    """CPU seconds of the server in one second, while the browser works."""
    before_s, began_s = server.cpu_s(), time.monotonic()
    page.wait_for_timeout(seconds * 1_000)  # type: ignore[attr-defined]
    return (server.cpu_s() - before_s) / (time.monotonic() - began_s)
