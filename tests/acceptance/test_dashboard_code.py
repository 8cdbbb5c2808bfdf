"""Code that the pages show runs as it is; completion and jumps take what a person types."""

from __future__ import annotations

import html
import os
import subprocess
import sys

import pytest
from dashboard_desk import Desk, open_desk, without_script_errors
from http_server import running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with open_desk(tmp_path_factory.mktemp("code") / "data") as desk:
        yield desk


@pytest.fixture
def desk(started):
    with without_script_errors(started):
        yield started


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PENSTOCK_KEY"}


def run(code: str, **environment: str) -> None:
    """Runs code of a page: Python, or a line of a shell."""
    command = [sys.executable, "-c", code] if code.startswith("from ") else ["sh", "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env={**ENVIRONMENT, **environment})
    assert done.returncode == 0 and b'"error":{' not in done.stdout, done.stdout + done.stderr


def test_message_is_published_again_by_the_code_that_was_copied(desk):
    payload = {"text": 'it\'s "here" $HOME `id` \\ é', "none": None, "yes": True}
    sent = {"key": "user-1", "headers": {"tenant": "it's"}}
    desk.server.publish("copied", payload, **sent)
    desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    desk.open("/ui/q/default/default/copied/messages")
    desk.page.click("details.message >> nth=0")
    desk.page.click("text=Publish it again with curl or Python")
    for number in (1, 2):  # the first code is the payload itself
        desk.page.click(f"details.message .code >> nth={number} >> text=Copy")
        desk.page.wait_for_selector(f"details.message .code >> nth={number} >> text=Copied")
        run(desk.page.evaluate("navigator.clipboard.readText()"))
    stored = desk.get("/v1/read?queue=copied")["messages"]
    assert [message["payload"] for message in stored] == [payload] * 3
    assert all({name: message[name] for name in sent} == sent for message in stored)


def test_code_of_empty_states_fills_them(desk, tmp_path):
    with running(tmp_path / "data") as server:
        empty = Desk(server, desk.page)
        for path, appears in (
            ("/ui/queues", "orders"), ("/ui/scheduled", "orders"), ("/ui/schedules", "nightly"),
            ("/ui/webhooks", "https://example.com/hooks"), ("/ui/dead", "orders"),
        ):  # fmt: skip
            empty.open(path)
            code = empty.page.inner_text("main .code pre")
            run(code.replace(".consume()", ".consume(wait=1.0)"))
            server.wait_until(lambda path=path, appears=appears: _shows(empty, path, appears))


def _shows(desk, path: str, text: str) -> bool:
    desk.open(path)
    return text in desk.page.inner_text("main table") if desk.page.locator("main table").count() else False


def test_code_names_the_server_as_the_browser_does_and_a_key_where_one_is_needed(desk):
    desk.server.ask("PUT", "/v1/queues/named", {})
    path = "/ui/q/default/default/named/scheduled"
    port = desk.server.url.rpartition(":")[2]
    for headers, url in (
        ({"host": f"localhost:{port}"}, f"http://localhost:{port}/v1/publish"),
        ({"host": f"localhost:{port}", "x-forwarded-proto": "https"}, f"https://localhost:{port}/v1/publish"),
    ):
        text = desk.server.ask("GET", path, accept="text/html", **headers).body.decode()
        assert f"curl -s {url} -d" in text and "PENSTOCK_KEY" not in text


def test_code_asks_for_a_key_where_the_server_does(tmp_path):
    with running(tmp_path / "data", "--auth", "keys") as server:
        key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        page = server.ask("GET", "/ui/queues", accept="text/html", authorization=f"Bearer {key}").body.decode()
        (code,) = [part.partition("</pre>")[0] for part in page.split('<pre tabindex="0">')[1:]]
        run(html.unescape(code), PENSTOCK_KEY=key)
        queues = server.ask("GET", "/v1/queues", authorization=f"Bearer {key}").json["queues"]
        assert [queue["queue"] for queue in queues] == ["default/default/orders"]


def test_jump_finds_a_message_by_its_id_and_by_that_of_its_client_in_any_queue(desk):
    for number in range(15):
        desk.server.publish(f"crowd/q{number}", *range(5))
    (stored,) = desk.server.publish("crowd/small", 1, id="invoice/4711")
    desk.open("/ui/schedules")
    for text in (stored["id"], stored["id"].lower(), "invoice/4711"):
        desk.page.keyboard.press("Control+k")
        desk.page.keyboard.insert_text(text)
        desk.page.wait_for_selector(".hits a:has-text('in crowd/small')")
        assert desk.page.locator(".hits a").count() == 1
        desk.page.keyboard.press("Enter")
        desk.page.wait_for_url("**/crowd/default/small/messages/**")
        desk.page.wait_for_selector("li.published")
        desk.page.go_back()
        desk.page.wait_for_url("**/ui/schedules")
    desk.page.keyboard.press("Control+k")
    desk.page.keyboard.insert_text("nowhere-to-be-found")
    desk.page.wait_for_selector("text=and no message has it as its id")


def test_every_part_of_a_filter_is_completed(desk):
    desk.server.publish("completed", {"n": 1})
    offered = "[...document.querySelectorAll('#filters option')].map(each => each.value)"
    for path in ("messages?view=log", "dead"):
        desk.open(f"/ui/q/default/default/completed/{path}")
        desk.page.focus("#f-filter")
        desk.page.keyboard.type("ke")
        assert 'key = ""' in desk.page.evaluate(offered)
        desk.page.keyboard.type('y = "a" ')
        assert desk.page.evaluate(offered) == ['key = "a" and ', 'key = "a" or ']
        desk.page.keyboard.type("and ")
        assert 'key = "a" and age > 1h' in desk.page.evaluate(offered)
        desk.page.keyboard.type("(h")
        assert 'key = "a" and (header.tenant = ""' in desk.page.evaluate(offered)


def test_log_is_read_from_a_time(desk):
    desk.server.publish("timed", "before")
    desk.open("/ui/q/default/default/timed/messages")
    desk.follow("text=The log")
    desk.page.fill("[name=since]", "2001-02-03T04:05:06")
    desk.submit("Show")
    assert "before" in desk.text()
    desk.page.fill("[name=since]", "2999-01-01T00:00:00")
    desk.submit("Show")
    assert "No message was found" in desk.text()
    assert "since=2999-01-01" in desk.page.url


def test_hidden_live_tail_holds_no_connection(desk):
    streams = lambda: [  # noqa: E731
        each for each in desk.get("/v1/connections")["connections"] if each["transport"] == "event stream"
    ]
    desk.open("/ui/live")
    desk.page.wait_for_selector("#tail-state:has-text('live')")
    assert len(streams()) == 1
    hidden = "Object.defineProperty(document, 'visibilityState', {value: '%s', configurable: true})"
    desk.page.evaluate(f"{hidden % 'hidden'}; document.dispatchEvent(new Event('visibilitychange'))")
    desk.server.wait_until(lambda: not streams())
    assert desk.page.inner_text("#tail-state") == "hidden"
    desk.page.evaluate(f"{hidden % 'visible'}; document.dispatchEvent(new Event('visibilitychange'))")
    desk.page.wait_for_selector("#tail-state:has-text('live')")
    desk.open("/ui/queues")
