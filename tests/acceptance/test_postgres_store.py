"""`penstock serve --store postgres://…`: a real server on a real PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from http_server import Server


def publish(server: Server, *bodies: str) -> None:
    answer = server.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": body} for body in bodies]})
    assert answer.status in (200, 201), answer.body


def drain(server: Server) -> list[str]:
    found: list[str] = []
    while True:
        answer = server.ask("POST", "/v1/lease", {"queue": "orders", "max": 100})
        assert answer.status in (200, 201), answer.body
        messages = answer.json["messages"]
        if not messages:
            return found
        found += [message["payload"] for message in messages]
        acked = server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in messages]})
        assert acked.status == 200


def test_a_killed_broker_on_postgres_loses_nothing(postgres, tmp_path):
    url = postgres.url()
    server = Server(tmp_path / "data", "--store", url)
    try:
        publish(server, "a", "b")
        server.kill()
        server = Server(tmp_path / "data", "--store", url)
        assert server.ask("GET", "/readyz").status == 200
        publish(server, "c")
        assert server.terminate() == 0
        server = Server(tmp_path / "elsewhere", "--store", url)
        assert drain(server) == ["a", "b", "c"]
        server.kill()
        server = Server(tmp_path / "elsewhere", "--store", url)
        assert drain(server) == []
        assert server.terminate() == 0
        assert "postgres@" in server.log() and "schema" in server.log()
    finally:
        server.kill()


def test_a_broker_that_was_taken_over_ends_with_its_own_code(postgres, tmp_path):
    url = postgres.url()
    former, owner = Server(tmp_path / "former", "--store", url), None
    try:
        publish(former, "a")
        owner = Server(tmp_path / "owner", "--store", url)
        answer = former.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": "zombie"}]})
        assert answer.status == 503
        assert former.wait() == 75
        assert drain(owner) == ["a"]
        assert owner.terminate() == 0
    finally:
        for server in (former, owner):
            if server is not None:
                server.kill()


def test_a_long_poll_is_answered_by_a_publish(postgres, tmp_path):
    server = Server(tmp_path / "data", "--store", postgres.url())
    try:
        publish(server, "first")
        assert drain(server) == ["first"]
        answers: list[str] = []

        def wait() -> None:
            asked = {"queue": "orders", "max": 1, "wait_ms": 20_000}
            answers.extend(message["payload"] for message in server.ask("POST", "/v1/lease", asked).json["messages"])

        waiting = threading.Thread(target=wait)
        waiting.start()
        publish(server, "second")
        waiting.join(20)
        assert answers == ["second"]
        assert server.terminate() == 0
    finally:
        server.kill()


SERVE = ("serve", "--listen", "127.0.0.1:0", "--grpc", "off")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_store_init_creates_the_schema_once(postgres):
    url = postgres.url()
    for _ in range(2):
        done = run("store", "init", url)
        assert (done.returncode, done.stderr) == (0, "") and "is ready" in done.stdout


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("postgres@", "nobody_known:secret-word@"), "nobody_known"),
        (("/postgres?", "/no_such_database?"), "no_such_database"),
        (("schema=", "schema=Bad-"), "schema"),
        (("127.0.0.1", "no-such-host.invalid"), "no-such-host.invalid"),
        (("127.0.0.1:", "127.0.0.1:1,127.0.0.1:1/x?schema="), ""),
    ],
)
@pytest.mark.parametrize("command", [["store", "init"], [*SERVE, "--store"]], ids=["init", "serve"])
def test_a_store_that_cannot_be_used_is_one_sentence_and_78(postgres, tmp_path, command, change, expected):
    given = ["--data-dir", str(tmp_path / "data")] if command[0] == "serve" else []
    done = run(*command, postgres.url().replace(*change), *given)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 78, done.stderr
    assert expected in lines[-1] and "Traceback" not in done.stderr and "secret-word" not in done.stderr
