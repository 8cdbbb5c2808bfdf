"""Checks of the Host and Origin headers: protection against DNS rebinding and against pages of other origins.

A foreign page can make a browser send requests to 127.0.0.1, but it can forge neither header. After DNS rebinding
`Host` is still the foreign name. A request from a page of another origin carries that `Origin`, also where the page
cannot read the reply. Programs send no `Origin`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from penstock.transports.http.fields import Fields

_LOOPBACK = frozenset((b"localhost", b"127.0.0.1", b"::1"))


class Access(NamedTuple):
    """Hosts and origins that are allowed besides loopback names and the server's own pages."""

    hosts: frozenset[bytes] = frozenset()
    """Host names of the server, for instance behind a proxy: in lower case, without ports."""
    origins: frozenset[str] = frozenset()
    """Origins of pages, in lower case, as browsers write them."""
    any_host: bool = False
    """True: requests need a credential, which a page of a foreign name does not have; the name says nothing more."""
    scheme: str = "http"
    """Of the server's own pages."""

    def shares_with(self, origin: bytes) -> bool:
        """Whether answers are for pages of this origin, which is not the server's own."""
        return bool(self.origins) and origin.decode("latin-1").lower() in self.origins

    def check(self, fields: Fields) -> None:
        """Raises Forbidden for a request to another host or from a page of another origin."""
        hosts = fields.hosts
        if len(hosts) != 1:
            raise InvalidRequest("send exactly one Host header", details={"field": "host"})
        name = _name_of(hosts[0])
        if not self.any_host and name not in _LOOPBACK and name not in self.hosts:
            shown = _shown(hosts[0])
            raise Forbidden(
                f"the host {shown} is not allowed; to allow it, start the server with `--allowed-host` and that name",
                details={"field": "host"},
            )
        if fields.origin is not None:
            self._check_origin(fields.origin.decode("latin-1").lower(), hosts[0])

    def _check_origin(self, origin: str, host: bytes) -> None:
        name = host.decode("latin-1").lower()
        # A proxy in front of a server that asks for credentials may have TLS.
        own = {f"{self.scheme}://{name}", f"https://{name}"} if self.any_host else {f"{self.scheme}://{name}"}
        if origin not in self.origins and origin not in own:
            raise Forbidden(
                f"the origin {origin[:100]!r} is not allowed; to allow it, start the server with `--allowed-origin` "
                "and that origin",
                details={"field": "origin"},
            )


@lru_cache(maxsize=64)
def _name_of(host: bytes) -> bytes:
    """The host without its port and without the brackets of an IPv6 address."""
    if host.startswith(b"["):
        name, bracket, port = host[1:].partition(b"]")
        port_ok = bracket and (not port or (port.startswith(b":") and port[1:].isdigit()))
    else:
        name, colon, port = host.partition(b":")
        port_ok = not colon or port.isdigit()
    return name.lower() if port_ok else b""


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
