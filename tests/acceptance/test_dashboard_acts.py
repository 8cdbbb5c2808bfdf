"""Acts of the dashboard, clicked in a real browser as a person would, and checked by the API."""

from __future__ import annotations

import json

import pytest
from dashboard_desk import open_desk, without_script_errors
from http_server import running
from receiver import LOOPBACK, receiving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with open_desk(tmp_path_factory.mktemp("acts") / "data") as desk:
        yield desk


@pytest.fixture
def desk(started):
    with without_script_errors(started):
        yield started


def test_queue_is_created_and_its_settings_are_changed_after_a_review(desk):
    desk.open("/")
    desk.follow("text=New queue")
    desk.submit("Create the queue", name="made", namespace="shop", partitions="2", retention="keep")
    assert "The queue was created." in desk.text()
    assert desk.get("/v1/queues/shop/made")["config"]["partitions"] == 2
    desk.follow("nav >> text=Settings")
    desk.submit("Review the change", max_retries="7", **{"backoff.kind": "fixed"})
    rows = desk.page.inner_text("table.diff")
    assert "max_retries" in rows and "backoff.kind" in rows and "lease_ms" not in rows
    assert desk.get("/v1/queues/shop/made")["config"]["max_retries"] == 3, "a review changes nothing"
    desk.submit("Save")
    config = desk.get("/v1/queues/shop/made")["config"]
    assert config["max_retries"] == 7 and config["backoff"]["kind"] == "fixed"


def test_settings_that_remove_messages_need_the_name(desk):
    desk.server.ask("PUT", "/v1/queues/kept", {"retention": {"mode": "keep"}})
    desk.server.publish("kept", 1, 2, 3)
    leased = desk.server.lease("kept")
    desk.server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in leased]})
    desk.open("/ui/q/default/default/kept/settings")
    desk.submit("Review the change", **{"retention.mode": "until_acked"})
    desk.submit("Save")
    assert "3 messages" in desk.text()
    desk.submit("Save", typed="kep")
    assert "type kept to confirm" in desk.text()
    assert desk.get("/v1/queues/kept")["config"]["retention"]["mode"] == "keep"
    desk.submit("Save", typed="kept")
    assert "The settings were saved." in desk.text()
    assert desk.get("/v1/queues/kept")["config"]["retention"]["mode"] == "until_acked"


@pytest.mark.parametrize(
    ("form", "field", "value", "message"),
    [
        ("/ui/queues/new", "name", "a b", "is not a queue path"),
        ("/ui/q/default/default/forms/settings", "lease_ms", "soon", "expected a whole number"),
        ("/ui/q/default/default/forms/settings", "max_retries", "-4", "max_retries"),
        ("/ui/q/default/default/forms/publish", "payload", "{", "this is not JSON"),
        ("/ui/q/default/default/forms/publish", "headers", "no colon", "one header per line"),
        ("/ui/schedules/new", "cron", "every day", "cron"),
        ("/ui/webhooks/new", "url", "ftp://example.com", "url"),
    ],
)
def test_bad_input_is_refused_at_its_field_and_changes_nothing(desk, form, field, value, message):
    desk.server.ask("PUT", "/v1/queues/forms", {})
    before = desk.get("/v1/queues")["total"], desk.get("/v1/queues/forms")
    desk.open(form)
    for name in ("name", "queue", "url"):
        if name != field and desk.page.locator(f'main [name="{name}"][required]').count():
            desk.page.fill(f'main [name="{name}"]', "https://example.com/" if name == "url" else "forms")
    desk.page.fill(f'main [name="{field}"]', value)
    desk.follow("main form[method=post] button")
    if desk.page.locator("table.diff").count():
        desk.submit("Save")
    shown = desk.page.inner_text("main [id^=e-], main .callout.bad")
    assert message in shown
    assert (desk.get("/v1/queues")["total"], desk.get("/v1/queues/forms")) == before


def test_message_is_published_explained_rescheduled_and_cancelled(desk):
    desk.server.ask("PUT", "/v1/queues/letters", {})
    desk.open("/ui/q/default/default/letters")
    desk.follow("text=Publish a message")
    desk.submit("Publish", payload='{"to": "ada"}', key="user-1", delay_ms="600000", headers="tenant: acme\nlang: en")
    assert "The message is stored." in desk.text()
    assert "Scheduled: due in" in desk.page.inner_text("#why")
    stored = desk.get("/v1/read?queue=letters")["messages"][0]
    assert (stored["payload"], stored["key"]) == ({"to": "ada"}, "user-1")
    assert stored["headers"] == {"tenant": "acme", "lang": "en"}
    desk.submit("Reschedule", delay_ms="1200000")
    assert "The message was rescheduled." in desk.text()
    (waiting,) = desk.get(f"/v1/explain?queue=letters&id={stored['id']}")["messages"]
    assert waiting["reasons"][0]["due_at_ms"] - stored["published_at_ms"] > 1_000_000
    desk.follow("text=Cancel the message…")
    desk.submit("Cancel the message", typed=stored["id"])
    (cancelled,) = desk.get(f"/v1/explain?queue=letters&id={stored['id']}")["messages"]
    assert cancelled["state"] not in ("scheduled", "ready")


