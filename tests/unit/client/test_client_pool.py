"""Connections that carry a call behind another: given back once, and counted as requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from patience import until

from penstock.client.calls import delivery as calls
from penstock.client.calls.call import Call
from penstock.client.transport.asyncio_pool import AsyncioPool
from penstock.client.transport.endpoint import ServerEndpoint
from penstock.client.transport.retry import AnswerLost
from penstock.errors import PenstockError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def call() -> Call:
    return calls.settle("ack", ["r"])


@asynccontextmanager
async def served(*answers: bytes, connections: int = 4):
    """A pool at a server that reads one request per answer, then sends all of them at once, and goes on with that."""

    async def serve(reader, writer):
        try:
            while True:
                for _ in answers:
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                writer.write(b"".join(answers))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    pool = AsyncioPool(ServerEndpoint(f"http://{host}:{port}", timeout=5, connections_max=connections))
    try:
        yield pool
    finally:
        await pool.close()
        server.close()


async def pair(pool):
    """Two calls, the second behind the first."""
    first, second = call(), call()
    under_way = [asyncio.ensure_future(pool.exchange(first))]
    await until(lambda: pool.can_follow(first))
    under_way.append(asyncio.ensure_future(pool.exchange_behind(second, first)))
    return under_way


def test_answers_that_come_together_give_their_connection_back_once():
    async def run():
        async with served(ANSWER, ANSWER) as pool:
            for _ in range(3):
                assert [answer.status for answer in await asyncio.gather(*await pair(pool))] == [200, 200]
                assert len(pool._idle) == 1 and not pool._lent and not pool._carrying and pool._places._value == 4

    asyncio.run(run())


def test_a_good_answer_before_a_bad_one_counts():
    async def run():
        async with served(ANSWER, b"nonsense\r\n\r\n") as pool:
            first, second = await pair(pool)
            assert (await first).status == 200
            with pytest.raises(PenstockError, match="does not answer like a Penstock server"):
                await second
            assert not pool._idle and not pool._lent and pool._places._value == 4

    asyncio.run(run())


def test_withdrawn_call_ends_the_other_call_of_its_connection():
    async def run():
        async with served(ANSWER, ANSWER, ANSWER) as pool:  # so that two are not answered
            first, second = await pair(pool)
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(AnswerLost):
                await second
            assert not pool._idle and not pool._lent and pool._places._value == 4

    asyncio.run(run())


def test_call_behind_another_counts_as_a_request():
    async def run():
        async with served(ANSWER, ANSWER, connections=1) as pool:  # so that one alone is not answered
            first = call()
            under_way = asyncio.ensure_future(pool.exchange(first))
            await until(lambda: pool._carrying)
            assert not pool.can_follow(first), "one at a time was asked for"
            under_way.cancel()
            await asyncio.wait({under_way})
            assert pool._places._value == 1 and not pool._lent

    asyncio.run(run())
