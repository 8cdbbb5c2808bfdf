"""The command line where it needs no server: words, refusals, exit codes."""

from __future__ import annotations

import io
import re
import shlex
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from penstock import limits
from penstock._version import __version__
from penstock.errors import InvalidRequest, TooLarge
from penstock.server.cli import app
from penstock.server.completion import complete_queue, complete_running_redrive
from penstock.server.config import KEYS
from penstock.server.group_cli import place_of
from penstock.server.publish_input import LineReader, payload_of, read_single
from penstock.server.queue_cli import parse_settings
from penstock.server.remote import Remote
from penstock.server.tables import Listing, print_listing, print_object
from penstock.server.times import parse_deliver_at, parse_seconds, parse_start_offset

COMMANDS = cache(get_command)
"""To put them together takes longer than what is tested with them."""


@pytest.fixture(autouse=True)
def put_together_once(monkeypatch):
    monkeypatch.setattr("typer.testing._get_command", COMMANDS, raising=False)


def run(*arguments, env=None):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "PENSTOCK_URL": None, **(env or {})})


def run_alone(*arguments):
    """In a process of its own: starting a server changes the process it is in."""
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_version_and_help():
    assert run("version").output == run("--version").output == f"penstock {__version__}\n"
    shown = run("--help")
    assert shown.exit_code == 0
    for command in (
        "serve",
        "publish",
        "consume",
        "tail",
        "cancel",
        "reschedule",
        "worker",
        "bench",
        "--install-completion",
        "queues",
        "stats",
        "autoscale",
        "dlq",
        "schedule",
        "inspect",
        "version",
    ):
        assert command in shown.output


def test_only_the_command_that_was_asked_for_is_loaded():
    code = (
        "import sys; from penstock.server.cli import app; app(['version'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    commands = {f"penstock.server.{name}" for name in ("cli", "lazy_commands")}
    assert {name for name in done.stdout.split() if name.startswith("penstock.server.")} == commands


def test_every_setting_is_an_option_of_serve():
    shown = run("serve", "--help").output
    for name, key in KEYS.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert (str(key.default) if key.default != () else "none") in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "0.0.0.0:7400"), "add --auth keys"),
        (("--listen", "[::]:7400", "--auth", "keys"), "add --tls-cert and --tls-key"),
        (("--grpc", "0.0.0.0:7401"), "grpc: 0.0.0.0:7401 can be reached from other machines"),
        (("--grpc", "here"), "HOST:PORT"),
        (("--listen", "here"), "HOST:PORT"),
        (("--fsync", "sometimes"), "'sometimes' is not one of always"),
        (("--config", "/nowhere/penstock.toml"), "cannot read"),
    ],
)
def test_serve_refuses_bad_settings_in_one_line(arguments, words):
    refused = run("serve", *arguments)
    assert refused.exit_code == 78
    assert words in refused.stderr and len(refused.stderr.splitlines()) == 1


