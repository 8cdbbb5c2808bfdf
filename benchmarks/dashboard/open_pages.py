"""The cost of 20 open pages for a broker that is busy all the time.

A page asks for its numbers every five seconds and for its charts every minute. These are seconds of the server's CPU
here: a server whose core is never idle has as many requests of pages in its way, on a machine with other work too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.client import HTTPConnection

from benchmarks.dashboard.server import BenchServer, serving
from benchmarks.dashboard.slices import PER_SLICE, ROUNDS, Cost, compare, work

PAGES = 20
QUEUES = 1_000
RENEWAL_S, CHARTS_S = 5.0, 60.0
CHECK_OPERATIONS = 10
QUEUE = "/ui/q/default/default/load"
CHARTS = "/v1/series?columns=published,acked,depth,dead"
VIEWS = (
    ("/", CHARTS), ("/ui/queues", None), (QUEUE, CHARTS + "&queue=load"), ("/ui/dead", None), ("/ui/connections", None),
)  # fmt: skip
"""Page, and the call of its charts."""


class OpenPages:
    """Pages that different visitors have open, as the server sees them."""

    def __init__(self, server: BenchServer):
        self._server = server
        self._connections = [server.connect() for _ in range(PAGES)]
        now_s = server.cpu_s()
        self._due = [now_s + RENEWAL_S * number / PAGES for number in range(PAGES)]
        self._charts_due = [now_s + CHARTS_S * number / PAGES for number in range(PAGES)]
        self._operations = 0

    def renew(self) -> None:
        """Called after each operation: asks what pages would have asked meanwhile."""
        self._operations += 1
        if self._operations % CHECK_OPERATIONS:
            return
        now_s = self._server.cpu_s()
        for number, connection in enumerate(self._connections):
            page, charts = VIEWS[number % len(VIEWS)]
            if self._due[number] <= now_s:
                self._due[number] += RENEWAL_S
                _get(connection, page, number)
            if charts and self._charts_due[number] <= now_s:
                self._charts_due[number] += CHARTS_S
                _get(connection, charts, number)

    def pause(self) -> None:
        """The pages are closed for a slice, and do not ask for that time later."""
        self._paused_s = self._server.cpu_s()

    def resume(self) -> None:
        closed_s = self._server.cpu_s() - self._paused_s
        self._due = [due + closed_s for due in self._due]
        self._charts_due = [due + closed_s for due in self._charts_due]


def _get(connection: HTTPConnection, path: str, visitor: int) -> None:
    headers = {"hx-request": "true", "accept": "text/html", "accept-encoding": "gzip", "cookie": f"visitor={visitor}"}
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    reply.read()


@contextlib.contextmanager
def live_tail(server: BenchServer) -> Iterator[None]:
    """One page with the live tail. The events of a slice have room in the buffers of the connection."""
    connection = server.connect()
    connection.request("GET", "/v1/events/stream")
    connection.getresponse()
    try:
        yield
    finally:
        connection.close()


def open_pages(*, quick: bool = False) -> None:
    rounds, operations = ROUNDS // 4 if quick else ROUNDS, PER_SLICE
    with serving("--fsync", "never") as server:
        for number in range(QUEUES):
            server.ask("PUT", f"/v1/queues/shop/q{number}", {})
        work(server, operations)
        pages = OpenPages(server)
        pages.pause()

        def with_pages() -> Cost:
            pages.resume()
            cost = work(server, operations, pages.renew)
            pages.pause()
            return cost

        def with_tail() -> Cost:
            with live_tail(server):
                return work(server, operations)

        compare(
            {
                "no page": lambda: work(server, operations), "no page, again": lambda: work(server, operations),
                f"{PAGES} pages": with_pages, "a live tail": with_tail,
            },
            rounds,
        )  # fmt: skip
