"""Addresses of clients, also behind proxies, and the part of an address that limits count.

A proxy that is trusted appends the address of its client to `X-Forwarded-For`, or writes it into `Forwarded`
(RFC 7239). The client is the rightmost address that is not a trusted proxy: everything to the left of it was written by
the client itself. From any other address both headers mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_PREFIX_V6 = 64
"""A host may use any address of its /64: limits count them as one."""
_ELEMENT = re.compile(r'((?:[^",]|"[^"\\]*+")*+)(?:,|$)')


class TrustedProxies:
    """The networks whose word about their clients is taken."""

    def __init__(self, networks: Sequence[Network] = ()):
        self._networks = tuple(networks)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TrustedProxies:
        """Networks like `10.0.0.0/8`, or addresses. Raises ValueError with the text that is neither."""
        networks = []
        for text in texts:
            try:
                networks.append(ip_network(text.strip()))
            except ValueError as error:
                raise ValueError(f"{text!r} is not a network like 10.0.0.0/8: {error}") from None
        return cls(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, address: str) -> bool:
        found = parse_address(address)
        return found is not None and self._has(found)

    def client(self, peer: str, headers: Headers) -> str:
        """The address of the client behind a connection from `peer`, which is a trusted proxy.

        Where the headers contradict each other, or do not say, it is that of the proxy.
        """
        given = {name: values for name in (b"x-forwarded-for", b"forwarded") if (values := _values(headers, name))}
        found = {self._rightmost(peer, _hops(name, values)) for name, values in given.items()}
        # A proxy writes one of the headers, and passes on the other one as its client sent it.
        return found.pop() if len(found) == 1 else normal_address(peer)

    def _rightmost(self, peer: str, hops: Sequence[str]) -> str:
        known = peer
        for hop in reversed(hops):
            address = parse_address(hop)
            if address is None:
                break
            known = str(address)
            if not self._has(address):
                break
        return normal_address(known)

    def _has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """An IPv4 address in IPv6 notation is an IPv4 address. None for other texts."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def normal_address(text: str) -> str:
    return str(parse_address(text) or text)


@lru_cache(maxsize=4096)
def counted_address(text: str) -> str:
    """The name under which limits count an address: the /64 of an IPv6 address, the whole IPv4 address."""
    address = parse_address(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _PREFIX_V6), strict=False))
    return text if address is None else str(address)


def _values(headers: Headers, wanted: bytes) -> str:
    return ",".join(value.decode("latin-1") for name, value in headers if name == wanted)


def _hops(name: bytes, text: str) -> list[str]:
    """The addresses in the order of the header; an empty text for one that is hidden or malformed."""
    if name == b"x-forwarded-for":
        return [_without_port(part.strip()) for part in text.split(",")]
    hops, at = [], 0
    while at < len(text):
        element = _ELEMENT.match(text, at)
        if element is None or element.end() == at:
            return [""]  # an open quotation mark: it is not known which part the proxy wrote
        hops.append(_forwarded_for(element[1]))
        at = element.end()
    return hops


def _forwarded_for(element: str) -> str:
    found = [value for pair in element.split(";") for name, _, value in [pair.partition("=")] if _is_for(name)]
    return _without_port(found[0].strip().strip('"')) if len(found) == 1 else ""


def _is_for(name: str) -> bool:
    return name.strip().lower() == "for"


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