def test_messages_are_filtered_masked_and_shown_without_a_lease(desk):
    desk.server.publish("browse", *({"n": number, "name": f"secret-{number}"} for number in range(60)), key="k")
    desk.open("/ui/q/default/default/browse/messages?view=log")
    assert desk.page.locator("details.message").count() == 25
    desk.follow("text=Go on from offset 25")
    assert "secret-25" in desk.text()
    desk.open("/ui/q/default/default/browse/messages?view=log")
    desk.submit("Show", filter="payload.n >= 58")
    assert desk.page.locator("details.message").count() == 2
    desk.page.check("[name=mask]")
    desk.submit("Show")
    assert "secret" not in desk.page.content()
    desk.submit("Show", filter="payload.n >=")
    assert "expected a text" in desk.page.inner_text("#e-filter")
    assert desk.get("/v1/stats?queue=browse")["groups"] == []


def test_group_is_created_moved_after_a_preview_and_deleted_by_name(desk):
    desk.server.ask("PUT", "/v1/queues/grouped", {"retention": {"mode": "keep"}})
    desk.server.publish("grouped", *range(10))
    desk.open("/ui/q/default/default/grouped")
    desk.follow("text=New group")
    desk.submit("Create the group", group="audit", to="latest")
    desk.follow("tr:has-text('audit') >> text=Seek")
    desk.submit("Preview", to="earliest")
    assert "get 10 messages again" in desk.text()
    assert desk.get("/v1/groups?queue=grouped")["groups"][0]["lag"] == 0
    desk.submit("Move the group")
    assert desk.get("/v1/groups?queue=grouped")["groups"][0]["lag"] == 10
    desk.follow("tr:has-text('audit') >> text=Delete")
    desk.submit("Delete the group", typed="wrong")
    assert "type audit to confirm" in desk.text()
    desk.submit("Delete the group", typed="audit")
    assert desk.get("/v1/groups?queue=grouped")["groups"] == []


def test_dead_letters_are_grouped_filtered_planned_redriven_and_deleted(desk):
    desk.die(
        "failed", *[f"TimeoutError: no answer after {n} s" for n in range(6)], "ValueError: bad", "ValueError: bad"
    )
    desk.open("/ui/dead")
    desk.follow("text=failed")
    table = desk.page.inner_text("section:has-text('By error') table")
    assert "TimeoutError: no answer after <number> s" in table and "6" in table
    desk.follow("tr:has-text('TimeoutError') >> text=Filter >> nth=0")
    assert desk.page.locator("input[name=ids]").count() == 6
    desk.submit("Dry run", rate_per_s="1000")
    assert "6 dead letters would be redriven" in desk.page.inner_text("#plan")
    assert desk.get("/v1/stats?queue=failed")["dead"] == 8, "a dry run changes nothing"
    desk.submit("Redrive 6")
    desk.server.wait_until(lambda: desk.get("/v1/dlq/redrives?queue=failed")["redrives"][0]["status"] == "finished")
    assert desk.get("/v1/stats?queue=failed")["dead"] == 2
    desk.open("/ui/q/default/default/failed/dead")
    assert "finished" in desk.page.inner_text("section:has-text('Redrives')")
    desk.page.check("input[name=ids] >> nth=0")
    assert desk.page.inner_text("#chosen") == "1 selected"
    desk.submit("Delete…")
    desk.submit("Delete them", typed="failed")
    assert desk.get("/v1/stats?queue=failed")["dead"] == 1
    desk.submit("Dry run", rate_per_s="many")
    assert "expected a whole number" in desk.text()


def test_alarm_of_dead_letters_is_on_the_overview(desk):
    desk.server.ask("PUT", "/v1/queues/alarmed", {"dead_letter_alarm": {"count": 1}})
    desk.die("alarmed", "bad", "bad")
    desk.server.wait_until(lambda: desk.get("/v1/stats/summary")["dead_letter_alarms"])
    desk.open("/")
    assert "Dead letters of alarmed are too many" in desk.page.inner_text("[role=alert]")
    desk.follow("text=Open the workbench")
    assert desk.page.url.endswith("/ui/q/default/default/alarmed/dead")