def test_serve_refuses_to_run_without_assertions():
    command = [sys.executable, "-O", "-m", "penstock", "serve", "--listen", "127.0.0.1:0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert refused.returncode == 78 and "python -O" in refused.stderr


def test_serve_refuses_a_store_it_does_not_know(tmp_path):
    refused = run_alone(
        "serve", "--store", "oracle://x", "--listen", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(tmp_path)
    )
    assert refused.returncode == 78 and "store" in refused.stderr


@pytest.mark.parametrize("name", ["listen", "grpc"])
def test_taken_port_is_reported_before_the_store_opens(tmp_path, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"listen": "127.0.0.1:0", "grpc": "off", name: address}
        flags = [text for key, value in given.items() for text in (f"--{key}", value)]
        refused = run_alone("serve", *flags, "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 78 and f"{name}: cannot listen on {address}" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("stats",),
        ("top",),
        ("queues",),
        ("dlq", "orders"),
        ("dlq", "redrives", "orders"),
        ("autoscale", "orders"),
        ("dlq", "stop", "orders", "nightly"),
        ("publish", "orders", "1"),
        ("consume", "orders", "--max", "1"),
        ("tail", "orders"),
        ("cancel", "orders", "--key", "k"),
        ("reschedule", "orders", "--key", "k", "--at", "10m"),
        ("bench",),
        ("queues", "delete", "orders"),
        ("queues", "orders", "--set", "backoff=fixed"),
        ("holds",),
        ("scheduled", "orders"),
    ],
)
def test_unreachable_server_is_reported_in_one_line(command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    failed = run(*command, "--url", f"http://127.0.0.1:{port}")
    assert failed.exit_code == 69
    assert "penstock serve" in failed.stderr and len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:7400", "http://", "http://x?a=b"])
def test_a_strange_url_is_refused(url):
    refused = run("stats", "--url", url)
    assert refused.exit_code == 1 and "address" in refused.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("publish", "orders"), ("publish", "orders", "1", "--file", "x"), ("publish", "orders", "--file", "/nowhere"),
        ("consume", "orders", "--max", "0"), ("queues", "--set", "a=1"), ("queues", "orders", "--set", "a"),
        ("inspect", "/nowhere"), ("stats", "-o", "xml"), ("nonsense",), ("tail",),
        ("tail", "orders", "--since", "noon"),
        ("consume", "orders", "--follow", "--wait", "1"), ("publish", "orders", "1", "--header", "novalue"),
        ("bench", "--seconds", "0"), ("worker", "nocolon"), ("worker", "no_such_module:client"),
        ("worker", "json:dumps"), ("cancel", "orders"), ("cancel", "orders", "--id", "x", "--key", "k"),
        ("publish", "orders", "1", "--at", "noon"), ("publish", "orders", "1", "--at", "1m", "--delay", "1"),
        ("publish", "orders", "-", "--lines", "--id", "x"),
        ("reschedule", "orders", "--key", "k"), ("reschedule", "orders", "--key", "k", "--delay", "1", "--at", "1m"),
        ("reschedule", "orders", "--key", "k", "--at", "noon"), ("reschedule", "orders", "--key", "k", "--delay", "-1"),
        ("dlq", "stop", "orders"), ("dlq", "redrives"), ("autoscale", "orders", "--min-workers", "-1"),
        ("publish", "orders", "1", "--delay", "soon"), ("publish", "orders", "1", "--ttl", "inf"),
        ("consume", "orders", "--lease", "1y"), ("reschedule", "orders", "--key", "k", "--delay", "1e300"),
        ("dlq", "redrive", "orders", "--all", "--delay", "-1s"), ("queues", "delete"), ("holds", "remove"),
        ("schedule", "set", "n", "q", "* * * * *", "1", "--catch-up", "some"),
        ("pipeline", "archive", "--lake", "x", "--every", "1ms"),
    ],
)  # fmt: skip
def test_misuse_is_exit_code_two(command):
    assert run(*command).exit_code == 2


def test_a_listing_is_a_table(capsys):
    entries = [
        {"queue": "a", "config": {"order": "fifo"}, "depth": 5},
        {"queue": "b[red]\x1b[31m", "config": {}, "depth": None},
    ]
    answer = {"queues": entries, "total": 7, "page": 1, "limit": 2}
    print_listing(answer, Listing("queues", ("queue", "depth", "config.order", "absent")))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["queue", "depth", "order"], ["a", "5", "fifo"], ["b[red]�[31m", "-", "-"], ["page", "1:", "2", "of", "7"],
    ]  # fmt: skip
    print_listing({"queues": [], "total": 0}, Listing("queues", ("queue",)))
    assert capsys.readouterr().out == "no queues\n"


def test_an_object_is_lines_and_tables(capsys):
    print_object({"depth": 3, "totals": {"acked": 1}, "groups": [{"group": "g", "lag": 2, "partitions": [{"p": 0}]}]})
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert words == [["depth", "3"], ["totals.acked", "1"], [], ["groups"], ["group", "lag"], ["g", "2"]]


# -- what `publish` reads ---------------------------------------------------------------------------------------


def test_lines_are_read_as_they_come():
    class Pipe(io.RawIOBase):
        """Gives what was written, piece by piece."""

        def __init__(self, *pieces):
            self.pieces = list(pieces)

        def read1(self, size=-1):
            return self.pieces.pop(0) if self.pieces else b""

        def fileno(self):
            raise io.UnsupportedOperation

    pipe = Pipe(b"1\n2\n3", b"4\n", b'{"a":', b"1}\n5")
    lines = LineReader(pipe, raw=False)
    reading = iter(lines)
    assert next(reading) == [1, 2] and len(pipe.pieces) == 3
    assert list(reading) == [[34], [{"a": 1}], [5]]
    assert lines.size == 0 and lines.done == 16


