"""Bad input in every field of every form, and in every URL: a message at the field, and nothing changes."""

from __future__ import annotations

import itertools
import re
from urllib.parse import quote

import pytest
from dashboard_desk import open_desk, without_script_errors

from penstock.dashboard.site import ROUTES

pytestmark = pytest.mark.slow

QUEUE = "/ui/q/default/default/forms"
GOOD = {"name": "fine", "queue": "forms", "url": "https://example.com/", "group": "fine", "at": "2026-01-02T03:04:05"}
"""Values that the other required fields of a form get."""
NUMBERS = ("x", "1.5", "-1", "9" * 30)
FORMS = {
    "/ui/queues/new": {
        "name": ("", "a b", "-x", "x" * 65), "namespace": ("a b", "x" * 65), "task": ("a/b/c", "ü"),
        "partitions": ("x", "0", "-1", "9" * 30),
    },
    f"{QUEUE}/publish": {
        "payload": ("{", "", "[1,]"), "delay_ms": NUMBERS, "priority": ("x", "9" * 30),
        "headers": ("no colon", ": no name"), "key": ("k" * 70_000,),
    },
    f"{QUEUE}/groups": {"group": ("", "-x", "a b")},
    f"{QUEUE}/settings": {
        **dict.fromkeys(
            ("lease_ms", "max_retries", "backoff.base_ms", "backoff.cap_ms", "dead_letter_max", "dead_letter_ttl_ms",
             "delay_ms", "ttl_ms", "window_ms", "max_messages", "max_payload_bytes", "retention.ms", "retention.bytes"),
            NUMBERS,
        ),
        "partitions": ("x", "0", "-1", "9" * 30), "queue_priority": ("x", "9" * 30),
        "backoff.factor": ("x", "0", "nan"),
    },
    f"{QUEUE}/dead?filter=": {
        "filter": ("error", 'error ~ "', "nothing = 1", "(" * 300), "rate_per_s": ("x", "-1", "9" * 30),
        "target": ("a b", "-x"), "delay_ms": NUMBERS,
    },
    f"{QUEUE}/messages?view=log": {
        "filter": ("key", 'key = "', "nothing = 1"), "offset": ("x", "-1", "9" * 30, "at:x"),
    },
    "/ui/schedules/new": {
        "name": ("", "a b", "-x"), "queue": ("", "a b"), "cron": ("", "every day", "61 * * * *"),
        "timezone": ("Mars/Olympus",), "payload": ("{",), "priority": ("x", "9" * 30), "headers": ("no colon",),
        "key": ("k" * 5_000,),
    },
    "/ui/webhooks/new": {
        "url": ("", "ftp://example.com", "example.com", "http://127.0.0.1/", "https://"), "queue": ("", "a b"),
        "group": ("-x", "a b"), "description": ("d" * 10_000,),
    },
    "{scheduled}": {"delay_ms": ("", *NUMBERS)},
}  # fmt: skip
HOSTILE = (
    "",
    "-1",
    "9" * 30,
    "0",
    "NaN",
    "../..",
    "%",
    "a\x00b",
    "\u202e<b>",
    "'\"`",
    "at:-1",
    "1e9",
    "x" * 3_000,
    "{{7*7}}",
    "\ud7ff",
)
TIMES = {f"{QUEUE}/groups/seek?group=default": ("Preview", "at"), f"{QUEUE}/groups": ("Create the group", "at")}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with open_desk(tmp_path_factory.mktemp("input") / "data") as desk:
        desk.server.ask("PUT", "/v1/queues/forms", {"max_retries": 0, "retention": {"mode": "keep"}})
        desk.die("forms", "ValueError: bad")
        (later,) = desk.server.ask(
            "POST", "/v1/publish", {"queue": "forms", "messages": [{"payload": 1, "delay_ms": 3_600_000}]}
        ).json["messages"]
        desk.scheduled = f"{QUEUE}/messages/{later['id']}"
        yield desk


@pytest.fixture
def desk(started):
    with without_script_errors(started):
        yield started