def test_redrive_can_be_stopped(desk):
    desk.die("slowly", *["ValueError: bad"] * 20)
    desk.open("/ui/q/default/default/slowly/dead")
    desk.submit("Dry run", rate_per_s="1")
    desk.submit("Redrive 20")
    desk.submit("Stop")
    (redrive,) = desk.get("/v1/dlq/redrives?queue=slowly")["redrives"]
    assert redrive["status"] == "stopped" and redrive["redriven"] < 20


def test_dead_letters_are_exported_as_json_lines(desk):
    desk.die("exported", "first", "second")
    desk.open("/ui/q/default/default/exported/dead")
    with desk.page.expect_download() as waiting:
        desk.page.click("text='Export'")
    lines = waiting.value.path().read_text().splitlines()
    assert [json.loads(line)["error"] for line in lines] == ["first", "second"]


def test_queue_is_purged_and_deleted_by_name(desk):
    desk.server.publish("doomed", *range(5))
    desk.open("/ui/q/default/default/doomed")
    desk.follow("text=Remove all messages…")
    assert "5 messages" in desk.text()
    desk.submit("Remove all messages", typed="other")
    assert desk.get("/v1/stats?queue=doomed")["depth"] == 5
    desk.submit("Remove all messages", typed="doomed")
    assert desk.get("/v1/stats?queue=doomed")["depth"] == 0
    desk.follow("text=Delete the queue…")
    desk.submit("Delete the queue", typed="doomed")
    assert desk.server.ask("GET", "/v1/queues/doomed").status == 404
    assert desk.page.url.startswith(desk.server.url + "/ui/queues")


def test_schedule_is_made_paused_run_and_deleted(desk):
    desk.open("/ui/schedules")
    desk.follow("text=New schedule")
    desk.submit("Save the schedule", name="nightly", queue="reports", cron="0 3 * * *", payload='{"kind": "daily"}')
    assert desk.page.locator("section:has-text('Next fire times') tr").count() == 5
    desk.submit("Pause")
    assert desk.get("/v1/schedules/nightly")["state"] == "paused"
    desk.submit("Resume")
    assert desk.get("/v1/schedules/nightly")["state"] == "active"
    desk.submit("Run now")
    assert desk.get("/v1/read?queue=reports")["messages"][0]["payload"] == {"kind": "daily"}
    desk.open("/ui/schedules/s/nightly")
    desk.follow("text=Delete…")
    desk.submit("Delete the schedule", typed="nightly")
    assert desk.server.ask("GET", "/v1/schedules/nightly").status == 404


def test_webhook_is_made_paused_rotated_and_deleted(desk):
    desk.server.ask("PUT", "/v1/queues/hooked", {})
    desk.open("/ui/webhooks/new")
    desk.submit("Create the webhook", url="https://example.com/hooks", queue="hooked", description="to the ERP")
    secret = desk.page.inner_text(".callout.good pre")
    assert secret.startswith("whsec_")
    (made,) = desk.get("/v1/webhooks?queue=hooked")["webhooks"]
    desk.open(f"/ui/webhooks/w/{made['id']}")
    assert secret not in desk.page.content()
    desk.submit("Pause")
    assert desk.get(f"/v1/webhooks/{made['id']}")["state"] == "paused"
    desk.submit("Rotate the secret")
    assert desk.page.inner_text(".callout.good pre") != secret
    desk.follow("text=Delete…")
    desk.submit("Delete the webhook", typed=made["id"])
    assert desk.get("/v1/webhooks?queue=hooked")["webhooks"] == []


def test_jump_with_the_keyboard(desk):
    desk.server.publish("far-away", 1)
    desk.open("/ui/schedules")
    desk.page.keyboard.press("Control+k")
    desk.page.keyboard.type("far-aw")
    desk.page.wait_for_selector(".hits a:has-text('far-away')")
    desk.page.keyboard.press("ArrowDown")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_url("**/ui/q/default/default/far-away")
    (message,) = desk.get("/v1/read?queue=far-away")["messages"]
    desk.page.keyboard.press("Control+k")
    desk.page.keyboard.insert_text(message["id"])
    desk.page.wait_for_selector(f".hits a:has-text('{message['id']}') >> nth=0")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_url(f"**/far-away/messages/{message['id']}")
    desk.page.go_back()
    desk.page.wait_for_url("**/ui/q/default/default/far-away")


