"""Renew the pictures of the documentation, `docs/images/dashboard-*.png`: `make screenshots`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import open_browser
from dashboard_seed import fill, write_history
from http_server import running

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
ORDERS = "/ui/q/shop/default/orders"
VIEWS = {
    "overview": ("/", "light"),
    "queues": ("/ui/queues", "light"),
    "queue": (ORDERS, "dark"),
    "messages": (f"{ORDERS}/messages?view=log&filter=payload.total+%3E+200", "light"),
    "dead-letters": (f"{ORDERS}/dead", "light"),
}


def main(*names: str) -> None:
    """All pictures, or those with these names."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        write_history(Path(place) / "data")
        with running(Path(place) / "data") as server, open_browser() as browser:
            fill(server)
            letter = server.ask("GET", "/v1/dlq?queue=shop/orders").json["messages"][0]["id"]
            views = {**VIEWS, "message": (f"{ORDERS}/messages/{letter}", "light")}
            for name, (path, scheme) in views.items():
                if names and name not in names:
                    continue
                page = browser.new_page(viewport={"width": 1180, "height": 760}, color_scheme=scheme)
                page.goto(server.url + path)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=IMAGES / f"dashboard-{name}.png")
                page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
