"""Encryption at rest of a real server: start without a key, rotation under load, erasing, the scan of its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from http_server import Server, running

MARK = "PLAINTEXT-OF"


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=60)


@pytest.fixture
def key_file(tmp_path) -> Path:
    path = tmp_path / "encryption.key"
    made = cli("encryption", "new-key", str(path), "--output", "json")
    assert made.returncode == 0 and json.loads(made.stdout)["keys"] == 1, made.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    return path


def files_with(root: Path, text: str) -> list[str]:
    return [str(file) for file in root.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def erase(server: Server, asked: dict, **headers: str) -> dict:
    first = server.ask("POST", "/v1/erase", asked, **headers)
    assert first.status == 409, first.body
    token = first.json["error"]["details"]["confirm"]
    done = server.ask("POST", f"/v1/erase?confirm={token}", asked, **headers)
    assert done.status == 200, done.body
    return done.json


def refused(data: Path, *flags: str) -> str:
    """The error of a server that does not start."""
    done = cli("serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(data), *flags)
    assert done.returncode == 78 and done.stdout == "", (done.returncode, done.stdout, done.stderr)
    return done.stderr


def test_a_server_with_encrypted_queues_does_not_start_without_its_key(tmp_path, key_file):
    data = tmp_path / "data"
    with running(data, "--encryption-key", str(key_file), "--encrypt-all") as server:
        server.publish("orders", f"{MARK} alice")
        assert server.ask("GET", "/v1/queues/orders").json["config"]["encryption"] is True
        server.terminate()
    assert "--encryption-key FILE" in refused(data)
    missing = tmp_path / "nowhere.key"
    assert "Restore the file" in refused(data, "--encryption-key", str(missing))
    other = tmp_path / "other.key"
    assert cli("encryption", "new-key", str(other)).returncode == 0
    assert "is wrapped by key" in refused(data, "--encryption-key", str(other))
    key_file.chmod(0o644)
    assert "chmod 600" in refused(data, "--encryption-key", str(key_file))
    key_file.chmod(0o600)
    assert "not a key" in refused(data, "--encryption-key", str(_written(tmp_path / "bad.key", "abc\n")))
    assert "needs a key" in refused(data, "--encrypt-all")
    with running(data, "--encryption-key", str(key_file)) as server:
        assert [message["payload"] for message in server.lease("orders")] == [f"{MARK} alice"]
    assert files_with(data, MARK) == []


def _written(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_the_key_may_come_from_the_environment(tmp_path, key_file, monkeypatch):
    data = tmp_path / "data"
    assert "no environment variable" in refused(data, "--encryption-key", "env:NO_SUCH_KEY")
    monkeypatch.setenv("MASTER_KEY", key_file.read_text().strip())
    with running(data, "--encryption-key", "env:MASTER_KEY") as server:
        assert server.ask("PUT", "/v1/queues/orders", {"encryption": True}).status == 201
        assert server.ask("GET", "/v1/encryption").json["enabled"] is True


def test_without_a_key_encryption_is_refused_and_says_what_to_do(tmp_path):
    with running(tmp_path / "data") as server:
        answer = server.ask("PUT", "/v1/queues/orders", {"encryption": True})
        assert answer.status == 409 and "--encryption-key FILE" in answer.json["error"]["message"]
        assert server.ask("GET", "/v1/queues/orders").status == 404
        answer = server.ask("POST", "/v1/erase", {"queue": "orders"})
        assert answer.status == 409 and "no encryption key" in answer.json["error"]["message"]
        assert server.ask("POST", "/v1/encryption/rotate").status == 409


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"queue": "a", "namespace": "b"}, {"queue": "a/b/c/d"}, {"namespace": "a/b"}, {"namespace": ""},
        {"queue": "orders", "keys": []}, {"queue": "orders", "keys": "k"}, {"queue": "orders", "other": 1},
    ],
    ids=str,
)  # fmt: skip
def test_requests_that_mean_nothing_are_refused(tmp_path, key_file, asked):
    with running(tmp_path / "data", "--encryption-key", str(key_file)) as server:
        assert server.ask("POST", "/v1/erase", asked).status == 400


def test_erased_messages_are_in_no_file_and_are_never_delivered(tmp_path, key_file):
    """Through restarts, kills and snapshots; messages of others stay."""
    data = tmp_path / "data"
    flags = ("--encryption-key", str(key_file))
    with running(data, *flags) as server:
        for queue in ("shop/orders", "bank/orders"):
            settings = {"encryption": True, "retention": {"mode": "keep"}}
            assert server.ask("PUT", f"/v1/queues/{queue}", settings).status == 201
            for name in ("alice", "bob"):
                server.publish(
                    queue, *[f"{MARK} {name} {n}" for n in range(20)], key=name, headers={"h": f"{MARK} {name}"}
                )
        held = server.lease("shop/orders", max=5)
        assert held[0]["payload"].startswith(f"{MARK} alice")
        server.ask("POST", "/v1/reject", {"receipts": [held[0]["receipt"]], "error": "bad"})
        done = erase(server, {"queue": "shop/orders", "keys": ["alice"]})
        assert (done["messages"], done["dead_letters"], done["generation"]) == (20, 1, 1)
        assert server.ask("GET", "/v1/dlq?queue=shop/orders").json["messages"] == []
        server.kill()
    for end in ("terminate", "kill"):
        with running(data, *flags) as server:
            for queue, names in (("shop/orders", ["bob"]), ("bank/orders", ["alice", "bob"])):
                for path in (f"/v1/read?queue={queue}&max=100", f"/v1/peek?queue={queue}&max=100"):
                    answer = server.ask("GET", path)
                    assert answer.status == 200, answer.body
                    found = [message["payload"] for message in answer.json["messages"]]
                    assert found == [f"{MARK} {name} {n}" for name in names for n in range(20)]
            (server.terminate if end == "terminate" else server.kill)()
        assert files_with(data, MARK) == []
    with running(data, *flags) as server:
        leased = [message["payload"] for message in server.lease("shop/orders", group="late")]
        assert leased == [f"{MARK} bob {n}" for n in range(20)]
        erase(server, {"namespace": "bank"})
        assert server.ask("GET", "/v1/read?queue=bank/orders&max=100").json["messages"] == []
        assert len(server.ask("GET", "/v1/read?queue=shop/orders&max=100").json["messages"]) == 20
    checked = cli("inspect", str(data))
    assert checked.returncode == 0 and "keyring of encrypted queues" in checked.stdout, checked.stderr
    assert MARK not in checked.stdout and "encrypted at=" in checked.stdout


def test_the_master_key_is_rotated_under_load(tmp_path, key_file):
    data = tmp_path / "data"
    first_key = key_file.read_text()
    with running(data, "--encryption-key", str(key_file), "--encrypt-all") as server:
        problems: list[bytes] = []
        published: list[str] = []
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                text = f"{MARK} {len(published)}"
                answer = server.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": text}]})
                if answer.status != 201:
                    problems.append(answer.body)
                published.append(text)

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            ids = {server.ask("GET", "/v1/encryption").json["master_key"]}
            for _ in range(5):
                assert cli("encryption", "new-key", str(key_file)).returncode == 0
                rotated = cli("encryption", "rotate", "--url", server.url, "--output", "json")
                assert rotated.returncode == 0, rotated.stderr
                ids.add(json.loads(rotated.stdout)["master_key"])
        finally:
            stop.set()
            publisher.join()
        assert len(ids) == 6 and not problems and published
        server.kill()
    newest = key_file.read_text().splitlines()[0]
    key_file.write_text(newest + "\n")
    with running(data, "--encryption-key", str(key_file)) as server:
        answer = server.ask("GET", f"/v1/read?queue=orders&max={len(published)}")
        assert [message["payload"] for message in answer.json["messages"]] == published
    key_file.write_text(first_key)
    assert "is wrapped by key" in refused(data, "--encryption-key", str(key_file))


def test_erasing_needs_the_scope_of_its_queues_and_is_audited_without_the_message_key(tmp_path, key_file):
    data = tmp_path / "data"
    with running(data, "--encryption-key", str(key_file), "--auth", "keys") as server:
        root = {"x_api_key": (data / "bootstrap.key").read_text().strip()}
        for queue in ("shop/orders", "bank/orders"):
            assert server.ask("PUT", f"/v1/queues/{queue}", {"encryption": True}, **root).status == 201
        made = server.ask("POST", "/v1/keys", {"name": "shop", "scopes": ["queue.admin:shop/*"]}, **root)
        shop = {"x_api_key": made.json["key"]}
        assert server.ask("POST", "/v1/erase", {"queue": "bank/orders"}, **shop).status == 404
        assert server.ask("POST", "/v1/erase", {"namespace": "bank"}, **shop).status == 403
        assert server.ask("GET", "/v1/encryption", **shop).status == 403
        assert server.ask("POST", "/v1/erase", {"queue": "shop/orders"}).status == 401
        erase(server, {"queue": "shop/orders", "keys": ["alice@example.com"]}, **shop)
        entries = server.ask("GET", "/v1/audit?limit=100", **root).json
        assert any(entry["operation"] == "erasure.erase" and entry["result"] == "ok" for entry in entries["entries"])
    assert files_with(data, "alice@example.com") == []


def test_erase_on_the_command_line(tmp_path, key_file):
    with running(tmp_path / "data", "--encryption-key", str(key_file), "--encrypt-all") as server:
        server.publish("shop/orders", 1, 2, key="alice")
        server.publish("shop/orders", 3, key="bob")
        words = ("encryption", "erase", "shop/orders", "--key", "alice", "--url", server.url)
        assert cli(*words).returncode != 0  # no terminal to confirm at
        done = cli(*words, "--yes", "--output", "json")
        assert done.returncode == 0 and json.loads(done.stdout)["messages"] == 2, done.stderr
        assert [message["payload"] for message in server.lease("shop/orders")] == [3]
        assert cli("encryption", "erase", "shop/*", "--yes", "--url", server.url).returncode == 0
        status = cli("encryption", "status", "--url", server.url, "--output", "json")
        assert json.loads(status.stdout)["generation"] == 2
    assert "PENSTOCK_ENCRYPTION_KEY" not in os.environ