def test_lines_that_are_empty_are_left_out_and_one_that_is_too_long_is_named():
    assert list(LineReader(io.BytesIO(b'\r\n{"a": 1}\r\n\n  \ntext\n'), raw=False)) == [[{"a": 1}, b"text"]]
    for long in (b"x" * (limits.PAYLOAD_BYTES_MAX + 1), b"x" * (limits.PAYLOAD_BYTES_MAX + 1) + b"\n3"):
        with pytest.raises(TooLarge, match="line 2 is longer"):
            list(LineReader(io.BytesIO(b"1\n" + long), raw=False))
    with pytest.raises(TooLarge, match="--lines"):
        read_single(io.BytesIO(b"x" * (limits.PAYLOAD_BYTES_MAX + 1)), raw=False)


def test_a_moment_is_an_age_or_a_time():
    assert parse_start_offset("0") == parse_start_offset("earliest") == "earliest"
    assert parse_start_offset("2026-01-31T12:00+00:00") == "at:1769860800000"
    now_ms = time.time() * 1000
    for text, seconds in (("30s", 30), ("1.5m", 90), ("2h", 7200), ("7d", 604800)):
        at_ms = int(parse_start_offset(text).removeprefix("at:"))
        assert abs(now_ms - at_ms - seconds * 1000) < 60_000


def test_a_time_to_deliver_at_lies_ahead():
    assert parse_deliver_at("2026-01-31T12:00+00:00") == 1769860800000
    assert parse_deliver_at("1969-01-01T00:00Z") == 1
    now_ms = time.time() * 1000
    for text, seconds in (("30s", 30), ("1.5m", 90), ("2h", 7200), ("7d", 604800)):
        assert abs(parse_deliver_at(text) - now_ms - seconds * 1000) < 60_000
    for text in ("0", "earliest", "noon", "-1h", "10", "9" * 400 + "d", "2026-13-01T00:00"):
        with pytest.raises(typer.BadParameter, match="from now"):
            parse_deliver_at(text)


@pytest.mark.parametrize("content", [b'{"order": 1', b"[1, 2", b'"text', b'  {"a": NaN}', b"[" * 100_000])
def test_broken_json_is_refused_unless_raw(content):
    with pytest.raises(InvalidRequest, match=r"begins like JSON and is not: .*--raw"):
        payload_of(content, raw=False)
    assert payload_of(content, raw=True) == content


def test_broken_json_in_a_line_names_the_line():
    with pytest.raises(InvalidRequest, match="line 2 begins like JSON"):
        list(LineReader(io.BytesIO(b"1\n[INFO] started\n"), raw=False))
    assert list(LineReader(io.BytesIO(b"1\n[INFO] started\n"), raw=True)) == [[b"1", b"[INFO] started"]]


@pytest.mark.parametrize("content", [b"text", b"\xff\xfe", b"", b"12a", b"{}"])
def test_payloads_are_json_or_bytes(content):
    assert payload_of(content, raw=False) == ({} if content == b"{}" else content)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("0", 0), ("2.5", 2.5), ("250ms", 0.25), ("30s", 30), ("10m", 600), ("2h", 7200), ("7d", 604800),
     ("1h30m", 5400), ("1.5h", 5400)],
)  # fmt: skip
def test_durations_have_units_or_are_seconds(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1y", "1 h", "h", "inf", "nan", "1e3", "m5", "٣s", "9" * 400])
def test_invalid_duration_is_refused(text):
    with pytest.raises(typer.BadParameter, match="not a duration like 30s"):
        parse_seconds(text)


def test_too_long_delay_is_refused_in_one_line():
    refused = run("reschedule", "orders", "--key", "k", "--delay", "99999999d")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("penstock: delay") and len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        (["backoff=fixed"], {"backoff": {"kind": "fixed"}}),
        (["retention=keep", "retention.ms=7d"], {"retention": {"mode": "keep", "ms": 604_800_000}}),
        (["retention.mode=keep"], {"retention": {"mode": "keep"}}),
        (["backoff.kind=steps", "backoff.steps_ms=[1, 2]"], {"backoff": {"kind": "steps", "steps_ms": [1, 2]}}),
        (['retention={"mode": "keep"}'], {"retention": {"mode": "keep"}}),
        (["fair_share=true"], {"fair_share": {"enabled": True}}),
        (["lease_ms=30s", "max_retries=5"], {"lease_ms": 30_000, "max_retries": 5}),
        (["ttl_ms=null", "order=lanes"], {"ttl_ms": None, "order": "lanes"}),
    ],
)
def test_settings_are_json_names_of_choices_or_durations(texts, settings):
    assert parse_settings(texts) == settings


