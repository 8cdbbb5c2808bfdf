"""The address of a client behind proxies, and the part of it that limits count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.addresses import TrustedProxies, counted_address, normal_address

PROXIES = TrustedProxies.parse(["10.0.0.0/8", "fd00::/8"])


def client(*headers: tuple[str, str], peer: str = "10.0.0.1") -> str:
    return PROXIES.client(peer, [(name.encode(), value.encode()) for name, value in headers])


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("203.0.113.9, 192.0.2.1", "192.0.2.1"),
        ("203.0.113.9, 192.0.2.1, 10.0.0.7", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("10.9.9.9", "10.9.9.9"),
        ("192.0.2.1, unknown", "10.0.0.1"),
        ("192.0.2.1, unknown, 10.0.0.7", "10.0.0.7"),
        ("", "10.0.0.1"),
        (",", "10.0.0.1"),
    ],
)
def test_client_is_the_rightmost_hop_that_is_no_proxy(value, found):
    assert client(("x-forwarded-for", value)) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("for=192.0.2.1;proto=https;by=10.0.0.1", "192.0.2.1"),
        ('for="[2001:db8::1]:4711"', "2001:db8::1"),
        ('For="192.0.2.1:80", for=10.0.0.7', "192.0.2.1"),
        ("for=203.0.113.9, for=192.0.2.1", "192.0.2.1"),
        ("for=_hidden", "10.0.0.1"),
        ("for=203.0.113.9;for=192.0.2.1", "10.0.0.1"),
        ('for="203.0.113.9, for=192.0.2.1', "10.0.0.1"),
        ('for=203.0.113.9;x="a,b", for=192.0.2.1', "192.0.2.1"),
        ("proto=https", "10.0.0.1"),
    ],
)
def test_forwarded_is_read(value, found):
    assert client(("forwarded", value)) == found


def test_lines_of_a_header_are_one_list():
    assert client(("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "192.0.2.1")) == "192.0.2.1"


def test_headers_that_contradict_each_other_name_the_proxy():
    """The proxy writes one of them; the other one is as its client sent it."""
    spoofed = ("forwarded", "for=203.0.113.9")
    assert client(("x-forwarded-for", "192.0.2.1"), spoofed) == "10.0.0.1"
    assert client(("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1")) == "192.0.2.1"
    assert client() == "10.0.0.1"


@given(st.text(), st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_a_client_cannot_hide_what_the_proxy_appends_to_its_list(text, header):
    own = text.encode("latin-1", "replace").decode("latin-1")
    added = "for=192.0.2.1" if header == "forwarded" else "192.0.2.1"
    found = PROXIES.client("10.0.0.1", [(header.encode(), f"{own}, {added}".encode("latin-1"))])
    assert found in ("192.0.2.1", "10.0.0.1")


def test_trusted_networks():
    assert PROXIES.trusts("10.1.2.3") and PROXIES.trusts("::ffff:10.1.2.3") and PROXIES.trusts("fd00::1%eth0")
    assert not PROXIES.trusts("192.0.2.1") and not PROXIES.trusts("") and not TrustedProxies()
    for text in ("10.0.0.1/8", "example.com", ""):
        with pytest.raises(ValueError, match="is not a network"):
            TrustedProxies.parse([text])


def test_ipv6_addresses_are_counted_by_network():
    assert counted_address("2001:db8::1") == counted_address("2001:db8::ffff:1") == "2001:db8::/64"
    assert counted_address("2001:db8:0:1::1") != counted_address("2001:db8::1")
    assert counted_address("::ffff:192.0.2.1") == counted_address("192.0.2.1") == "192.0.2.1"
    assert counted_address("") == "" and normal_address("::FFFF:192.0.2.1") == "192.0.2.1"
