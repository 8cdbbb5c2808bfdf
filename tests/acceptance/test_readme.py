"""What the README shows is what happens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

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
    calls = re.findall(rf"^curl -s {SHOWN_ADDRESS}(/\S+) +-d '(.*)'$", README, re.MULTILINE)
    assert [path for path, _ in calls] == ["/v1/publish", "/v1/lease"]
    answers = [server.ask("POST", path, json.loads(body)) for path, body in calls]
    assert [answer.status for answer in answers] == [201, 200]
    assert [message["payload"] for message in answers[1].json["messages"]] == [{"n": 1}]
