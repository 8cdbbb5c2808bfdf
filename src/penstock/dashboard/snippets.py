"""Code that a visitor can paste: calls of this server under the address that the browser used."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

import msgspec

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_DEFAULT_HOST = "127.0.0.1:7400"
_KEY_HEADER = ' -H "Authorization: Bearer $PENSTOCK_KEY"'


class Snippets(NamedTuple):
    url: str
    """The address of the server, without a path."""
    needs_key: bool
    """The server asks for credentials. The SDK takes them from the environment too."""

    def curl(self, path: str, body: Any, method: str = "POST") -> str:
        verb = "" if method == "POST" else f" -X {method}"
        text = shlex.quote(msgspec.json.encode(body).decode())
        return f"curl -s{verb} {self.url}{path}{_KEY_HEADER if self.needs_key else ''} -d {text}"

    def publish(self, queue: str, **message: Any) -> str:
        """The call that publishes a small message."""
        return self.curl("/v1/publish", {"queue": queue, "messages": [{"payload": {"n": 1}, **message}]})

    def python(self, *lines: str) -> str:
        """A program with a connected `client`."""
        body = "\n".join(f"    {line}" for line in lines)
        return f"from penstock.sync import Client\n\nwith Client({self.url!r}) as client:\n{body}"


def snippets(host: str, *, secure: bool, needs_key: bool) -> Snippets:
    """`host` is the header of the request; one that is not an address is not repeated."""
    shown = host if _HOST.fullmatch(host) else _DEFAULT_HOST
    return Snippets(f"{'https' if secure else 'http'}://{shown}", needs_key)
