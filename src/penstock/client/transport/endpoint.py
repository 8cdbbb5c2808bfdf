"""One server as a client reaches it: its address, the credential, the timeouts, and the errors that name it."""

from __future__ import annotations

import os
import re
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock._version import __version__
from penstock.client.calls.call import Call
from penstock.client.transport.retry import AnswerLost, Unreachable, unreachable
from penstock.client.units import Duration, seconds
from penstock.errors import InvalidRequest, PenstockError

HTTP = "http"
KEY_VARIABLE = "PENSTOCK_KEY"
CERT_VARIABLE, CERT_KEY_VARIABLE = "PENSTOCK_CLIENT_CERT", "PENSTOCK_CLIENT_CERT_KEY"
"""Files (PEM) of the client certificate and its key, where no context is given."""
_DEFAULT_PORTS = {HTTP: 80, "ws": 80, "grpc": 7401}


class ServerEndpoint:
    def __init__(
        self, url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None, timeout: Duration = 30.0,
        connect_timeout: Duration = 5.0, connections_max: int = 64,
    ):  # fmt: skip
        """Raises InvalidRequest for a URL or a token of no use.

        Without a token the user part of the URL is the credential, or else the environment variable PENSTOCK_KEY.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from None
        self.scheme = parts.scheme if parts.scheme in _DEFAULT_PORTS else parts.scheme.removesuffix("s")
        """That of the URL, without the `s` of TLS."""
        if self.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise _bad_url(url, "it must look like http://host:port, ws://host:port or grpc://host:port")
        if parts.password is not None or parts.query or parts.fragment:
            raise _bad_url(url, "it may have neither password, query nor fragment; pass a credential as key=…")
        token = token or (unquote(parts.username) if parts.username else None) or os.environ.get(KEY_VARIABLE) or None
        self.prefix = parts.path.rstrip("/")
        """Path in front of every target, for servers behind a reverse proxy; empty or `/like/this`."""
        self.is_tls = parts.scheme != self.scheme
        if self.scheme == "grpc" and (self.prefix or tls is not None):
            raise _bad_url(url, "grpc:// takes neither a path nor an ssl context; TLS is checked by the system's rules")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidRequest("a token is printable ASCII without line breaks", details={"field": "token"})
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self.prefix}"
        """Without a credential: it appears in errors and logs."""
        self.host = parts.hostname
        self.port = port or (443 if self.is_tls else _DEFAULT_PORTS[self.scheme])
        self.authorization = None if token is None else f"Bearer {token}"
        self.tls = (tls or _default_context()) if self.is_tls and self.scheme != "grpc" else None
        self.timeout_s = seconds("timeout", timeout)
        self.connect_timeout_s = seconds("connect_timeout", connect_timeout)
        self.connections_max = connections_max
        self._constant_headers = self._encode_constant_headers()

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def host_header(self) -> str:
        is_default = self.port == (443 if self.is_tls else 80)
        return self.bracketed_host if is_default else f"{self.bracketed_host}:{self.port}"

    def timeout_of(self, call: Call[Any]) -> float:
        """Seconds for the answer, with those for which the call waits on purpose."""
        return self.timeout_s + call.wait_ms / 1000

    # -- HTTP/1.1 ---------------------------------------------------------------------------------------------------

    def encode(self, call: Call[Any]) -> tuple[bytes, bytes]:
        """(head, body) of one request. They stay apart so that a large body is never copied just to prefix it."""
        typed = ""
        if call.method != "GET":
            typed = f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n"
        return b"%b%b%b" % (
            f"{call.method} {self.prefix}{call.target} HTTP/1.1\r\n".encode("ascii"),
            self._constant_headers,
            f"{typed}Accept: {call.accept}\r\n\r\n".encode("ascii"),
        ), call.body

    def _encode_constant_headers(self) -> bytes:
        lines = f"Host: {self.host_header}\r\nUser-Agent: penstock-python/{__version__}\r\n"
        if self.authorization is not None:
            lines += f"Authorization: {self.authorization}\r\n"
        return lines.encode("ascii")

    # -- errors -----------------------------------------------------------------------------------------------------

    def not_connected(self, error: OSError) -> PenstockError:
        """Connecting failed with this, so the request was not sent."""
        if isinstance(error, TimeoutError):
            return Unreachable(f"cannot reach {self.url}: no connection within {self.connect_timeout_s:g} s")
        if isinstance(error, ssl.SSLError):
            return PenstockError(f"cannot trust {self.url}: {error}")
        return unreachable(self.url, error)

    def not_answered(self, error: object) -> AnswerLost:
        """The request was sent, and this came instead of an answer."""
        return AnswerLost(f"no answer from {self.url}: {error}")

    def not_penstock(self, error: object) -> PenstockError:
        return PenstockError(f"{self.url} does not answer like a Penstock server: {error}")


def client_certificate() -> tuple[str, str | None] | None:
    """The files of the client certificate and of its key, None if it is in the same file."""
    cert = os.environ.get(CERT_VARIABLE)
    return (cert, os.environ.get(CERT_KEY_VARIABLE) or None) if cert else None


def unusable_certificate(error: OSError) -> InvalidRequest:
    return InvalidRequest(f"{CERT_VARIABLE}, {CERT_KEY_VARIABLE}: the client certificate cannot be used: {error}")


def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if (files := client_certificate()) is not None:
        try:
            context.load_cert_chain(*files)
        except OSError as error:  # an SSLError is one
            raise unusable_certificate(error) from None
    return context


def _bad_url(url: str, reason: str) -> InvalidRequest:
    shown = re.sub(r"//[^/@]*@", "//***@", url)
    return InvalidRequest(f"{shown!r} is not a server address: {reason}", details={"field": "url"})
