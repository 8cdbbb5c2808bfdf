"""The example page in a real browser: publish, read, consume, and reconnect after a restart of the broker."""

from __future__ import annotations

import functools
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import open_browser
from http_server import Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    """A server for the page, with another origin than the broker."""
    handler = functools.partial(_Quiet, directory=str(EXAMPLES))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_example_page(page, site, tmp_path):
    listen = f"127.0.0.1:{free_port()}"
    flags = ("--listen", listen, "--allowed-origin", site)
    server = Server(tmp_path / "data", *flags)
    try:
        page.goto(f"{site}/websocket.html")
        page.fill("#url", f"ws://{listen}/v1/ws")
        page.click("text=Connect")
        page.wait_for_selector("#state[data-state=open]")
        publish(page, "first")
        page.wait_for_selector('#tail li:has-text("first")')
        page.click('#work li:has-text("first") >> text=ack')
        page.wait_for_selector('#work li:has-text("done")')
        server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=browser").json["depth"] == 0)
        # The page reconnects to the restarted broker and gets the messages of the meantime.
        server.terminate()
        page.wait_for_selector("#state[data-state=waiting]")
        server = Server(tmp_path / "data", *flags)
        server.publish("browser", "meanwhile")
        page.wait_for_selector("#state[data-state=open]")
        page.wait_for_selector('#work li:has-text("meanwhile")')
        page.wait_for_selector('#tail li:has-text("meanwhile")')
    finally:
        server.kill()


def test_example_page_is_complete_after_a_restart_before_the_first_message(page, site, tmp_path):
    listen = f"127.0.0.1:{free_port()}"
    flags = ("--listen", listen, "--allowed-origin", site)
    server = Server(tmp_path / "data", *flags)
    try:
        page.goto(f"{site}/websocket.html")
        page.fill("#url", f"ws://{listen}/v1/ws")
        page.click("text=Connect")
        reading = 'penstock_websocket_subscriptions{role="reader"} 1.0'
        server.wait_until(lambda: reading in server.ask("GET", "/metrics").body.decode())
        server.terminate()
        page.wait_for_selector("#state[data-state=waiting]")
        # On another port, so that the page reconnects only after the publish.
        elsewhere = Server(tmp_path / "data")
        elsewhere.publish("browser", "meanwhile")
        elsewhere.terminate()
        server = Server(tmp_path / "data", *flags)
        page.wait_for_selector('#tail li:has-text("meanwhile")')
    finally:
        server.kill()


def test_page_of_another_origin_is_refused(page, site, tmp_path):
    server = Server(tmp_path / "data")
    try:
        page.goto(f"{site}/websocket.html")
        page.fill("#url", f"ws://127.0.0.1:{server.port}/v1/ws")
        page.click("text=Connect")
        page.wait_for_selector("#state[data-state=waiting]")
        assert 'transport="websocket"} 0.0' in server.ask("GET", "/metrics").body.decode()
    finally:
        server.kill()


def publish(page, text: str) -> None:
    page.fill("#text", text)
    page.click("button:has-text('Publish')")
    page.wait_for_selector("#published:has-text('stored as')")