def test_late_reply_to_a_search_does_not_replace_the_list_under_the_keyboard(desk):
    desk.server.publish("slow-search", 1)
    desk.server.publish("other-search", 1)
    desk.open("/ui/schedules")
    held = []
    desk.page.keyboard.press("Control+k")
    desk.page.keyboard.insert_text("slow-")
    desk.page.wait_for_selector(".hits:not(:has-text('other-search')) a:has-text('slow-search')")
    desk.page.route("**/ui/jump?q=slow-s", lambda route: held.append(route))
    with desk.page.expect_request("**/ui/jump?q=slow-s"):
        desk.page.keyboard.type("s")
    desk.page.keyboard.press("ArrowDown")
    late = '<ul class="hits"><li><a href="/ui/q/default/default/other-search">other-search</a></li></ul>'
    with desk.page.expect_response("**/ui/jump?q=slow-s") as reply:
        held[0].fulfill(body=late, content_type="text/html")
    reply.value.finished()
    desk.page.unroute("**/ui/jump?q=slow-s")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_url("**/ui/q/default/default/slow-search")


def test_queue_stays_on_top_and_theme_is_remembered(desk):
    for name in ("aaa", "zzz"):
        desk.server.ask("PUT", f"/v1/queues/{name}", {})
    desk.open("/ui/queues")
    desk.follow("tr:has-text('zzz') >> button")
    assert desk.page.inner_text("tbody tr >> nth=0").split()[1] == "zzz"
    desk.page.click("#theme")
    theme = desk.page.get_attribute("html", "data-theme")
    desk.open("/ui/schedules")
    assert desk.page.get_attribute("html", "data-theme") == theme
    desk.open("/ui/queues")
    desk.follow("tr:has-text('zzz') >> button")
    assert desk.page.inner_text("tbody tr >> nth=0").split()[1] == "aaa"


def test_live_tail_shows_events_as_they_happen(desk):
    desk.open("/ui/live?queue=tailed")
    desk.page.wait_for_selector("#tail-state:has-text('live')")
    desk.server.publish("untold", 1)
    (stored,) = desk.server.publish("tailed", 1)
    desk.page.wait_for_selector(f"#tail li:has-text('{stored['id']}')")
    assert "untold" not in desk.page.inner_text("#tail")
    desk.page.click("#tail-pause")
    assert desk.page.inner_text("#tail-state") == "paused"
    desk.open("/ui/queues")


def test_page_of_another_site_cannot_act(desk):
    desk.server.ask("PUT", "/v1/queues/guarded", {})
    answer = desk.server.ask(
        "POST",
        "/ui/q/default/default/guarded/delete",
        b"typed=guarded",
        origin="http://evil.example",
        content_type="application/x-www-form-urlencoded",
    )
    assert answer.status == 403
    assert desk.server.ask("GET", "/v1/queues/guarded").status == 200
    assert desk.server.ask("GET", "/ui/q/default/default/guarded/delete?typed=guarded").status == 200
    assert desk.server.ask("GET", "/v1/queues/guarded").status == 200


def test_late_numbers_do_not_replace_what_is_being_read(desk):
    desk.server.publish("opened", {"n": 1})
    desk.open("/ui/q/default/default/opened")
    held = []
    desk.page.route("**/ui/q/default/default/opened", lambda route: held.append(route))
    with desk.page.expect_request("**/ui/q/default/default/opened"):
        desk.page.evaluate("document.body.dispatchEvent(new CustomEvent('live'))")
    field = "document.querySelector('#live').append(document.createElement('input'))"
    desk.page.evaluate(f"{field}; document.querySelector('#live input').focus()")
    with desk.page.expect_response("**/ui/q/default/default/opened") as late:
        held[0].continue_()
    late.value.finished()
    desk.page.unroute("**/ui/q/default/default/opened")
    desk.page.keyboard.type("kept")
    desk.page.evaluate("() => new Promise(requestAnimationFrame)")
    assert desk.page.input_value("#live input") == "kept"


def test_error_of_a_renewal_keeps_the_page(desk):
    desk.server.publish("vanished", 1)
    desk.open("/ui/q/default/default/vanished")
    asked = desk.server.ask("DELETE", "/v1/queues/vanished")
    token = asked.json["error"]["details"]["confirm"]
    assert desk.server.ask("DELETE", f"/v1/queues/vanished?confirm={token}").status == 200
    with desk.page.expect_response("**/ui/q/default/default/vanished") as refused:
        desk.page.evaluate("document.body.dispatchEvent(new CustomEvent('live'))")
    refused.value.finished()
    desk.page.evaluate("() => new Promise(requestAnimationFrame)")
    assert refused.value.status == 404
    assert desk.page.locator("#live .figure").count()


