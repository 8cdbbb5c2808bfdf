"""Logins of people on a real server: sessions over HTTP, and the dashboard behind them in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PATIENCE_MS, follow, open_browser
from http_server import Answer, Server, running

from penstock import limits

PASSWORD = "correct horse battery"
PEOPLE = {role: f"{role}@example.com" for role in ("viewer", "operator", "admin")}
AXE = Axe()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("login") / "data"
    with running(data, "--auth", "keys") as server:
        server.key = (data / "bootstrap.key").read_text().strip()
        for role, email in PEOPLE.items():
            made = users(server, "add", email, "--role", role, typed=PASSWORD)
            assert json.loads(made.stdout)["role"] == role, made.stderr
        server.ask("PUT", "/v1/queues/shop/orders", {}, x_api_key=server.key)
        server.ask("POST", "/v1/publish", {"queue": "shop/orders", "messages": [{"payload": 1}]}, x_api_key=server.key)
        yield server


def users(server: Server, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "users", *arguments, "-o", "json"]
    environment = {**os.environ, "PENSTOCK_URL": server.url, "PENSTOCK_KEY": server.key}
    return subprocess.run(
        command, input=f"{typed}\n", capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def log_in(server: Server, email: str, password: str = PASSWORD, **headers: str) -> Answer:
    return server.ask("POST", "/v1/session", {"email": email, "password": password}, **headers)


def session_of(answer: Answer) -> dict[str, str]:
    """The headers of a request that changes something."""
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return {"cookie": f"{morsel.key}={morsel.value}", "x_csrf_token": answer.json["csrf"]}


# -- sessions -----------------------------------------------------------------------------------------------------


def test_session_has_the_scopes_of_its_role(guarded):
    for role, email in PEOPLE.items():
        answer = log_in(guarded, email.upper())
        assert answer.status == 201 and answer.json["role"] == role
        own = session_of(answer)
        assert guarded.ask("GET", "/v1/peek?queue=shop/orders", **own).status == 200
        publish = {"queue": "shop/orders", "messages": [{"payload": 1}]}
        assert guarded.ask("POST", "/v1/publish", publish, **own).status == (403 if role == "viewer" else 201)
        assert guarded.ask("GET", "/v1/keys", **own).status == (200 if role == "admin" else 403)
        assert guarded.ask("GET", "/v1/audit", **own).status == (200 if role == "admin" else 403)


def test_cookie_is_closed_to_scripts_and_other_sites(guarded):
    attributes = log_in(guarded, PEOPLE["viewer"]).headers["set-cookie"].split("; ")[1:]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {*attributes} and "Secure" not in attributes


def test_change_needs_the_token_of_the_session(guarded):
    own = session_of(log_in(guarded, PEOPLE["operator"]))
    publish = {"queue": "shop/orders", "messages": [{"payload": 1}]}
    for token in (None, "", "wrong", session_of(log_in(guarded, PEOPLE["admin"]))["x_csrf_token"]):
        headers = {"cookie": own["cookie"], **({} if token is None else {"x_csrf_token": token})}
        refused = guarded.ask("POST", "/v1/publish", publish, **headers)
        assert refused.status == 403 and "X-CSRF-Token" in refused.json["error"]["message"]
    assert guarded.ask("GET", "/v1/queues", cookie=own["cookie"]).status == 200
    assert guarded.ask("POST", "/v1/publish", publish, **own).status == 201


def test_logout_and_changes_end_sessions(guarded):
    email = "leaver@example.com"
    assert users(guarded, "add", email, "--role", "viewer", typed=PASSWORD).returncode == 0
    one, two = session_of(log_in(guarded, email)), session_of(log_in(guarded, email))
    assert guarded.ask("DELETE", "/v1/session", **one).json == {"ended": True}
    assert guarded.ask("GET", "/v1/session", **one).status == 401
    assert guarded.ask("GET", "/v1/session", **two).json["id"] == email
    changed = {"password": PASSWORD, "new_password": "another long password"}
    again = guarded.ask("POST", "/v1/session/password", changed, **two)
    assert again.status == 201 and guarded.ask("GET", "/v1/session", **two).status == 401
    third = session_of(again)
    assert log_in(guarded, email).status == 401 and log_in(guarded, email, "another long password").status == 201
    assert users(guarded, "role", email, "operator").returncode == 0
    assert guarded.ask("GET", "/v1/session", **third).status == 401
    fourth = session_of(log_in(guarded, email, "another long password"))
    assert users(guarded, "remove", email).returncode == 0
    assert guarded.ask("GET", "/v1/session", **fourth).status == 401
    assert log_in(guarded, email, "another long password").status == 401


def test_users_are_administered_with_at_most_the_own_scopes(guarded):
    asked = {"name": "x", "scopes": ["key.admin:*", "peek:*", "metrics"]}
    limited = guarded.ask("POST", "/v1/keys", asked, x_api_key=guarded.key).json["key"]
    person = {"email": "new@example.com", "password": PASSWORD}
    assert guarded.ask("POST", "/v1/users", {**person, "role": "admin"}, x_api_key=limited).status == 403
    assert guarded.ask("POST", "/v1/users", {**person, "role": "viewer"}, x_api_key=limited).status == 201
    assert guarded.ask("PATCH", "/v1/users/new@example.com", {"role": "operator"}, x_api_key=limited).status == 403
    assert guarded.ask("DELETE", f"/v1/users/{PEOPLE['admin']}", x_api_key=limited).status == 403
    assert guarded.ask("DELETE", "/v1/users/new@example.com", x_api_key=limited).status == 200


@pytest.mark.parametrize(
    ("email", "password"),
    [("nobody", PASSWORD), ("a@b@c", PASSWORD), ("a b@c.de", PASSWORD), ("", PASSWORD), ("a@b.c", "short")],
)
def test_invalid_people_are_refused(guarded, email, password):
    asked = {"email": email, "role": "viewer", "password": password}
    assert guarded.ask("POST", "/v1/users", asked, x_api_key=guarded.key).status == 400


def test_people_survive_a_crash_and_passwords_are_not_in_the_files(tmp_path):
    data = tmp_path / "data"
    with running(data, "--auth", "keys") as server:
        server.key = (data / "bootstrap.key").read_text().strip()
        assert users(server, "add", "ada@example.com", "--role", "admin", typed=PASSWORD).returncode == 0
        server.kill()
    with running(data, "--auth", "keys") as server:
        own = session_of(log_in(server, "ada@example.com"))
        assert server.ask("GET", "/v1/session", **own).json["role"] == "admin"
        stored = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
        assert PASSWORD.encode() not in stored and b"$argon2id$v=19$m=19456,t=2,p=1$" in stored


def test_wrong_passwords_are_slowed_down_per_account(tmp_path):
    data = tmp_path / "data"
    with running(data, "--auth", "keys") as server:
        server.key = (data / "bootstrap.key").read_text().strip()
        assert users(server, "add", "ada@example.com", "--role", "admin", typed=PASSWORD).returncode == 0
        answers = [log_in(server, "ada@example.com", "wrong") for _ in range(limits.FAILURES_PER_MINUTE + 1)]
        assert [answer.status for answer in answers] == [401] * limits.FAILURES_PER_MINUTE + [429]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert server.ask("GET", "/v1/queues", x_api_key=server.key).status == 200, "keys are not affected"


# -- behind a proxy -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxied(tmp_path_factory) -> Iterator[Server]:
    """A server that trusts the addresses that this test comes from, as those of a proxy."""
    data = tmp_path_factory.mktemp("proxied") / "data"
    with running(data, "--auth", "keys", "--trusted-proxy", "127.0.0.0/8") as server:
        server.key = (data / "bootstrap.key").read_text().strip()
        users(server, "add", "ada@example.com", "--role", "admin", typed=PASSWORD)
        yield server


def test_clients_of_a_proxy_do_not_lock_each_other_out(proxied):
    """Logins, and keys of which many are wrong."""
    for _ in range(limits.FAILURES_PER_MINUTE + 2):
        log_in(proxied, "nobody@example.com", "wrong", x_forwarded_for="203.0.113.9, 192.0.2.1")
    assert log_in(proxied, "ada@example.com", x_forwarded_for="192.0.2.1").status == 429
    assert log_in(proxied, "ada@example.com", x_forwarded_for="192.0.2.1, 192.0.2.2").status == 201
    assert log_in(proxied, "ada@example.com", forwarded="for=192.0.2.2;proto=https").status == 201
    wrong = [
        proxied.ask("GET", "/v1/queues", x_api_key="psk_wrong", x_forwarded_for="192.0.2.3").status
        for _ in range(limits.FAILURES_PER_MINUTE + 1)
    ]
    assert wrong[-1] == 429
    assert proxied.ask("GET", "/v1/queues", x_api_key="psk_wrong", x_forwarded_for="192.0.2.4").status == 401


def test_the_audit_trail_names_the_client_behind_the_proxy(proxied):
    log_in(proxied, "ada@example.com", x_forwarded_for="198.51.100.7, 198.51.100.8")
    entries = proxied.ask("GET", "/v1/audit?limit=100", x_api_key=proxied.key).json["entries"]
    assert "198.51.100.8" in [entry["address"] for entry in entries]
    assert "198.51.100.7" not in [entry["address"] for entry in entries]


def test_forwarded_addresses_of_others_are_ignored(tmp_path):
    with running(tmp_path / "data", "--auth", "keys", "--trusted-proxy", "10.0.0.0/8") as server:
        answers = [
            server.ask("GET", "/v1/queues", x_api_key="psk_wrong", x_forwarded_for=f"192.0.2.{number}").status
            for number in range(limits.FAILURES_PER_MINUTE + 1)
        ]
        assert answers == [401] * limits.FAILURES_PER_MINUTE + [429]


@pytest.mark.parametrize("headers", [{"x_forwarded_proto": "https"}, {"forwarded": "for=192.0.2.9;proto=https"}])
def test_cookies_are_secure_behind_a_proxy_that_has_tls(proxied, headers):
    """Also those that the login page sets."""
    form = f"email=ada%40example.com&password={PASSWORD.replace(' ', '+')}"
    by_page = proxied.ask(
        "POST", "/ui/login", form.encode(), content_type="application/x-www-form-urlencoded", **headers
    )
    by_api = log_in(proxied, "ada@example.com", **headers)
    assert by_page.status == 303 and by_api.status == 201
    for answer in (by_page, by_api):
        cookies = answer.headers.get_all("set-cookie")
        assert len(cookies) == 2 and all(cookie.endswith("; Secure") for cookie in cookies), cookies


# -- the dashboard ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser):
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    context.close()


def enter(page, server: Server, role: str, path: str = "/") -> None:
    page.goto(f"{server.url}{path}")
    page.fill("#f-email", PEOPLE[role])
    page.fill("#f-password", PASSWORD)
    follow(page, "button.first")


@pytest.mark.slow
def test_pages_need_a_session_and_lead_to_the_login(guarded, page):
    for path in ("/", "/ui/queues", "/ui/keys", "/ui/q/shop/default/orders"):
        answer = guarded.ask("GET", path, accept="text/html")
        assert answer.status == 303 and answer.headers["location"].startswith("/ui/login?next=")
    assert guarded.ask("GET", "/ui/login").status == 200
    enter(page, guarded, "viewer", "/ui/queues?q=orders")
    assert page.url.endswith("/ui/queues?q=orders") and "orders" in page.inner_text("main")
    page.goto(f"{guarded.url}/ui/login?next=https://evil.example/")
    page.fill("#f-email", PEOPLE["viewer"])
    page.fill("#f-password", PASSWORD)
    follow(page, "button.first")
    assert page.url == f"{guarded.url}/"


@pytest.mark.slow
def test_wrong_password_is_told_on_the_page(guarded, page):
    page.goto(f"{guarded.url}/ui/login")
    page.fill("#f-email", PEOPLE["viewer"])
    page.fill("#f-password", "wrong")
    follow(page, "button.first")
    assert "the email or the password is wrong" in page.inner_text("[role=alert]")
    assert page.input_value("#f-password") == ""


@pytest.mark.slow
def test_viewer_is_offered_nothing_that_is_not_allowed(guarded, page):
    enter(page, guarded, "viewer")
    assert page.locator("text=New queue").count() == 0
    assert page.locator("nav a[href='/ui/keys'], nav a[href='/ui/users'], nav a[href='/ui/audit']").count() == 0
    page.goto(f"{guarded.url}/ui/q/shop/default/orders")
    for words in ("Publish a message", "Remove all messages", "Delete the queue", "New group"):
        assert page.locator(f"text={words}").count() == 0, words
    page.goto(f"{guarded.url}/ui/keys")
    assert "key.admin" in page.inner_text("main"), "a refused act says why"


@pytest.mark.slow
def test_operator_acts_by_forms_and_logs_out(guarded, page):
    enter(page, guarded, "operator", "/ui/q/shop/default/orders/publish")
    page.fill("#f-payload", '{"from": "the page"}')
    follow(page, "main button.first")
    assert guarded.ask("GET", "/v1/stats?queue=shop/orders", x_api_key=guarded.key).json["depth"] >= 2
    follow(page, "text=Log out")
    assert page.url.endswith("/ui/login")
    page.goto(f"{guarded.url}/ui/queues")
    assert "/ui/login" in page.url


@pytest.mark.slow
def test_admin_creates_rotates_and_revokes_a_key(guarded, page):
    enter(page, guarded, "admin", "/ui/keys/new")
    page.fill("#f-name", "by-page")
    page.fill("#f-scopes", "publish:shop/*\nconsume:shop/orders")
    follow(page, "main button.first")
    shown = page.inner_text(".callout pre").strip()
    asked = {"queue": "shop/orders", "messages": [{"payload": 1}]}
    assert shown.startswith("psk_") and guarded.ask("POST", "/v1/publish", asked, x_api_key=shown).status == 201
    row = page.locator("tr", has_text="by-page")
    with page.expect_navigation():
        row.locator("text=Rotate").click()
    assert page.inner_text(".callout pre").strip() != shown
    with page.expect_navigation():
        page.locator("tr", has_text="by-page").locator("text=Revoke").click()
    page.fill("#f-typed", shown.split("_")[1])
    follow(page, "button.bad")
    assert guarded.ask("POST", "/v1/publish", asked, x_api_key=shown).status == 401


@pytest.mark.slow
def test_admin_adds_and_removes_a_person_and_sees_the_trail(guarded, page):
    enter(page, guarded, "admin", "/ui/users/new")
    page.fill("#f-email", "page@example.com")
    page.fill("#f-password", PASSWORD)
    follow(page, "main button.first")
    assert "page@example.com" in page.inner_text("main")
    follow(page, "[aria-label='Remove page@example.com']")
    page.fill("#f-typed", "page@example.com")
    follow(page, "button.bad")
    assert "page@example.com" not in page.inner_text("main")
    page.goto(f"{guarded.url}/ui/audit")
    trail = page.inner_text("main")
    assert "The chain holds" in trail and "users.remove" in trail and "login" in trail


@pytest.mark.slow
def test_form_without_the_token_is_refused(guarded, page):
    enter(page, guarded, "operator", "/ui/q/shop/default/orders/publish")
    page.fill("#f-payload", "1")
    page.eval_on_selector("main input[name=csrf]", "field => field.value = 'wrong'")
    follow(page, "main button.first")
    assert "X-CSRF-Token" in page.inner_text("main")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/ui/login", "/ui/keys", "/ui/keys/new", "/ui/users", "/ui/users/new", "/ui/audit", "/ui/password"]
)
def test_pages_have_no_serious_accessibility_fault(guarded, page, path):
    if path != "/ui/login":
        enter(page, guarded, "admin")
    page.goto(f"{guarded.url}{path}")
    found = AXE.run(page).response["violations"]
    assert not [each["id"] for each in found if each["impact"] in ("serious", "critical")]
