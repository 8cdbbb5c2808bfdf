"""Texts of users are shown as text: strings that are scripts elsewhere, through every field that the pages show."""

from __future__ import annotations

import pytest
from browser import PATIENCE_MS, follow, open_browser
from http_server import Server, running

pytestmark = pytest.mark.slow

ATTACKS = (
    "<script>window.attacked = 1</script>",
    "<img src=x onerror='window.attacked = 1'>",
    '"><svg onload=window.attacked=1>',
    "' onmouseover='window.attacked=1' x='",
    "javascript:window.attacked=1",
    "</textarea><script>window.attacked=1</script>",
    "</title><script>window.attacked=1</script>",
    "{{ 7 * 7 }}{% print 1 %}",
    "<a href=javascript:window.attacked=1 id=main>x</a>",
    "\u202e<b hx-get='/v1/queues' hx-trigger='load'>x</b>",
    "<template><iframe srcdoc='<script>parent.attacked=1</script>'></template>",
    "\x00\x1b[31m]]>--><!--",
)
ATTACK = " ".join(ATTACKS)
HARMLESS = ATTACK.replace("\x00", "").replace("\x1b", "")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with running(tmp_path_factory.mktemp("safety") / "data") as server, open_browser() as browser:
        server.ask("PUT", "/v1/queues/attacked", {"max_retries": 0, "backoff": {"kind": "none"}})
        places = fill(server)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield server, page, places


def fill(server: Server) -> list[str]:
    """Puts the strings into every field that takes text; returns the pages that show them."""
    headers = {f"h{number}": HARMLESS for number in range(2)}
    (stored,) = server.publish(
        "attacked", {ATTACK: [ATTACK], "a": ATTACK}, key=ATTACK[:120], headers=headers, id=HARMLESS[:100]
    )
    server.publish("attacked", *ATTACKS, key=ATTACKS[1])
    raw = {"payload_b64": "PHNjcmlwdD53aW5kb3cuYXR0YWNrZWQ9MTwvc2NyaXB0Pg==", "delay_ms": 600_000}
    server.ask("POST", "/v1/publish", {"queue": "attacked", "messages": [raw]})
    leased = server.lease("attacked", max=2, consumer=HARMLESS[:60])
    for message in leased:
        server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]], "error": HARMLESS})
    server.ask("POST", "/v1/lease", {"queue": "attacked", "max": 1, "consumer": HARMLESS[:60], "group": "default"})
    schedule = {"queue": "attacked", "cron": "0 3 * * *", "message": {"payload": ATTACK, "key": ATTACKS[2]}}
    assert server.ask("PUT", "/v1/schedules/attacked", schedule).status == 201
    hook = {"queue": "attacked", "group": "hook", "url": "https://example.com/hooks?javascript:1", "paused": True}
    made = server.ask("POST", "/v1/webhooks", {**hook, "description": HARMLESS[:200]})
    assert made.status == 201, made.body
    queue = "/ui/q/default/default/attacked"
    searched = "%22%3E%3Csvg%20onload%3Dwindow.attacked%3D1%3E"
    return [
        "/", "/ui/queues", f"/ui/queues?q={searched}", f"/ui/queues?sort={searched}", queue,
        f"{queue}?group={searched}",
        f"{queue}/messages", f"{queue}/messages?view=log", f"{queue}/messages?view=log&filter={searched}",
        f"{queue}/messages?view=log&offset={searched}&partition={searched}", f"{queue}/messages?group={searched}",
        f"{queue}/dead", f"{queue}/dead?filter={searched}", f"{queue}/dead?after={searched}",
        f"{queue}/messages/{stored['id']}", f"{queue}/messages/{leased[1]['id']}", f"{queue}/messages/{searched}",
        f"{queue}/messages/{leased[1]['id']}/edit", f"{queue}/messages/{searched}/edit",
        f"{queue}/groups/seek?group={searched}", f"{queue}/groups/delete?group={searched}",
        "/ui/schedules/s/attacked", f"/ui/schedules/s/{searched}", "/ui/webhooks", f"/ui/webhooks/w/{made.json['id']}",
        f"/ui/webhooks/w/{searched}", f"/ui/webhooks/new?queue={searched}", f"/ui/live?queue={searched}",
        f"/ui/live?kind={searched}", f"/ui/jump?q={searched}", "/ui/connections", f"/ui/{searched}",
        f"/ui/q/a/b/{searched}", f"/ui/dead?page={searched}",
    ]  # fmt: skip


def test_no_script_of_a_user_runs_on_any_page(pages):
    server, page, places = pages
    shown = 0
    for place in places:
        page.goto(server.url + place)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.evaluate("window.attacked") is None, place
        # The only scripts are those of the site; there are no handlers and no javascript: links.
        assert page.evaluate(
            """() => [...document.querySelectorAll('script')].every(each => each.src.includes('/ui/static/'))
                && ![...document.querySelectorAll('*')].some(each => [...each.attributes].some(
                    held => held.name.startsWith('on') || /^\\s*javascript:/i.test(held.value) && held.name !== 'value'
                        && held.name !== 'title'))
                && !document.querySelector('iframe, object, embed, base')"""
        ), place
        shown += "window.attacked" in page.inner_text("body")
    assert shown >= 10, "the strings are on the pages, as text"


def test_strings_are_shown_as_they_are_in_forms_that_were_refused(pages):
    server, page, _ = pages
    for path, fields, button in (
        ("/ui/queues/new", ("name", "namespace", "task", "partitions"), "Create the queue"),
        ("/ui/schedules/new", ("name", "queue", "cron", "timezone", "payload", "key", "headers"), "Save the schedule"),
        ("/ui/webhooks/new", ("url", "queue", "group", "description"), "Create the webhook"),
        ("/ui/q/default/default/attacked/publish", ("payload", "key", "delay_ms", "priority", "headers"), "Publish"),
        ("/ui/q/default/default/attacked/groups", ("group",), "Create the group"),
    ):
        page.goto(server.url + path)
        for field in fields:
            page.fill(f'main [name="{field}"]', ATTACKS[5])
        follow(page, f"main button:has-text('{button}')")
        assert page.locator("main .callout.bad, main .error").count(), path
        assert page.evaluate("window.attacked") is None, path
        assert page.input_value(f'main [name="{fields[0]}"]') == ATTACKS[5]


def test_live_tail_shows_consumers_and_errors_as_text(pages):
    server, page, _ = pages
    page.goto(f"{server.url}/ui/live")
    page.wait_for_selector("#tail-state:has-text('live')")
    server.publish("attacked", 1, id=ATTACKS[0])
    (leased,) = server.lease("attacked", max=1, consumer=ATTACKS[1], group="second")
    server.ask("POST", "/v1/reject", {"receipts": [leased["receipt"]], "error": HARMLESS})
    page.wait_for_selector("#tail li:has-text('dead_lettered')")
    assert page.evaluate("window.attacked") is None
    assert ATTACKS[1] in page.inner_text("#tail")


@pytest.mark.parametrize("body", [b"%ff=%ff", b"a=1&" * 2000, b"\xff\xfe"])
def test_forms_that_cannot_be_read_are_refused(pages, body):
    server, _, _ = pages
    form = "application/x-www-form-urlencoded"
    answer = server.ask("POST", "/ui/queues/new", body, content_type=form, origin=server.url)
    assert answer.status == 400
