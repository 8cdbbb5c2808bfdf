"""Renew the pictures of the documentation, `docs/images/dashboard-*.png`: `make screenshots`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from browser import open_browser
from dashboard_seed import fill, write_history
from http_server import running

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
ORDERS = "/ui/q/shop/default/orders"
VIEWS = {"overview": ("/", "light"), "queue": (ORDERS, "dark"), "dead-letters": (f"{ORDERS}/dead", "light")}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        write_history(Path(place) / "data")
        with running(Path(place) / "data") as server, open_browser() as browser:
            fill(server)
            letter = server.ask("GET", "/v1/dlq?queue=shop/orders").json["messages"][0]["id"]
            for name, (path, scheme) in {**VIEWS, "message": (f"{ORDERS}/messages/{letter}", "light")}.items():
                page = browser.new_page(viewport={"width": 1180, "height": 760}, color_scheme=scheme)
                page.goto(server.url + path)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=IMAGES / f"dashboard-{name}.png")
                page.close()


if __name__ == "__main__":
    main()
