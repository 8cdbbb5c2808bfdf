"""The command line against a real server: what a person types, and what they see."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from http_server import running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("cli") / "data") as running_server:
        yield running_server


@pytest.fixture
def penstock(server):
    def run(*arguments, input=None, code=0, stream=None):
        """The standard output; of a command that fails the standard error, unless a stream is chosen."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            input=input, capture_output=True, timeout=30,
            env={**os.environ, "PENSTOCK_URL": server.url, "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr.decode()
        return getattr(done, stream or ("stderr" if code else "stdout")).decode()

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


def test_publish_with_an_id_a_tenant_and_a_time(penstock, server):
    penstock("queues", "dated", "--set", 'fair_share={"enabled": true}')
    first = penstock("publish", "dated", "1", "--id", "order-1", "--tenant", "acme")
    assert penstock("publish", "dated", "1", "--id", "order-1") == first
    assert json.loads(penstock("publish", "dated", "1", "--id", "order-1", "-o", "json"))["duplicate"] is True
    just_now = datetime.now(UTC) - timedelta(seconds=1)
    penstock("publish", "dated", "2", "--tenant", "acme", "--at", just_now.isoformat())
    penstock("publish", "dated", "3", "--tenant", "bolt")
    penstock("publish", "dated", "4", "--at", "2h")
    assert [message["payload"] for message in server.lease("dated")] == [1, 3, 2]  # tenants take turns
    assert "more than ten years ago" in penstock("publish", "dated", "5", "--at", "1969-01-31T12:00", code=1)


def test_cancel_and_reschedule_by_id_and_by_key(penstock, server):
    first, second = server.publish("moved", 1, 2, delay_ms=3_600_000)
    server.publish("moved", 3, 4, key="k", delay_ms=3_600_000)
    ids = ("--id", first["id"], "--id", second["id"])
    header, *rows = penstock("reschedule", "moved", *ids, "--at", "2h").splitlines()
    assert [line.split() for line in (header, *rows)] == [
        ["id", "status"], [first["id"], "rescheduled"], [second["id"], "rescheduled"],
    ]  # fmt: skip
    assert server.lease("moved") == []
    penstock("reschedule", "moved", "--id", second["id"], "--delay", "0")
    assert [message["payload"] for message in server.lease("moved")] == [2]
    answer = json.loads(penstock("cancel", "moved", *ids, "-o", "json"))
    assert answer == {
        "cancelled": 1,
        "results": [{"id": first["id"], "status": "cancelled"}, {"id": second["id"], "status": "in_flight"}],
    }
    assert penstock("cancel", "moved", "--key", "k").count("cancelled") == 2
    assert penstock("cancel", "moved", "--key", "k", code=1, stream="stdout") == (
        "no unsettled message of this queue has this key\n"
    )
    assert "done" in penstock("reschedule", "moved", "--id", first["id"], "--delay", "1", code=1, stream="stdout")
    assert "not_found" in penstock("cancel", "moved", "--id", "x", code=1, stream="stdout")
    penstock("publish", "moved", "1", "--delay", "60", "--id", "mine")
    assert "cancelled" in penstock("cancel", "moved", "--id", "mine")
    assert json.loads(penstock("publish", "moved", "1", "--id", "mine", "-o", "json"))["duplicate"] is False


def test_top_prints_one_look_where_there_is_no_terminal(penstock):
    penstock("publish", "topped", "1")
    shown = penstock("top", "--search", "TOPPED", "--sort", "ready").splitlines()
    assert shown[0].startswith("penstock http://127.0.0.1:") and "backlog" in shown[1]
    (row,) = [line.split() for line in shown if "topped" in line]
    assert row[:3] == ["default/default/topped", "1", "0"]
    assert "'size' is not one of 'depth', 'ready'" in penstock("top", "--sort", "size", code=2)


def test_looking_at_queues(penstock):
    shown = penstock("queues", "shop/mail/high", "--set", "max_retries=9", "--set", "retention.x=1", code=1)
    assert "unknown field `x`" in shown and len(shown.splitlines()) == 1
    assert "max_retries" in penstock("queues", "shop/mail/high", "--set", "max_retries=9")
    assert json.loads(penstock("queues", "shop/mail/high", "-o", "json"))["config"]["max_retries"] == 9
    penstock("queues", "shop/mail/high", "--set", "delivery=at_most_once")
    changed = json.loads(penstock("queues", "shop/mail/high", "-o", "json"))["config"]
    assert (changed["max_retries"], changed["delivery"]) == (9, "at_most_once")
    header, row = penstock("queues", "--prefix", "shop/").splitlines()
    assert header.split()[:7] == ["queue", "ready", "leased", "scheduled", "dead", "published_per_s", "acked_per_s"]
    assert row.split()[:5] == ["shop/mail/high", "0", "0", "0", "0"]


def test_settings_in_short(penstock):
    penstock("queues", "short", "--set", "backoff=fixed", "--set", "retention.mode=keep", "--set", "lease_ms=45s")
    config = json.loads(penstock("queues", "short", "-o", "json"))["config"]
    assert (config["backoff"]["kind"], config["retention"]["mode"], config["lease_ms"]) == ("fixed", "keep", 45_000)
    assert "'lifo' is not one of fifo, heap, lanes" in penstock("queues", "short", "--set", "order=lifo", code=1)
    refused = penstock("queues", "short", "--set", "backoff=linear", code=1)
    assert "backoff.kind: 'linear' is not one of exponential, fixed, none, steps" in refused


def test_numbers_of_listed_queues(penstock, server):
    server.publish("counted", 1, 2, 3)
    server.publish("counted", 4, delay_ms=3_600_000)
    first = server.lease("counted", max=2)[0]
    server.ask("POST", "/v1/reject", {"receipts": [first["receipt"]]})
    (row,) = json.loads(penstock("queues", "--prefix", "default/default/counted", "-o", "json"))["queues"]
    assert [row[name] for name in ("depth", "ready", "leased", "scheduled", "dead")] == [3, 1, 1, 1, 1]
    assert set(row["rates"]) >= {"published_per_s", "acked_per_s"} and row["rates"]["published_per_s"] > 0


def test_queues_are_purged_and_deleted_after_typing_their_name(penstock, server):
    server.publish("doomed", 1, 2)
    asked = penstock("queues", "purge", "doomed", input=b"yes\n", code=1)
    assert "Empty doomed, with 2 messages and 0 dead letters? This cannot be undone." in asked
    assert "Type doomed to confirm, or use --yes" in asked and "nothing was changed" in asked
    assert "nothing was changed; where there is no terminal, --yes confirms" in penstock(
        "queues", "purge", "doomed", input=b"", code=1
    )
    assert json.loads(penstock("queues", "doomed", "-o", "json"))["depth"] == 2
    assert json.loads(penstock("queues", "purge", "doomed", "-o", "json", input=b"doomed\n"))["purged"] is True
    assert json.loads(penstock("queues", "doomed", "-o", "json"))["depth"] == 0
    server.publish("doomed", 3)
    lost = json.loads(penstock("queues", "delete", "doomed", "--yes", "-o", "json"))
    assert lost == {"queue": "default/default/doomed", "deleted": True, "lost": {"messages": 1, "dead_letters": 0}}
    assert "there is no queue" in penstock("queues", "doomed", code=1)
    assert "there is no queue" in penstock("queues", "delete", "doomed", "--yes", code=1)


def test_holds_are_listed_and_removed(penstock, server):
    assert penstock("holds") == "no holds\n"
    server.publish("held", 1)
    server.ask("PUT", "/v1/holds/lake-1", {"queues": {"held": {"0": 0}}})
    header, row = penstock("holds").splitlines()
    assert header.split()[:2] == ["name", "spanned_bytes"] and row.split()[0] == "lake-1"
    assert "Remove hold lake-1, which keeps" in penstock("holds", "remove", "lake-1", input=b"n\n", code=1)
    assert json.loads(penstock("holds", "remove", "lake-1", "--yes", "-o", "json"))["removed"] is True
    assert penstock("holds", "list") == "no holds\n"
    assert "false" in penstock("holds", "remove", "lake-1", "--yes", code=1, stream="stdout")


def test_scheduled_messages_are_listed_page_by_page(penstock, server):
    assert "there is no queue" in penstock("scheduled", "later", code=1)
    penstock("publish", "later", "0")
    assert penstock("scheduled", "later") == "no messages\n"
    ids = [penstock("publish", "later", str(n), "--delay", f"{n}h", "--key", f"k{n}").strip() for n in (1, 2, 3)]
    header, *rows, more = penstock("scheduled", "later", "--limit", "2").splitlines()
    assert header.split()[:5] == ["id", "due_at", "partition", "offset", "key"]
    assert [row.split()[0] for row in rows] == ids[:2]
    assert more == "2 shown; for more: --after 0:2"
    answer = json.loads(penstock("scheduled", "later", "--after", "0:2", "-o", "json"))
    (last,) = answer["messages"]
    assert (last["id"], last["key"], answer["total"], answer["next"]) == (ids[2], "k3", 3, None)
    assert abs(last["due_at_ms"] - last["published_at_ms"] - 3 * 3_600_000) < 1_000
    penstock("reschedule", "later", "--id", ids[2], "--delay", "30d")
    penstock("cancel", "later", "--id", ids[0])
    assert [row.split()[0] for row in penstock("scheduled", "later").splitlines()[1:]] == ids[1:]
    assert "in 29d 23h" in penstock("explain", "later", ids[2])
    assert "position from `next`" in penstock("scheduled", "later", "--after", "x", code=1)


def test_broken_json_is_not_published_as_bytes(penstock, server):
    refused = penstock("publish", "strict", '{"order": 1', code=1)
    assert "begins like JSON and is not" in refused and "--raw" in refused
    assert "there is no queue" in penstock("queues", "strict", code=1)
    penstock("publish", "strict", '{"order": 1', "--raw")
    assert penstock("consume", "strict", "--max", "1") == '{"order": 1\n'


def test_setting_asks_before_messages_are_let_go(penstock, server):
    penstock("queues", "kept", "--set", 'retention={"mode": "keep"}', "--set", "lease_ms=9000")
    server.publish("kept", 1)
    change = ("queues", "kept", "--set", 'retention={"mode": "until_acked"}')
    assert "1 and 0 more would be kept for a shorter time" in penstock(*change, input=b"n\n", code=1)
    assert json.loads(penstock("queues", "kept", "-o", "json"))["config"]["retention"]["mode"] == "keep"
    changed = json.loads(penstock(*change, "--yes", "-o", "json"))["config"]
    assert (changed["retention"]["mode"], changed["lease_ms"]) == ("until_acked", 9000)


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


def test_groups_are_created_moved_and_deleted(penstock, server):
    penstock("queues", "moving", "--set", 'retention={"mode": "keep"}')
    for number in range(4):
        server.publish("moving", number)
    penstock("groups", "create", "moving", "audit", "--start", "0:1")
    assert "audit  plain, lag 3, leased 0, last asked not since the server started" in penstock("groups", "moving")
    shown = penstock("groups", "seek", "moving", "audit", "--to", "latest")
    assert "0 messages would be delivered again, 3 skipped" in shown and "add --run" in shown
    assert json.loads(penstock("groups", "seek", "moving", "audit", "--to", "0:0", "--run", "-o", "json"))["again"] == 1
    assert penstock("consume", "moving", "--group", "audit", "--max", "4") == "0\n1\n2\n3\n"
    assert "no group" in penstock("groups", "seek", "moving", "nobody", "--to", "earliest", code=1)
    penstock("groups", "seek", "moving", "audit", "--to", "soon", code=2)
    assert "Delete group audit of moving" in penstock("groups", "delete", "moving", "audit", input=b"n\n", code=1)
    assert json.loads(penstock("groups", "delete", "moving", "audit", "--yes", "-o", "json"))["deleted"] is True
    assert penstock("groups", "list", "moving") == "no groups\n"


def test_first_group_of_a_queue_is_not_created_behind_messages_without_a_question(penstock, server):
    server.publish("unread", *range(3))
    create = ("groups", "create", "unread", "audit", "--start", "latest")
    asked = penstock(*create, input=b"n\n", code=1)
    assert "unread has no group yet, and 3 messages: those that audit skips will be removed" in asked
    assert "--yes confirms" in penstock(*create, input=b"", code=1)
    assert penstock("groups", "unread") == "no groups\n"
    penstock("groups", "create", "unread", "all")
    penstock(*create)  # a second group skips messages, and removes none
    assert penstock("consume", "unread", "--group", "all", "--max", "3") == "0\n1\n2\n"
    server.publish("unread-2", 1)
    penstock("groups", "create", "unread-2", "audit", "--start", "1h", "--yes")
    assert "lag 1," in penstock("groups", "unread-2")


def test_groups_and_their_members(penstock, server):
    assert penstock("queues", "grouped", "--set", "partitions=2")
    assert penstock("groups", "grouped") == "no groups\n"
    penstock("publish", "grouped", "1")
    assert penstock("consume", "grouped", "--group", "g", "--assigned", "--max", "1") == "1\n"
    server.ask("POST", "/v1/groups/join", {"queue": "grouped", "group": "g", "member": "ada"})
    title, header, ada, *_, last = penstock("groups", "grouped").rstrip().splitlines()
    assert title.startswith("g  assigned, generation 3, lag 0, leased 0, last asked 20")
    assert header.split()[:3] == ["member", "generation", "partitions"]
    assert ada.split()[:3] == ["ada", "3", "[0,1]"]
    assert last.split()[:2] == ["1", "ada"]
    assert "join it" in penstock("consume", "grouped", "--group", "g", "--wait", "0.1", code=1)
    shown = json.loads(penstock("groups", "grouped", "-o", "json"))
    assert shown["groups"][0]["members"][0]["member"] == "ada"


@contextlib.contextmanager
def started(server, *arguments):
    """A command that goes on until it is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PENSTOCK_URL": server.url},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_tail_shows_stored_and_new_messages_without_leases(penstock, server):
    for number in range(3):
        server.publish("tailed", number, key="k")
    assert [
        line.split(maxsplit=1)[1] for line in penstock("tail", "tailed", "-n", "2", "--wait", "0.1").splitlines()
    ] == [
        "0:1 [k] 1",
        "0:2 [k] 2",
    ]
    server.publish("tailed/too", {"n": 1})
    shown = penstock("tail", "tailed", "tailed/too", "--since", "1h", "--max", "4", "-o", "json")
    messages = [json.loads(line) for line in shown.splitlines()]
    assert sorted(str(message["payload"]) for message in messages) == ["0", "1", "2", "{'n': 1}"]
    assert {message["queue"] for message in messages} == {"default/default/tailed", "tailed/default/too"}
    with started(server, "tail", "tailed", "-n", "1") as process:
        assert process.stdout.readline().endswith("0:2 [k] 2\n")
        server.publish("tailed", "\x1b[31mlive")
        assert process.stdout.readline().endswith('0:3 "\\u001b[31mlive"\n')
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert len(server.lease("tailed")) == 4
    assert "there is no queue" in penstock("tail", "nowhere", code=1)


def test_consume_follow_waits_for_a_missing_queue(server):
    with started(server, "consume", "promised", "--follow") as process:
        assert process.stderr.readline().startswith("waiting: there is no queue")
        server.publish("promised", 1)
        assert process.stdout.readline() == "1\n"
        server.wait_until(lambda: server.ask("GET", "/v1/stats?queue=promised").json["depth"] == 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_tail_interrupted_in_a_flood_leaves_whole_lines(server):
    server.publish("flood", *["x" * 100] * 5_000)
    with started(server, "tail", "flood", "--since", "0") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, "")
        assert all(line.endswith('x"') for line in rest.splitlines())


def test_tail_ends_cleanly_on_sigterm(server):
    server.publish("ended", 1)
    with started(server, "tail", "ended") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(timeout=30), process.stderr.read()) == (0, "")


def test_consume_ends_cleanly_on_signal(server):
    """Also while its output is not read: prefetched messages are released at once."""
    server.publish("told", *["x" * 1_000] * 300)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "consume", "told", "--url", server.url], stdout=subprocess.PIPE
    )
    try:
        with process:
            process.stdout.readline()
            process.stdout.readline()  # the first is done with; the second may be interrupted before its ack
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(30) == 0
    finally:
        process.kill()
    stats = server.ask("GET", "/v1/stats?queue=told").json
    assert stats["leased"] == 0 and 0 < stats["ready"] < 300 and stats["waiting_for_retry"] == 0


def test_publish_streams_its_lines(penstock, server, tmp_path):
    (tmp_path / "many").write_text("".join(f"{n}\n" for n in range(12_000)))
    assert penstock("publish", "streamed", "--lines", "-f", str(tmp_path / "many"), "-q") == "12000 published\n"
    stats = json.loads(penstock("stats", "streamed", "-o", "json"))
    assert stats["depth"] == 12_000
    (line,) = penstock("publish", "streamed", "1", "-o", "json", "-H", "a=b", "--ttl", "60").splitlines()
    assert json.loads(line)["offset"] == 12_000


def test_a_line_of_a_pipe_is_published_when_it_is_written(server):
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "publish", "live", "-", "--lines"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**os.environ, "PENSTOCK_URL": server.url, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        process.stdin.write("1\n")
        process.stdin.flush()
        assert len(process.stdout.readline()) == 27
        assert [message["payload"] for message in server.lease("live")] == [1]
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_bench_measures_and_leaves_nothing_behind(penstock):
    shown = json.loads(penstock("bench", "--seconds", "0.2", "--callers", "4", "-o", "json"))
    assert [figure["figure"] for figure in shown["figures"]] == [
        "publish, batches of 100", "publish, 4 callers", "consume, batches of 100", "publish to delivery",
    ]  # fmt: skip
    assert all(figure["messages"] > 0 and figure["p50_ms"] <= figure["max_ms"] for figure in shown["figures"])
    assert json.loads(penstock("queues", "--prefix", "penstock/bench", "-o", "json"))["total"] == 0
    assert "publish to delivery" in penstock("bench", "--seconds", "0.1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("consume comp", ["completed"]), ("queues comp", ["completed"]), ("dlq comp", ["completed"]),
     ("queues delete comp", ["completed"]), ("scheduled comp", ["completed"]), ("hol", ["holds"]),
     ("queues pur", ["purge"])],
)  # fmt: skip
def test_completion_lists_queues_and_subcommands(server, words, expected):
    server.publish("completed", 1)
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], capture_output=True, text=True, timeout=30,
        env={
            **os.environ, "PENSTOCK_URL": server.url, "_PENSTOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": f"penstock {words}", "COMP_CWORD": str(words.count(" ") + 1),
        },
    )  # fmt: skip
    assert done.stdout.split() == expected


def test_worker_runs_what_a_module_declares(server, tmp_path):
    server.publish("worked", {"n": 1})
    (tmp_path / "shop.py").write_text(
        f"from penstock import Client\nclient = Client({server.url!r})\n"
        "@client.worker('worked')\nasync def work(n: dict):\n    print('got', n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "worker", "shop:client"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "got {'n': 1}\n"
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert server.lease("worked") == []


def test_worker_waits_for_its_broker_and_says_so(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "shop.py").write_text(
        f"from penstock import Client\nclient = Client('http://{address}')\n"
        "@client.worker('late')\nasync def work(n: int):\n    print('got', n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "worker", "shop:client"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr.readline().startswith(f"shop:client: waiting for the broker at {address}: ")
        with running(tmp_path / "data", "--listen", address) as late:
            assert process.stderr.readline() == f"shop:client: running with the broker at {address}; Ctrl-C stops it\n"
            late.publish("late", 1)
            assert process.stdout.readline() == "got 1\n"
            process.terminate()
            assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_logs_are_for_people_on_a_terminal(tmp_path):
    """And JSON everywhere else: the standard error of the other servers of these tests is a file."""
    terminal, side = os.openpty()
    command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--grpc", "off"]
    process = subprocess.Popen([*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, stderr=side, text=True)
    try:
        assert process.stdout.readline().startswith("ready ")
        shown = os.read(terminal, 4096).decode()
        assert "store_opened" in shown and not shown.startswith("{")
    finally:
        process.kill()
        process.communicate(timeout=30)
        os.close(terminal)
        os.close(side)