def state(desk) -> list:
    """All that the forms could change."""
    return [
        [(queue["queue"], queue["config"]) for queue in desk.get("/v1/queues")["queues"]],
        [(group["group"], group["lag"]) for group in desk.get("/v1/groups?queue=forms")["groups"]],
        desk.get("/v1/schedules"),
        [webhook["id"] for webhook in desk.get("/v1/webhooks")["webhooks"]],
        desk.get("/v1/dlq/redrives?queue=forms"),
        [(each["id"], each["due_at_ms"]) for each in desk.get("/v1/scheduled?queue=forms")["messages"]],
        desk.get("/v1/read?queue=forms")["messages"],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_bad_value_is_refused_at_its_field_and_changes_nothing(desk, form):
    before = state(desk)
    wrong = [
        (name, value[:80], problem)
        for name, values in FORMS[form].items()
        for value in values
        if (problem := _try(desk, form, name, value))
    ]
    assert not wrong
    assert state(desk) == before


def _try(desk, form: str, name: str, value: str) -> str:
    """Submits the form with this value of a field; returns what is wrong with the answer."""
    desk.open(form.format(scheduled=desk.scheduled))
    page, field = desk.page, desk.page.locator(f'main [name="{name}"]:not([type=hidden])')
    holder = field.locator("xpath=ancestor::form[1]")
    for other in holder.locator("[required]").all():
        other.fill(GOOD[other.get_attribute("name")])
    # The browser itself would refuse an empty field; the server must too.
    holder.evaluate("each => { each.noValidate = true }")
    field.evaluate("(each, value) => { each.value = value }", value)
    with page.expect_navigation() as reply:
        holder.locator("button").first.click()
    if page.locator("table.diff").count():
        with page.expect_navigation() as reply:
            page.click("main button:has-text('Save')")
    if reply.value.status != 400:
        return f"status {reply.value.status}"
    marked = page.locator("main [aria-invalid]")
    names = [each.get_attribute("name") for each in marked.all()]
    if names != [name]:
        return f"marked is {names}: {page.inner_text('main')[-300:]} {page.locator('.callout').all_inner_texts()}"
    described = marked.get_attribute("aria-describedby")
    if len(page.inner_text(f'[id="{described}"]')) < 6:
        return "no message"
    # The text is still there to be corrected.
    return "" if marked.input_value() == value.strip() else f"the field has {marked.input_value()[:80]!r}"


@pytest.mark.parametrize("form", TIMES)
def test_time_that_is_missing_is_asked_for(desk, form):
    button, field = TIMES[form]
    desk.server.ask("PUT", "/v1/groups", {"queue": "forms", "group": "default"})
    before = state(desk)
    desk.open(form)
    if desk.page.locator("[name=group][required]").count():
        desk.page.fill("[name=group]", "fine")
    desk.submit(button, to="at")
    assert "give a time in UTC" in desk.page.inner_text(f"#e-{field}")
    assert state(desk) == before


def test_hostile_urls_are_answered_and_change_nothing(desk):
    before = state(desk)
    names = (
        "page",
        "sort",
        "q",
        "offset",
        "partition",
        "view=log&filter",
        "group",
        "after",
        "view=log&since",
        "range",
        "from_ms",
        "queue",
        "note",
    )
    for pattern, _ in ROUTES:
        for value in HOSTILE:
            text = quote(value, safe="")
            path = re.sub(r"\(\?P<\w+>[^)]*\)", lambda _, text=text: text, pattern)
            paths = [path] if path != pattern else [f"{path}?{name}={text}" for name in names]
            for path in paths:
                answer = desk.server.ask("GET", path, accept="text/html")
                assert answer.status < 500 or answer.status == 501, (path, answer.body[:300])
    assert state(desk) == before


def test_hostile_forms_are_answered_and_change_nothing(desk):
    before = state(desk)
    kind, queue = "application/x-www-form-urlencoded", QUEUE
    for path, value in itertools.product(
        ("/ui/queues/new", "/ui/queues/pin", f"{queue}/groups", f"{queue}/groups/seek", f"{queue}/groups/delete",
         f"{queue}/publish", f"{queue}/settings", f"{queue}/dead/stop", f"{queue}/dead/delete", f"{queue}/purge",
         f"{queue}/delete", f"{queue}/messages/x/cancel", f"{queue}/messages/x/edit", "/ui/schedules/new",
         "/ui/schedules/s/x/pause", "/ui/webhooks/new", "/ui/webhooks/w/x/rotate"),
        ("", "=", "typed=x&ids=x&filter=%22", "to=at&at=999999999999999999999999", "order=none&partitions=2e9"),
    ):  # fmt: skip
        answer = desk.server.ask("POST", path, value.encode(), content_type=kind, origin=desk.server.url)
        assert answer.status < 500, (path, value, answer.body[:300])
    assert state(desk) == before
