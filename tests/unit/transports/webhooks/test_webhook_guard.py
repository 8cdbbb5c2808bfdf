"""URLs and addresses that the guard refuses, and proof that nothing connects to them."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import sys

import pytest
from hostile_urls import LISTENING, LOOPBACK, NAMES, NOT_PUBLIC, TRICKS

from penstock.errors import InvalidRequest
from penstock.transports.webhooks.guard import AddressRefused, Guard, parse_networks, parse_url
from penstock.transports.webhooks.network import system_lookup
from penstock.transports.webhooks.sender import Sender

HOSTILE = [*LOOPBACK, *NOT_PUBLIC, *TRICKS]
_connects: list[object] | None = None


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect" and _connects is not None:
        _connects.append(arguments[1])


sys.addaudithook(_watch)


@contextlib.contextmanager
def connections():
    """Every address that this process connects to inside the block."""
    global _connects
    _connects = []
    try:
        yield _connects
    finally:
        _connects = None


@contextlib.contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener, listener.getsockname()[1]


def addresses(*found: str):
    """Addresses in the form of `socket.getaddrinfo`."""
    return [
        (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "",
         (each, 443, 0, 0) if ":" in each else (each, 443))
        for each in found
    ]  # fmt: skip


async def outcomes(urls, guard: Guard, lookup, timeout_ms: int = 2_000) -> list[str]:
    sender = Sender(guard, lookup=lookup)
    try:
        return [(await sender.send(url, {}, b"{}", timeout_ms, 0)).outcome for url in urls]
    finally:
        await sender.close()


def test_hostile_url_corpus_is_large():
    assert len(set(HOSTILE)) >= 120 and len(NAMES) >= 20


@pytest.mark.parametrize("url", HOSTILE, ids=ascii)
def test_hostile_url_cannot_be_registered(url):
    with pytest.raises(InvalidRequest) as refused:
        Guard().check_url(url.replace(LISTENING, "9999"))
    assert refused.value.details == {"field": "url"}


def test_nothing_connects_for_any_hostile_url():
    def lookup(host: str, port: int):
        raise AssertionError(f"{host} was resolved")

    with listening() as (listener, port), connections() as made:
        urls = [url.replace(LISTENING, str(port)) for url in HOSTILE]
        assert set(asyncio.run(outcomes(urls, Guard(), lookup))) == {"refused"}
        assert made == []
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nothing_connects_for_names_with_disallowed_addresses():
    with connections() as made:
        urls = [f"https://{name}/hook" for name in NAMES] + [f"https://{name}:8443/" for name in NAMES]
        found = asyncio.run(outcomes(urls, Guard(), lambda host, _port: addresses(*NAMES[host])))
        assert found == ["refused"] * len(urls)
        assert made == []


def test_name_is_resolved_once_per_connection():
    """The second lookup would return a disallowed address; the first connection does not ask for it."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    def lookup(_host: str, _port: int):
        return addresses(*answers.pop(0))

    with listening() as (_listener, port), connections() as made:
        guard = Guard(parse_networks("127.0.0.1/32"))
        url = f"http://rebinding.example:{port}/"
        assert asyncio.run(outcomes([url], guard, lookup, timeout_ms=200)) == ["timeout"]
        assert made == [("127.0.0.1", port)] and len(answers) == 1
        assert asyncio.run(outcomes([url], guard, lookup)) == ["refused"]
        assert made == [("127.0.0.1", port)]


def test_only_allowed_networks_are_reached():
    guard = Guard(parse_networks("127.0.0.1/32, ::1/128"))
    assert guard.check_url("http://127.0.0.1:8080/x").port == 8080
    assert guard.check_url("http://service:8080/x").host == "service"
    guard.check_url("http://[::1]:80/")
    for url in ("http://127.0.0.2:8080/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://127.0.0.1:443/"):
        with pytest.raises(InvalidRequest):
            guard.check_url(url)
    with pytest.raises(AddressRefused):
        guard.check_address(ipaddress.ip_address("93.184.216.34"), 80)
    guard.check_address(ipaddress.ip_address("93.184.216.34"), 443)


def test_own_address_is_refused():
    guard = Guard(parse_networks("127.0.0.0/8,::1/128,10.0.0.0/8"))
    guard.deny_own("127.0.0.1", 7400)
    guard.check_url("http://127.0.0.1:7401/")
    for host in ("127.0.0.1", "127.8.8.8", "[::1]"):
        with pytest.raises(InvalidRequest, match="own"):
            guard.check_url(f"http://{host}:7400/")
    guard.deny_own("0.0.0.0", 7500)
    with pytest.raises(InvalidRequest, match="own"):
        guard.check_url("http://10.1.2.3:7500/")
    guard.check_url("http://10.1.2.3:7501/")


def test_peer_is_checked_after_connect():
    """A peer that the guard refuses after the connect gets no request."""

    class Fooled(Guard):
        asked = 0

        def check_url(self, url):
            return parse_url(url)

        def check_address(self, address, port):
            self.asked += 1
            if self.asked > 1:
                super().check_address(address, port)

    async def story():
        received, over = bytearray(), asyncio.Event()

        async def serve(reader, writer):
            received.extend(await reader.read())
            writer.close()
            await writer.wait_closed()
            over.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        guard = Fooled()
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert await outcomes([url], guard, system_lookup) == ["refused"]
            await over.wait()
        assert guard.asked == 2 and received == b""

    asyncio.run(story())


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com", "https://example.com/", "https://example.com?x=1", "https://example.com:8443/a/b?c=d&e",
        "https://xn--exmple-cua.com/%C3%BC", "https://93.184.216.34/", "https://[2606:4700:4700::1111]/", "https://1a.b-c.io/",
        "https://hooks.example.com/services/T0/B0/x~y_z@,;=!$'()*+[1]",
    ],
)  # fmt: skip
def test_ordinary_url_is_accepted(url):
    Guard().check_url(url)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0.0/8 127.0.0.0/8", "::1/129", "*"])
def test_invalid_network_is_refused(text):
    with pytest.raises(ValueError, match="is not a network"):
        parse_networks(text)


def test_networks_are_separated_by_commas():
    assert parse_networks("") == []
    assert [str(network) for network in parse_networks(" 10.0.0.0/8,::1 ,")] == ["10.0.0.0/8", "::1/128"]
