"""The examples of the README have the outputs that it shows."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from http_server import running

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
SHOWN_ADDRESS = "127.0.0.1:7400"


def section(title: str, language: str) -> str:
    """The first block of code under a heading."""
    found = re.search(rf"^## {title}\n(?:(?!^## ).)*?^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found, f"there is no {language} under {title!r}"
    return found[1]


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "data") as server:
        yield server


def test_the_twelve_lines(server):
    program = section("Twelve lines", "python")
    assert SHOWN_ADDRESS in program
    program = program.replace(SHOWN_ADDRESS, f"127.0.0.1:{server.port}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert sorted(lines) == [f"1 {{'order': {number}}}" for number in range(1, 10)]
    assert lines[-1] == "1 {'order': 1}", "the delayed one comes last"


def test_the_calls_by_hand(server):
    lines = re.findall(rf"^curl .*{SHOWN_ADDRESS}/.*$", README, re.MULTILINE)
    assert [re.search(r"/v1/\w+", line)[0] for line in lines] == ["/v1/publish", "/v1/lease"]
    commands = [shlex.split(line.replace(SHOWN_ADDRESS, f"127.0.0.1:{server.port}")) for line in lines]
    if shutil.which("curl"):
        answers = [
            json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
            for command in commands
        ]
    else:  # the same bytes as curl would send
        form = {"content_type": "application/x-www-form-urlencoded"}
        answers = [
            server.ask("POST", urlsplit(f"//{command[2]}").path, command[4].encode(), **form).json
            for command in commands
        ]
    assert answers[0]["durable"] is True
    assert [message["payload"] for message in answers[1]["messages"]] == [{"n": 1}]