def test_shown_url_of_a_server_has_no_key():
    assert Remote("http://secret-key@broker:7400").shown_url == "http://broker:7400"


def test_names_are_completed_as_people_type_them(monkeypatch):
    paths = ["default/default/orders", "default/mail/orders", "shop/default/mail", "shop/mail/high"]
    monkeypatch.setattr(Remote, "ask", lambda *_args, **_fields: {"queues": [{"queue": path} for path in paths]})
    context = SimpleNamespace(params={})
    assert complete_queue(context, "") == ["default/mail/orders", "orders", "shop/mail", "shop/mail/high"]
    assert complete_queue(context, "sh") == ["shop/mail", "shop/mail/high"]


def test_without_a_server_nothing_is_completed():
    assert complete_queue(SimpleNamespace(params={"url": "http://127.0.0.1:9"}), "o") == []
    assert complete_queue(SimpleNamespace(params={"url": "nonsense"}), "o") == []
    assert complete_running_redrive(SimpleNamespace(params={"url": "nonsense", "queue": "orders"}), "") == []


# -- the guide ----------------------------------------------------------------------------------------------------


def shown_commands() -> list[list[str]]:
    """Every `penstock …` of the guide, as the shell would take it apart."""
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).splitlines()
    commands = [line[line.index("penstock ") :] for line in lines if "penstock " in line]
    return [shlex.split(command, comments=True)[1:] for command in commands]


@pytest.mark.parametrize("arguments", shown_commands(), ids=" ".join)
def test_commands_of_the_guide_are_understood(arguments):
    # With --help nothing is done; but what is not understood is still refused.
    shown = run(*arguments, "--help")
    assert shown.exit_code == 0, shown.output


def commands(command=None, path=()):
    """The path and the object of every command."""
    command = command or get_command(app)
    if not hasattr(command, "commands"):
        yield path, command
    for name in getattr(command, "commands", ()):
        yield from commands(command.get_command(None, name), (*path, name))


COMMAND_PATHS = [path for path, _ in commands()]


@pytest.mark.parametrize("path", COMMAND_PATHS, ids=" ".join)
def test_help_of_every_command_has_an_example_that_is_understood(path):
    command = dict(commands(COMMANDS(app)))[path]
    *words, example = command.help.split("\n\n")
    assert words and all(each.help for each in command.params if each.name != "help")
    assert example.startswith(f"Example: penstock {path[0]}")
    shown = run(*shlex.split(example.removeprefix("Example: penstock ")), "--help")
    assert shown.exit_code == 0, shown.output


def test_time_spans_are_durations_in_every_command():
    spans = {"seconds", "interval", "wait", "delay", "ttl", "lease", "timeout", "grace", "overlap", "every"}
    spans |= {"target_drain", "retry_delay"}
    found = {
        (" ".join(path), each.name): each.metavar
        for path, command in commands()
        for each in command.params
        if each.name in spans or each.metavar == "SECONDS"
    }
    others = {place: metavar for place, metavar in found.items() if metavar != "DURATION"}
    assert others == {("serve", "shutdown_grace_s"): "SECONDS"}
    for path in {path for path, _ in found} - {"serve"}:
        assert not re.search(r"default: \d+\.\d", run(*path.split(), "--help").output), path


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["latest"], "latest"),
        (["earliest"], "earliest"),
        (["at:1760000000000"], "at:1760000000000"),
        (["2026-01-31T12:00+00:00"], "at:1769860800000"),
        (["0:120"], {"0": 120}),
        (["0:120", "12:0"], {"0": 120, "12": 0}),
    ],
)
def test_places_of_groups(words, place):
    assert place_of(words) == place


def test_place_of_a_group_may_be_an_age():
    assert abs(int(place_of(["10m"]).removeprefix("at:")) - (time.time() - 600) * 1000) < 60_000
    for words in (["soon"], ["10m", "0:1"], ["0:1", "latest"]):
        with pytest.raises(typer.BadParameter):
            place_of(words)


def test_every_command_that_answers_something_answers_programs_too():
    without = [
        " ".join(path) for path, each in commands() if not any("--output" in param.opts for param in each.params)
    ]
    assert sorted(without) == ["inspect", "serve", "version", "worker"]
