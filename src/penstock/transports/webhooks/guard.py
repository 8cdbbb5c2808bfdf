"""Protection against server-side request forgery: the URLs and addresses that webhooks may be sent to.

A URL is checked when it is registered and before each request. Each address that its host resolves to is checked for
every connection (`network.py`). The grammar accepts a small part of legal URLs, so that no two parsers read an accepted
URL in two ways. Without further settings only public endpoints are allowed: https, ports 443 and 8443, and a globally
routed address that embeds no other address. The operator allows other networks with the setting `webhook_allow`.

Error texts never contain a resolved address, because a client that registers a URL must not learn the private network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, NoReturn, TypeAlias

from penstock import limits
from penstock.errors import InvalidRequest

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

PUBLIC_PORTS = frozenset((443, 8443))
_DEFAULT_PORTS = {"https": 443, "http": 80}

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<rest>(?:[/?][A-Za-z0-9/?:@!$&'()*+,;=._~%\[\]-]*)?)",
    re.ASCII,
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)
"""A last label that some parsers read as the last part of an IPv4 address."""

# The result of `is_global` differs between versions of Python, so the important ranges are listed here too.
_NOT_PUBLIC_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
_UNICAST_6 = IPv6Network("2000::/3")
"""It excludes loopback, mapped and compatible IPv4, NAT64, link- and site-local, unique local and multicast."""
_NOT_PUBLIC_6 = [
    # Protocol assignments (Teredo included), documentation, 6to4, documentation.
    IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
]


class AddressRefused(Exception):
    """No request may be sent to this address. The text is shown to the client that registered the URL."""


class Target(NamedTuple):
    scheme: str
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    address: Address | None
    """None if the host is a name."""


class Guard:
    """The checks of URLs and addresses, and the networks that the operator allows in addition."""

    def __init__(self, allow: Sequence[Network] = ()):
        self._allow = list(allow)
        self._own: list[tuple[str, int]] = []

    def deny_own(self, host: str, port: int) -> None:
        """Refuse this address, on which the server itself listens, also inside allowed networks."""
        self._own.append((host, port))

    def check_url(self, url: str) -> Target:
        """Check a URL without resolving its host. Raises InvalidRequest."""
        target = parse_url(url)
        if target.scheme == "http" and target.port in PUBLIC_PORTS:
            _invalid(f"port {target.port} is for https")
        if target.address is not None:
            try:
                self.check_address(target.address, target.port)
            except AddressRefused as refused:
                _invalid(str(refused))
        elif not self._allow:
            if target.scheme != "https":
                _invalid("write https; http is only for networks that the operator has allowed (webhook_allow)")
            if target.port not in PUBLIC_PORTS:
                _invalid(f"port {target.port}: only {_ports()}, unless the operator allows the network (webhook_allow)")
            if "." not in target.host:
                _invalid("a host without a dot is not a public name")
        return target

    def check_address(self, address: Address, port: int) -> None:
        """Raises AddressRefused unless a connection may be made to this address and port."""
        for host, own_port in self._own:
            if port == own_port and _is_own(address, host):
                raise AddressRefused("this is the server's own address")
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise AddressRefused("addresses with a zone are not allowed")
        if any(address in network for network in self._allow if network.version == address.version):
            return
        if not _is_public(address):
            raise AddressRefused("the address is not a public one, and the operator has not allowed its network")
        # This check also refuses every http URL, because `check_url` refuses http on the public ports.
        if port not in PUBLIC_PORTS:
            raise AddressRefused(
                f"port {port}: only {_ports()}, and only https, unless the operator allows the network"
            )


def parse_url(url: str) -> Target:
    """Parse an absolute URL in its canonical spelling. Raises InvalidRequest for any other URL."""
    if len(url) > limits.WEBHOOK_URL_CHARS_MAX:
        _invalid(f"longer than {limits.WEBHOOK_URL_CHARS_MAX} characters")
    if not url.isascii():
        _invalid("write it in ASCII: a name with other letters in its xn-- form, the rest percent-encoded")
    if "@" in url.partition("://")[2].partition("/")[0].partition("?")[0]:
        _invalid("no user name or password")
    if "#" in url:
        _invalid("no fragment")
    found = _URL.fullmatch(url)
    if found is None:
        _invalid("not an absolute URL like https://example.com/hooks")
    scheme, host = found["scheme"], found["host"]
    port = int(found["port"] or _DEFAULT_PORTS[scheme])
    if port > 65_535:
        _invalid(f"there is no port {port}")
    if host.startswith("["):
        try:
            address: Address = IPv6Address(host[1:-1])
        except ValueError:
            _invalid("not an IPv6 address")
        return Target(scheme, host[1:-1], port, address)
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return Target(scheme, host, port, IPv4Address(host))
        except ValueError:
            _invalid("an IPv4 address is four decimal numbers")
    if not all(_LABEL.fullmatch(label) for label in labels):
        _invalid("not a host name")
    return Target(scheme, host.lower(), port, None)


def parse_networks(text: str) -> list[Network]:
    """Parse `webhook_allow`: networks like `10.0.0.0/8`, separated by commas. Raises ValueError."""
    networks: list[Network] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ValueError(f"{part!r} is not a network like 10.0.0.0/8: {error}") from None
    return networks


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    # An ISATAP address embeds any IPv4 address behind these 32 bits.
    isatap = int(address) >> 32 & 0xFDFF_FFFF == 0x0000_5EFE
    return address in _UNICAST_6 and not isatap and not any(address in network for network in _NOT_PUBLIC_6)


def _is_own(address: Address, host: str) -> bool:
    listening = ipaddress.ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if listening.is_loopback:
        return address.is_loopback
    return address == listening or (listening.is_unspecified and not _is_public(address))


def _ports() -> str:
    return " and ".join(map(str, sorted(PUBLIC_PORTS)))


def _invalid(reason: str) -> NoReturn:
    raise InvalidRequest(f"url: {reason}", details={"field": "url"})
