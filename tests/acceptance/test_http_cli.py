"""The command line against a real server: what a person types, and what they see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from http_server import running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("cli") / "data") as running_server:
        yield running_server


@pytest.fixture
def penstock(server):
    def run(*arguments, input=None, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            input=input, capture_output=True, timeout=30,
            env={**os.environ, "PENSTOCK_URL": server.url, "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode() if code == 0 else done.stderr.decode()

    return run


def test_publish_and_consume(penstock):
    ids = [penstock("publish", "typed", '{"order": 1}', "--key", "k"), penstock("publish", "typed", "not json")]
    assert all(len(text) == 27 for text in ids)
    assert penstock("consume", "typed", "--max", "1") == '{"order":1}\n'
    (line,) = penstock("consume", "typed", "--wait", "0.2", "-o", "json").splitlines()
    message = json.loads(line)
    assert (message["payload_b64"], message["offset"]) == ("bm90IGpzb24=", 1)
    assert penstock("consume", "typed", "--wait", "0.1") == ""


def test_publish_from_files_and_pipes(penstock, tmp_path):
    (tmp_path / "lines").write_text("1\n\n2\n[3]\n")
    assert len(penstock("publish", "piped", "--file", str(tmp_path / "lines"), "--lines").splitlines()) == 3
    penstock("publish", "piped", "-", input=b'{"from": "pipe"}')
    assert penstock("consume", "piped", "--max", "4").splitlines() == ["1", "2", "[3]", '{"from":"pipe"}']


def test_looking_at_queues(penstock):
    shown = penstock("queues", "shop/mail/high", "--set", "max_retries=9", "--set", "retention.x=1", code=1)
    assert "retention.x" in shown and len(shown.splitlines()) == 1
    assert "max_retries" in penstock("queues", "shop/mail/high", "--set", "max_retries=9")
    assert json.loads(penstock("queues", "shop/mail/high", "-o", "json"))["config"]["max_retries"] == 9
    penstock("queues", "shop/mail/high", "--set", "delivery=at_most_once")
    changed = json.loads(penstock("queues", "shop/mail/high", "-o", "json"))["config"]
    assert (changed["max_retries"], changed["delivery"]) == (9, "at_most_once")
    header, row = penstock("queues", "--prefix", "shop/").splitlines()
    assert header.split()[:2] == ["queue", "depth"] and row.split()[0] == "shop/mail/high"


def test_stats_and_dead_letters(penstock, server):
    server.publish("deadly", {"n": 1})
    (message,) = server.lease("deadly")
    server.ask("POST", "/v1/reject", {"receipts": [message["receipt"]], "error": "poison"})
    assert "poison" in penstock("dlq", "deadly")
    assert json.loads(penstock("dlq", "deadly", "-o", "json"))["total"] == 1
    assert "totals.published" in penstock("stats", "deadly")
    assert json.loads(penstock("stats", "-o", "json"))["queues"] >= 1
    assert "there is no queue" in penstock("stats", "nowhere", code=1)


def test_inspect_reads_the_journal_of_a_running_server(penstock, server, tmp_path_factory):
    server.publish("inspected", 1)
    data_dir = server.log_path.with_suffix("")
    assert "default/default/inspected" in penstock("inspect", str(data_dir))


def test_groups_and_their_members(penstock, server):
    assert penstock("queues", "grouped", "--set", "partitions=2")
    assert penstock("groups", "grouped") == "no groups\n"
    penstock("publish", "grouped", "1")
    assert penstock("consume", "grouped", "--group", "g", "--assigned", "--max", "1") == "1\n"
    server.ask("POST", "/v1/groups/join", {"queue": "grouped", "group": "g", "member": "ada"})
    title, header, ada, *_, last = penstock("groups", "grouped").rstrip().splitlines()
    assert title == "g  assigned, generation 3, lag 0, leased 0"
    assert header.split()[:3] == ["member", "generation", "partitions"]
    assert ada.split()[:3] == ["ada", "3", "[0,1]"]
    assert last.split()[:2] == ["1", "ada"]
    assert "join it" in penstock("consume", "grouped", "--group", "g", "--wait", "0.1", code=1)
    shown = json.loads(penstock("groups", "grouped", "-o", "json"))
    assert shown["groups"][0]["members"][0]["member"] == "ada"
