"""Clients that others wrote, with the settings that they come with: publish, lease and ack work.

Each is skipped, with a message, where the program that runs it is missing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from http_server import running

FOREIGN = Path(__file__).parent / "foreign"
SOURCES = Path(__file__).parents[2] / "src"
WITHIN_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("foreign") / "data") as running_server:
        yield running_server


@pytest.fixture(scope="module")
def modules(request) -> Path:
    """`node_modules` with the packages of `foreign/package.json`. Kept between runs, in the cache of pytest."""
    needs("node", "npm")
    wanted = (FOREIGN / "package.json").read_bytes()
    home = request.config.cache.mkdir(f"foreign-{hashlib.sha256(wanted).hexdigest()[:16]}")
    done = home / "installed"
    if not done.exists():
        (home / "package.json").write_bytes(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        try:
            installed = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("npm cannot install the clients: no registry answers")
        if installed.returncode:
            pytest.skip(f"npm cannot install the clients: {installed.stderr.strip()[-500:]}")
        done.touch()
    return home / "node_modules"


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def run(*command: str, **more: Any) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def acked(answer: dict[str, Any]) -> int:
    assert {result["status"] for result in answer["results"]} == {"acked"}
    return len(answer["results"])


def test_java_http_client(server):
    needs("java")
    java = subprocess.run(["java", "--version"], capture_output=True, text=True, timeout=WITHIN_S, check=False)
    if java.returncode or int(java.stdout.split()[1].partition(".")[0]) < 17:
        pytest.skip("a Java of version 17 or newer is not installed")
    assert acked(run("java", "-Xshare:auto", str(FOREIGN / "Client.java"), server.url)) == 3
    assert server.ask("GET", "/v1/stats?queue=java").json["depth"] == 0


@pytest.mark.parametrize("version", ["--http2", "--http1.1", "--http1.0"])
def test_curl(server, version):
    needs("curl")
    queue = f"curl{version.replace('.', '').replace('--', '-')}"
    features = subprocess.run(["curl", "--version"], capture_output=True, text=True, timeout=WITHIN_S, check=True)
    if version == "--http2" and "HTTP2" not in features.stdout:
        pytest.skip("this curl has no HTTP/2")

    def curl(path: str, body: object) -> Any:
        return run("curl", "-sS", "--fail-with-body", version, f"{server.url}{path}", "-d", json.dumps(body))

    for number in range(3):
        curl("/v1/publish", {"queue": queue, "messages": [{"payload": number}]})
    leased = curl("/v1/lease", {"queue": queue, "max": 10})["messages"]
    assert [message["payload"] for message in leased] == [0, 1, 2]
    assert acked(curl("/v1/ack", {"receipts": [message["receipt"] for message in leased]})) == 3


def test_curl_sends_a_large_body_after_100_continue(server, tmp_path):
    needs("curl")
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"queue": "large", "messages": [{"payload": "x" * 900_000}] * 3}))
    command = ["curl", "-sS", "--fail-with-body", "-H", "Expect: 100-continue", f"{server.url}/v1/publish", "-d"]
    assert len(run(*command, f"@{body}")["messages"]) == 3


def test_client_that_keeps_its_connection_alive_without_saying_so(server):
    """The bytes of Go's `net/http`: HTTP/1.1 without a Connection header, one connection for everything."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        reading = connection.makefile("rb")

        def post(path: str, body: object) -> Any:
            data = json.dumps(body).encode()
            connection.sendall(
                b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"
                b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%b"
                % (path.encode(), server.port, len(data), data)
            )
            line, headers = reading.readline(), {}
            while (header := reading.readline()) != b"\r\n":
                name, _, value = header.decode().partition(":")
                headers[name.lower()] = value.strip()
            assert line.split()[1] in (b"200", b"201") and "connection" not in headers
            return json.loads(reading.read(int(headers["content-length"])))

        for number in range(3):
            post("/v1/publish", {"queue": "go", "messages": [{"payload": number}]})
        leased = post("/v1/lease", {"queue": "go", "max": 10})["messages"]
        assert acked(post("/v1/ack", {"receipts": [message["receipt"] for message in leased]})) == 3
        reading.close()


def node(modules: Path, program: str, *arguments: str) -> Any:
    """Run a copy beside the packages: that is where Node looks for them."""
    copied = modules.parent / program
    shutil.copyfile(FOREIGN / program, copied)
    return run("node", str(copied), *arguments)


def test_undici(server, modules):
    assert acked(node(modules, "undici_client.js", server.url)) == 4


def test_ws(server, modules):
    assert acked(node(modules, "ws_client.js", server.url)) == 3
    assert server.ask("GET", "/v1/stats?queue=ws").json["depth"] == 0


def test_grpc_js(server, modules):
    answer = node(modules, "grpc_client.js", server.grpc, str(SOURCES))
    assert acked(answer) == 3
    assert set(answer["attempts"]) == {1}, "a stream that was cancelled is no attempt"
