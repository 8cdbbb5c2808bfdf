"""A connection has bounds: in silence, in headers, and in how long an answer may lie around unread."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvicorn
from patience import until
from uvicorn.server import ServerState

from penstock import limits
from penstock.transports.http.protocol import HttpProtocol

BODY = b"x" * (32 << 20)
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name in ("HEADER_WAIT_MS", "WRITE_STALL_MS"):
        monkeypatch.setattr(limits, name, 50)


async def answer_small(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def answer_large(scope, receive, send):
    headers = [(b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def talk(story, app=answer_small):
    """Run a story with a connection to a server of this protocol, and the set of its open connections."""

    async def run():
        config = uvicorn.Config(app, http=HttpProtocol, ws="none", log_config=None, access_log=False, interface="asgi3")
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(20):
                await story(reader, writer, state.connections)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            server.close()
            await server.wait_closed()

    asyncio.run(run())


def test_silence_is_ended():
    async def story(reader, writer, connections):
        assert await reader.read() == b""
        assert not connections

    talk(story)


def test_headers_that_trickle_are_ended():
    async def story(reader, writer, connections):
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"x")
                await writer.drain()
            await asyncio.sleep(0.005)

    talk(story)


def test_the_second_request_has_the_same_bounds():
    async def story(reader, writer, connections):
        writer.write(REQUEST)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(REQUEST[:10])
        assert await reader.read() == b""

    talk(story)


def test_a_connection_between_requests_is_left_alone():
    async def story(reader, writer, connections):
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.15)

    talk(story)


def test_headers_without_end_are_refused():
    async def story(reader, writer, connections):
        writer.write(b"GET / HTTP/1.1\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(b"X: " + b"x" * 10_000)
                await writer.drain()
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400") or answer == b""
        assert not connections

    talk(story)


def test_a_large_request_in_one_piece_is_no_trouble():
    async def story(reader, writer, connections):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    talk(story)


def test_an_answer_that_nobody_reads_is_dropped():
    async def story(reader, writer, connections):
        reader._transport.pause_reading()
        writer.write(REQUEST)
        await until(lambda: any(one.flow.write_paused for one in connections))
        await until(lambda: not connections)

    talk(story, answer_large)


def test_an_answer_that_is_read_slowly_arrives_whole(monkeypatch):
    # Several times in the life of the answer, and longer than a busy machine keeps a reader from its next turn.
    monkeypatch.setattr(limits, "WRITE_STALL_MS", 1000)

    async def story(reader, writer, connections):
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        left = len(BODY)
        while left:
            left -= len(await reader.read(1 << 20))
            await asyncio.sleep(0.005)

    talk(story, answer_large)
