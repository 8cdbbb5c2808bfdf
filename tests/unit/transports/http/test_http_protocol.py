"""Bounds of one connection: silence, heads that trickle or never end, answers that are not read."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from http_talk import serve
from patience import until

from penstock import limits
from penstock.transports.http.answer import Answer

BODY = b"x" * (32 << 20)
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name in ("HEADER_WAIT_MS", "WRITE_STALL_MS"):
        monkeypatch.setattr(limits, name, 50)


def talk(story, body=b"ok"):
    """Run a story with a connection to an application that answers every request with `body`."""

    def respond(request, send):
        send(request, Answer(200, body))

    async def run():
        async with serve() as served:
            served.app.respond = respond
            await story(served.reader, served.writer, served.state.connections)

    asyncio.run(run())


def test_silence_is_ended():
    async def story(reader, writer, connections):
        assert await reader.read() == b""
        assert not connections

    talk(story)


def test_head_that_trickles_is_ended():
    async def story(reader, writer, connections):
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"x")
                await writer.drain()
            await asyncio.sleep(0.005)

    talk(story)


def test_second_request_has_the_same_bounds():
    async def story(reader, writer, connections):
        writer.write(REQUEST)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(REQUEST[:10])
        assert await reader.read() == b""

    talk(story)


def test_head_that_begins_behind_a_request_has_its_own_time():
    async def story(reader, writer, connections):
        writer.write(REQUEST + REQUEST[:10])
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert await reader.read() == b""

    talk(story)


def test_connection_between_requests_is_left_alone():
    async def story(reader, writer, connections):
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.15)

    talk(story)


def test_large_request_in_one_piece_is_answered():
    async def story(reader, writer, connections):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    talk(story)


def test_refusal_reaches_a_client_that_is_still_sending(monkeypatch):
    monkeypatch.setattr(limits, "HEADER_WAIT_MS", 20_000)

    async def story(reader, writer, connections):
        writer.write(b"\0" + b"x" * (1 << 20))
        await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        await until(lambda: not connections)

    talk(story)


def test_refused_connection_that_the_client_keeps_open_is_closed(monkeypatch):
    monkeypatch.setattr(limits, "LINGER_MS", 50)

    async def story(reader, writer, connections):
        writer.write(b"\0")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        await until(lambda: not connections)

    talk(story)


def test_answer_that_is_not_read_is_dropped():
    async def story(reader, writer, connections):
        reader._transport.pause_reading()
        writer.write(REQUEST)
        await until(lambda: any(one._write_paused for one in connections))
        await until(lambda: not connections)

    talk(story, BODY)


def test_answer_that_is_read_slowly_arrives_whole(monkeypatch):
    # Several times in the life of the answer, and longer than a busy machine keeps a reader from its next turn.
    monkeypatch.setattr(limits, "WRITE_STALL_MS", 1000)

    async def story(reader, writer, connections):
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        left = len(BODY)
        while left:
            left -= len(await reader.read(1 << 20))
            await asyncio.sleep(0.005)

    talk(story, BODY)
