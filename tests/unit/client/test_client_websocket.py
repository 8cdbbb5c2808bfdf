"""The SDK over a WebSocket, where the other side is not what it should be."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Client, PenstockError
from penstock.client.transport.retry import Unreachable


def ask(serve) -> PenstockError:
    """The error of a client whose server treats every connection like this."""

    async def run() -> PenstockError:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, Client(url, retry_for=0) as client:
            with pytest.raises(PenstockError) as refused:
                await client.queue("orders").stats()
        return refused.value

    async def bounded() -> PenstockError:
        async with asyncio.timeout(20):
            return await run()

    return asyncio.run(bounded())


def test_a_server_that_goes_away_before_it_has_answered_was_not_reached():
    """As one does that is being stopped; a client that has patience tries again."""

    async def gone(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    error = ask(gone)
    assert isinstance(error, Unreachable) and "closed the connection" in error.message


def test_server_with_another_protocol_is_reported():
    async def other(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example.com ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    error = ask(other)
    assert not isinstance(error, Unreachable) and "does not answer like a Penstock server" in error.message
