"""Proxies in front of a server, as people run them: nginx with the usual block for WebSockets, and HAProxy.

Both come from packages of the system (`nginx-light` and `haproxy` on Debian). Nothing is installed here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

READY_WITHIN_S = 20
NGINX = """
daemon off;
master_process off;
{user}
pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_timeout 1s;
    client_header_timeout 1s;
    keepalive_timeout 1s;
    lingering_time 1s;
    lingering_timeout 1s;
    large_client_header_buffers 4 128k;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream broker {{ server 127.0.0.1:{upstream}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://broker;
            proxy_http_version 1.1;
            proxy_set_header Host localhost;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_request_buffering {buffering};
        }}
    }}
}}
"""
HAPROXY = """
global
    maxconn 1000
    tune.bufsize 131072
defaults
    mode http
    timeout connect 5s
    timeout client 1s
    timeout server 2s
    timeout http-request 1s
    timeout http-keep-alive 1s
    http-reuse always
frontend door
    bind 127.0.0.1:{port}
    http-request set-header Host localhost
    default_backend broker
backend broker
    server one 127.0.0.1:{upstream}
"""
KINDS = ("nginx", "nginx unbuffered", "haproxy")


@contextlib.contextmanager
def proxied(kind: str, upstream: int, home: Path) -> Iterator[int]:
    """The port of a proxy of this kind in front of the server at `upstream`. Skips the test if it is not installed."""
    program, _, mode = kind.partition(" ")
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        package = {"nginx": "nginx-light"}.get(program, program)
        pytest.skip(f"{program} is not installed; on Debian the package is {package}")
    home.mkdir(parents=True)
    port = _free_port()
    config = home / "config"
    if program == "nginx":
        user = "user root;" if os.geteuid() == 0 else ""
        buffering = "off" if mode else "on"
        config.write_text(NGINX.format(home=home, user=user, port=port, upstream=upstream, buffering=buffering))
        command = [found, "-p", str(home), "-e", str(home / "early.log"), "-c", str(config)]
    else:
        config.write_text(HAPROXY.format(port=port, upstream=upstream))
        command = [found, "-db", "-f", str(config)]
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait_for(port, process, home / "output")
        yield port
    finally:
        process.kill()
        process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _wait_for(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None and time.monotonic() < deadline, output.read_text()
        time.sleep(0.01)
