"""Recalling a call that waits at the server, on connections in every state."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.transport.asyncio_pool import HttpConnection
from penstock.client.transport.retry import AnswerLost, RetryPolicy, RetryState

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Line:
    """Stands for the socket of the connection."""

    def __init__(self, problem: Exception | None = None, *, halves: bool = True):
        self.ended = False
        self._problem, self._halves = problem, halves

    def can_write_eof(self) -> bool:
        return self._halves

    def write_eof(self) -> None:
        if self._problem is not None:
            raise self._problem
        self.ended = True

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...


def asked(line: Line) -> tuple[HttpConnection, asyncio.Task]:
    connection = HttpConnection()
    connection.connection_made(line)
    return connection, asyncio.ensure_future(connection.exchange(b"POST /v1/lease", b"", 10))


def answer(connection: HttpConnection) -> None:
    connection.get_buffer(0)[: len(ANSWER)] = ANSWER
    connection.buffer_updated(len(ANSWER))


def test_recalled_connection_is_read_to_its_answer_and_not_used_again():
    async def run() -> None:
        line = Line()
        connection, waiting = asked(line)
        await asyncio.sleep(0)
        assert connection.recall() and line.ended and not connection.usable
        answer(connection)
        assert (await waiting).status == 200 and not connection.usable, "whatever the answer says about that"

    asyncio.run(run())


def test_an_answer_that_is_here_already_leaves_the_connection_as_it_is():
    async def run() -> None:
        line = Line()
        connection, waiting = asked(line)
        await asyncio.sleep(0)
        answer(connection)
        assert connection.recall() and not line.ended and connection.usable
        assert (await waiting).status == 200
        assert not connection.recall() and not line.ended, "no call is under way any more"

    asyncio.run(run())


@pytest.mark.parametrize(
    "line", [Line(OSError(107, "not connected")), Line(RuntimeError("closed")), Line(halves=False)]
)
def test_recall_without_half_close_does_nothing(line):
    async def run() -> None:
        connection, waiting = asked(line)
        await asyncio.sleep(0)
        assert not connection.recall()
        answer(connection)
        assert (await waiting).status == 200 and connection.usable

    asyncio.run(run())


def test_withdrawn_call_is_not_repeated():
    retry = RetryState(RetryPolicy(60.0))
    assert retry.delay_after(AnswerLost("gone"), 0.0, reached_before=True) is not None
    retry.withdrawn = True
    assert retry.delay_after(AnswerLost("gone"), 0.0, reached_before=True) is None
