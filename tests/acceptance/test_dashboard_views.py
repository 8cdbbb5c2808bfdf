"""Every page of the dashboard in a real browser: content, errors of scripts, accessibility, width, weight."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PATIENCE_MS, follow, open_browser
from dashboard_seed import fill, write_history
from http_server import Server, running

from penstock.dashboard import assets
from tests.unit.analytics_lake import MINUTE_MS, NOON_MS, make_lake

pytestmark = pytest.mark.slow

ORDERS = "/ui/q/shop/default/orders"
AXE = Axe()
VIEWS = {
    "overview": ("/", "Largest backlogs"),
    "queues": ("/ui/queues", "email/notifications/welcome"),
    "queues found": ("/ui/queues?q=INV&sort=ready", "shop/invoices"),
    "queue": (ORDERS, "Why the first message waits"),
    "next messages": (f"{ORDERS}/messages", '"customer"'),
    "log": (f"{ORDERS}/messages?view=log&filter=payload.total+%3E+200", "messages were read"),
    "dead letters": (f"{ORDERS}/dead", "ValueError: order <number> has no lines"),
    "settings": (f"{ORDERS}/settings", "Review the change"),
    "publish": (f"{ORDERS}/publish", "Headers"),
    "seek": (f"{ORDERS}/groups/seek?group=audit", "Move group audit"),
    "new group": (f"{ORDERS}/groups", "Starts at"),
    "confirmation": (f"{ORDERS}/delete", "Type shop/orders to confirm"),
    "message": ("{dead}", "Given up and among the dead letters"),
    "timeline": ("{dead}/timeline", "Dead lettered"),
    "edited letter": ("{dead}/edit", "Publish and delete the letter"),
    "scheduled message": ("{scheduled}", "Scheduled: due in"),
    "scheduled messages": ("/ui/q/email/default/reminders/scheduled", "Reschedule or cancel"),
    "queues with dead letters": ("/ui/dead", "Workbench"),
    "queues with scheduled messages": ("/ui/scheduled", "email/reminders"),
    "schedules": ("/ui/schedules", "nightly-report"),
    "schedule": ("/ui/schedules/s/nightly-report", "Next fire times"),
    "new schedule": ("/ui/schedules/new", "Time zone"),
    "webhooks": ("/ui/webhooks", "https://example.com/hooks"),
    "webhook": ("{webhook}", "Requests at a time"),
    "new webhook": ("/ui/webhooks/new", "Create the webhook"),
    "new queue": ("/ui/queues/new", "Create the queue"),
    "live tail": ("/ui/live", "as they become durable"),
    "connections": ("/ui/connections", "127.0.0.1:"),
    "analytics": ("/ui/analytics", "Long history comes from the lake"),
    "unknown page": ("/ui/nowhere", "There is no page"),
    "unknown queue": ("/ui/q/a/b/nowhere", "there is no queue a/b/nowhere"),
}


class Pages:
    """A server with the queues of a shop, and a browser."""

    def __init__(self, server: Server, browser):
        self.server = server
        self.browser = browser
        letters = server.ask("GET", "/v1/dlq?queue=shop/orders").json["messages"]
        explained = server.ask("GET", "/v1/explain?queue=email/reminders").json["messages"]
        webhook = server.ask("GET", "/v1/webhooks").json["webhooks"][0]
        self.places = {
            "dead": f"{ORDERS}/messages/{letters[0]['id']}",
            "scheduled": f"/ui/q/email/default/reminders/messages/{explained[0]['id']}",
            "webhook": f"/ui/webhooks/w/{webhook['id']}",
        }

    def url(self, path: str) -> str:
        return self.server.url + path.format(**self.places)

    def open(self, path: str, **options):
        page = self.browser.new_page(**options)
        page.set_default_timeout(PATIENCE_MS)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else None)
        page.goto(self.url(path))
        return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    data = tmp_path_factory.mktemp("views") / "data"
    write_history(data)
    with running(data) as server, open_browser() as browser:
        fill(server)
        yield Pages(server, browser)


@pytest.mark.parametrize("view", VIEWS)
def test_view_has_its_content_no_barriers_and_fits_a_narrow_screen(pages, view):
    path, text = VIEWS[view]
    page = pages.open(path, color_scheme="light")
    page.wait_for_selector("main h1")
    assert text in page.inner_text("main")
    assert not barriers(page)
    page.emulate_media(color_scheme="dark")
    assert not barriers(page, {"runOnly": ["color-contrast"]})
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # A page that is not found is an error of the network for the console, not of a script.
    assert not [problem for problem in page.problems if "404" not in problem]
    page.close()


def barriers(page, options: dict | None = None) -> list[tuple[str, list]]:
    """Violations of accessibility rules that are serious or critical, with the elements."""
    found = AXE.run(page, options={"resultTypes": ["violations"], **(options or {})}).response["violations"]
    return [
        (rule["id"], [node["target"] for node in rule["nodes"]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


def test_charts_show_yesterday_after_a_start(pages):
    page = pages.open("/")
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart canvas").count() == 2
    series = pages.server.ask("GET", "/v1/series?queue=shop/orders").json
    known = [value for value in series["series"]["published"] if value is not None]
    assert series["step_ms"] == 60_000 and len(known) > 1_300
    page.close()


def test_numbers_of_an_open_page_are_renewed(pages):
    page = pages.open("/ui/q/shop/default/invoices")
    page.wait_for_selector(".chart canvas >> nth=3")
    before = page.inner_text(".figure .value")
    page.evaluate("window.kept = true")
    pages.server.publish("shop/invoices", *range(1000))
    page.evaluate("document.body.dispatchEvent(new CustomEvent('live'))")
    page.wait_for_function("before => document.querySelector('.figure .value').textContent !== before", arg=before)
    assert page.evaluate("window.kept")
    assert page.locator(".chart canvas").count() == 4
    page.close()


def test_pages_work_without_scripts(pages):
    page = pages.open("/ui/queues?q=orders", java_script_enabled=False)
    follow(page, "text=shop/orders")
    follow(page, "nav >> text=Messages")
    page.click("details.message >> nth=0")
    follow(page, "text=Timeline and reasons")
    follow(page, "text=Search the journal")
    assert "Published" in page.inner_text(".timeline")
    page.close()


def test_page_of_a_message_is_there_before_its_timeline(pages):
    page = pages.browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    held = []
    page.route("**/timeline", lambda route: held.append(route))
    page.goto(pages.url("{dead}"))
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    assert "Given up" in page.inner_text("#why") and not page.locator(".timeline").count()
    page.wait_for_function("document.querySelector('#timeline[hx-get]')")
    held[0].continue_()
    page.wait_for_selector("li.dead_lettered:has-text('attempt 1')")
    times = page.locator(".timeline li .nowrap > :first-child").all_inner_texts()
    assert times == sorted(times) and len(times) == 3
    assert page.locator("#timeline").count() == 1
    page.close()


def test_weight_of_the_pages_is_bounded(pages):
    everything = sum(len(asset.compressed) for asset in assets.assets().values())
    assert everything <= 250 * 1024
    for path, _ in VIEWS.values():
        answer = pages.server.ask("GET", path.format(**pages.places), accept="text/html", accept_encoding="gzip")
        text = gzip.decompress(answer.body) if answer.headers["content-encoding"] == "gzip" else answer.body
        assert len(answer.body) + everything <= 200 * 1024, path
        assert b"<script>" not in text and b" style=" not in text and b" onclick=" not in text


@pytest.mark.parametrize("path", ["/", ORDERS])
def test_page_with_charts_is_light_on_the_wire(pages, path):
    page = pages.open(path)
    page.wait_for_selector(".chart canvas")
    page.wait_for_load_state("networkidle")
    entries = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    assert page.evaluate(f"{entries}.reduce((sum, each) => sum + each.transferSize, 0)") <= 200 * 1024
    assert page.evaluate(f"{entries}.filter(each => each.name.includes('/v1/series')).length") == 1
    page.close()


def test_front_page_is_json_for_programs(pages):
    answer = pages.server.ask("GET", "/")
    assert answer.json["name"] == "penstock"
    page = pages.server.ask("GET", "/", accept="text/html,*/*")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_assets_have_licences_and_are_kept_by_browsers(pages):
    page = pages.server.ask("GET", "/", accept="text/html").body.decode()
    for url in re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', page):
        assert "immutable" in pages.server.ask("GET", url).headers["cache-control"]
    static = Path(assets.__file__).parent / "static"
    assert {path.name for path in static.glob("*.LICENSE.txt")} == {"htmx.LICENSE.txt", "uplot.LICENSE.txt"}
    assert pages.server.ask("GET", "/ui/static/../site.py").status == 404


def test_page_of_a_thousand_queues_has_one_page_of_them(pages):
    table = pages.server.ask("GET", "/v1/stats/queues?sort=depth&limit=2&page=1").json
    assert len(table["queues"]) == 2 and table["total"] == 5
    assert table["queues"][0]["depth"] >= table["queues"][1]["depth"]
    assert table["sum"]["depth"] == sum(
        row["depth"] for row in pages.server.ask("GET", "/v1/stats/queues").json["queues"]
    )
    assert (
        json.loads(pages.server.ask("GET", "/v1/stats/queues?sort=nothing").body)["error"]["code"] == "invalid_request"
    )


def test_analytics_has_charts_consumers_and_failures_of_the_lake(pages, tmp_path):
    with running(tmp_path / "data", "--lake", make_lake(tmp_path / "lake")) as server:
        server.publish("shop/orders/new", 1, 2, 3)
        page = pages.browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{server.url}/ui/analytics?from_ms={NOON_MS}&to_ms={NOON_MS + 12 * MINUTE_MS}")
        assert "31 ms" in page.inner_text("tr:has-text('shop/orders/new')")
        follow(page, "text=shop/orders/new")
        page.wait_for_selector(".chart canvas >> nth=4")
        text = page.inner_text("main")
        assert "ada" in text and "order <number> is broken" in text
        assert not barriers(page)
        follow(page, "text=week")
        assert page.url.endswith("range=week") and "Consumers" in page.inner_text("main")
        page.close()
