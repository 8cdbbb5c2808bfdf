"""Established connections from the tables of the kernel."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.transports.grpc.peers import Peers


@pytest.mark.parametrize(
    ("family", "host", "name"),
    [
        (socket.AF_INET, "127.0.0.1", "ipv4:127.0.0.1:{}"),
        (socket.AF_INET6, "::1", "ipv6:[::1]:{}"),
        (socket.AF_INET6, "::1", "ipv6:%5B::1%5D:{}"),
    ],
)
def test_only_established_connections_are_found(family, host, name):
    async def story():
        with socket.create_server((host, 0), family=family) as listening:
            port = listening.getsockname()[1]
            peers = Peers(port)
            with socket.create_connection((host, port)) as client:
                accepted, _ = listening.accept()
                peer = name.format(client.getsockname()[1])
                assert peers.connected(peer)
                assert not Peers(port + 1).connected(peer)
            with accepted:
                assert peers.connected(peer), "the tables are read once in a turn of the event loop"
                await asyncio.sleep(0)
                assert not peers.connected(peer)

    asyncio.run(story())


def test_ipv4_peer_of_a_socket_for_both_families_is_found():
    async def story():
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
            port = listening.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as client, listening.accept()[0]:
                assert Peers(port).connected(f"ipv4:127.0.0.1:{client.getsockname()[1]}")

    asyncio.run(story())


@pytest.mark.parametrize("peer", ["", "unix:/run/x", "unix:", "ipv4:nonsense:1", "ipv4:127.0.0.1:", "ipv6:[::1", "x"])
def test_peer_without_an_address_is_unknown(peer):
    async def story():
        assert not Peers(7401).connected(peer)

    asyncio.run(story())
