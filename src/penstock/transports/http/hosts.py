"""Who may talk to a server that trusts its own machine: programs of this machine, not pages of foreign sites.

A browser can be made to send requests to 127.0.0.1. Two headers give such a page away, and it can forge neither: after
DNS rebinding `Host` is still the foreign name, and a cross-site request carries a foreign `Origin`.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.errors import Forbidden, InvalidRequest
from penstock.transports.http.fields import Fields

_LOOPBACK = frozenset((b"localhost", b"127.0.0.1", b"::1"))


def check_host(fields: Fields, *, any_origin: bool = False) -> None:
    """Raises Forbidden unless a request was addressed to this machine, from this machine's own pages if from any."""
    hosts = fields.hosts
    if len(hosts) != 1:
        raise InvalidRequest("send exactly one Host header", details={"field": "host"})
    if _name_of(hosts[0]) not in _LOOPBACK:
        raise Forbidden(
            f"this server answers to localhost, 127.0.0.1 and [::1] only, not to {_shown(hosts[0])}",
            details={"field": "host"},
        )
    origin = None if any_origin else fields.origin
    if origin is not None and _name_of(origin.rpartition(b"://")[2]) not in _LOOPBACK:
        raise Forbidden(
            f"pages of {_shown(origin)} may not use this server, only those of this machine",
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
