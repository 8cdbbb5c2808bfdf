"""The HTTP client of the command line: one JSON request at a time over the public interface."""

from __future__ import annotations

import http.client
import os
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from penstock.errors import PenstockError, Unavailable
from penstock.wire.replies import ErrorReply
from penstock.wire.status import error_from_code

TIMEOUT_S = 30


class ServerUnreachable(Unavailable):
    """No server answers at the address."""


class Remote:
    """The HTTP interface of a server. The key is the user part of the URL, or else PENSTOCK_KEY."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise PenstockError("the URL is not the address of a server, like http://127.0.0.1:7400")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._is_tls = parts.scheme == "https"
        self._key = unquote(parts.username or "") or os.environ.get("PENSTOCK_KEY", "")
        self._timeout_s = timeout_s
        self._host = parts.hostname
        self._port = parts.port or (443 if self._is_tls else 80)
        self._timeout_s = timeout_s

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, *, body: object = None, query: dict[str, Any] | None = None) -> Any:
        """Return the decoded reply. Raises the error of the reply, or ServerUnreachable."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if content is None else {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            answer = response.read()
        except ConnectionRefusedError:
            raise ServerUnreachable(f"no broker at {self.url}") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachable(f"no answer from {self.url}: {error}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise _refusal(response.status, answer)
        return msgspec.json.decode(answer)


def _refusal(status: int, answer: bytes) -> PenstockError:
    try:
        error = msgspec.json.decode(answer, type=ErrorReply).error
    except msgspec.DecodeError:
        return PenstockError(f"the server answered {status} with a body that is not a Penstock reply")
    return error_from_code(error.code, error.message, details=error.details)