def test_dead_letter_is_edited_and_replayed(desk):
    desk.server.publish("edited", {"total": "12,50"}, key="user-1", headers={"tenant": "acme"})
    (leased,) = desk.server.lease("edited")
    desk.server.ask("POST", "/v1/reject", {"receipts": [leased["receipt"]], "error": "ValueError: 12,50"})
    desk.open("/ui/q/default/default/edited/dead")
    desk.follow("text=Timeline")
    desk.follow("text=Edit and replay")
    assert '"total": "12,50"' in desk.page.input_value("[name=payload]")
    desk.submit("Publish and delete the letter", payload="{")
    assert "this is not JSON" in desk.page.inner_text("#e-payload")
    assert desk.get("/v1/stats?queue=edited")["dead"] == 1
    desk.submit("Publish and delete the letter", payload='{"total": 12.5}')
    assert "the dead letter was deleted" in desk.text()
    assert desk.get("/v1/stats?queue=edited")["dead"] == 0
    (again,) = desk.server.lease("edited")
    assert (again["payload"], again["key"], again["headers"]) == ({"total": 12.5}, "user-1", {"tenant": "acme"})


def test_consumers_and_latencies_are_on_the_page_of_the_queue(desk):
    desk.server.publish("worked", *range(9))
    leased = desk.server.lease("worked", max=5, consumer="worker-9")
    desk.server.ask("POST", "/v1/ack", {"receipts": [leased[0]["receipt"]]})
    desk.open("/ui/q/default/default/worked")
    row = desk.page.inner_text("section:has-text('Consumers that hold messages') tbody")
    assert row.split() == ["worker-9", "default", "4"]
    for name in ("Delivery p95", "Ack p95"):
        assert "p99" in desk.page.inner_text(f".figure:has-text('{name}')")
    desk.page.wait_for_selector(".chart > * >> nth=3")


def test_attempt_of_a_webhook_is_sent_again(tmp_path, desk):
    with running(tmp_path / "data", "--webhook-allow", LOOPBACK) as server, receiving() as receiver:
        server.ask("PUT", "/v1/queues/hooked", {"retention": {"mode": "keep"}})
        made = server.ask("POST", "/v1/webhooks", {"queue": "hooked", "url": receiver.url}).json
        server.publish("hooked", {"n": 1})
        receiver.wait_for(1)
        server.wait_until(lambda: server.ask("GET", f"/v1/webhooks/attempts?id={made['id']}").json["attempts"])
        desk.page.goto(f"{server.url}/ui/webhooks/w/{made['id']}")
        desk.follow("text=Send again")
        assert "Sent again: delivered" in desk.page.inner_text("[role=status]")
        assert len({delivery.id for delivery in receiver.wait_for(2)}) == 1
        assert "by hand" in desk.page.inner_text("section:has-text('Attempts') tbody")


def test_environment_and_masked_fields_of_the_settings(tmp_path, desk):
    flags = (
        "--environment",
        "Production <b>EU</b>",
        "--environment-color",
        "amber",
        "--mask",
        "Password",
        "--mask",
        "iban",
    )
    with running(tmp_path / "data", *flags) as server:
        payload = {"user": "ada", "password": "hunter2", "bank": [{"IBAN": "DE89370400440532013000"}]}
        server.ask("PUT", "/v1/queues/masked", {"retention": {"mode": "keep"}})
        (stored,) = server.publish("masked", payload, headers={"password": "hunter2"})
        server.ask("POST", "/v1/reject", {"receipts": [server.lease("masked")[0]["receipt"]]})
        queue = "/ui/q/default/default/masked"
        for path in (
            f"{queue}/messages?view=log",
            f"{queue}/messages/{stored['id']}",
            f"{queue}/dead",
            f"{queue}/dead/export",
        ):
            text = server.ask("GET", path, accept="text/html").body.decode()
            assert "ada" in text and "hunter2" not in text and "DE893704" not in text, path
        desk.page.goto(server.url + queue)
        assert desk.page.inner_text(".environment.amber") == "Production <b>EU</b>"
        desk.page.goto(f"{server.url}{queue}/messages/{stored['id']}/edit")
        assert "masked fields" in desk.text()
        # The API shows payloads to callers that may read them.
        assert server.ask("GET", "/v1/dlq?queue=masked").json["messages"][0]["payload"] == payload


def test_storage_and_the_oldest_message_are_on_the_overview(desk):
    desk.server.publish("aged", 1)
    desk.open("/")
    text = desk.page.inner_text("section:has-text('Storage')")
    assert "sync always" in text and "Journal" in text and "free" in text
    assert "oldest" in desk.page.inner_text(".figure:has-text('Backlog')")
