"""A server, a page of a browser, and the steps that tests of the dashboard share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import PATIENCE_MS, follow, open_browser
from http_server import Server, running


class Desk:
    """A server, a page of a browser, and the steps that many tests share."""

    def __init__(self, server: Server, page):
        self.server = server
        self.page = page

    def open(self, path: str) -> None:
        self.page.goto(self.server.url + path)

    def submit(self, text: str, **fields: str) -> None:
        """Fill the fields of the form and press its button."""
        for name, value in fields.items():
            field = self.page.locator(f'main [name="{name}"]:not([type=hidden])')
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        self.follow(f"main button:has-text('{text}')")

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and wait until that page is there."""
        follow(self.page, selector)

    def text(self) -> str:
        return self.page.inner_text("main")

    def get(self, target: str):
        answer = self.server.ask("GET", target)
        assert answer.status == 200, answer.body
        return answer.json

    def die(self, queue: str, *errors: str) -> None:
        self.server.publish(queue, *({"n": number} for number in range(len(errors))))
        for message, error in zip(self.server.lease(queue), errors, strict=True):
            self.server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]], "error": error})


@contextmanager
def open_desk(data: Path) -> Iterator[Desk]:
    with running(data) as server, open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield Desk(server, page)


@contextmanager
def without_script_errors(desk: Desk) -> Iterator[Desk]:
    problems: list[str] = []
    listen = lambda error: problems.append(str(error))  # noqa: E731
    desk.page.on("pageerror", listen)
    yield desk
    desk.page.remove_listener("pageerror", listen)
    assert not problems
