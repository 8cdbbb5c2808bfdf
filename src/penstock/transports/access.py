"""Which requests are let in: those addressed to a name of this server, and from its own pages if from any.

A browser can be made to send requests to 127.0.0.1. Two headers give the page away, and it can forge neither: after DNS
rebinding `Host` is still the foreign name, and a request from a page of another origin carries that `Origin`, also
where the page cannot read the answer. Programs send no `Origin`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from penstock.transports.http.fields import Fields

_LOOPBACK = frozenset((b"localhost", b"127.0.0.1", b"::1"))


class Access(NamedTuple):
    """What is allowed besides the names of this machine and the server's own pages."""

    hosts: frozenset[bytes] = frozenset()
    """Names that the server is reached by, through a proxy: in lower case, without ports."""
    origins: frozenset[str] = frozenset()
    """Origins of pages, in lower case, as browsers write them."""

    def check(self, fields: Fields) -> None:
        """Raises Forbidden for a request to another host or from a page of another origin."""
        hosts = fields.hosts
        if len(hosts) != 1:
            raise InvalidRequest("send exactly one Host header", details={"field": "host"})
        name = _name_of(hosts[0])
        if name not in _LOOPBACK and name not in self.hosts:
            shown = _shown(hosts[0])
            raise Forbidden(
                f"this server does not answer to {shown}; `--allowed-host` with that name would let it in",
                details={"field": "host"},
            )
        if fields.origin is not None:
            self._check_origin(fields.origin.decode("latin-1").lower(), hosts[0])

    def _check_origin(self, origin: str, host: bytes) -> None:
        if origin not in self.origins and origin != f"http://{host.decode('latin-1').lower()}":
            raise Forbidden(
                f"pages of {origin[:100]!r} may not use this server; `--allowed-origin` with that origin would let "
                "them in",
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
