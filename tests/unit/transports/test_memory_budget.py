"""The memory that all connections hold together is bounded."""

from __future__ import annotations

import pytest
from http_talk import request, talk
from patience import until

from penstock import limits
from penstock.transports.http.answer import Answer
from penstock.transports.memory_budget import SMALL_BYTES, BudgetShare, MemoryBudget


def test_shares_add_up_and_small_ones_do_not_count():
    budget = MemoryBudget(100_000)
    one, two = BudgetShare(budget), BudgetShare(budget)
    one.set(SMALL_BYTES)
    assert budget.used == 0
    one.set(60_000)
    two.set(40_000)
    assert budget.is_full
    one.set(0)
    assert (budget.used, budget.is_full) == (40_000, False)
    two.set(0)
    assert budget.used == 0


def test_bodies_that_are_not_complete_count_until_the_connection_is_lost():
    async def story(it):
        body = b"x" * 300_000
        it.writer.write(request("POST", "/v1/publish", body)[:-1])
        await until(lambda: it.app.memory.used >= 290_000)
        it.writer.close()
        await until(lambda: it.app.memory.used == 0)

    talk(story)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_are_refused_while_the_budget_is_used_up(chunked):
    async def story(it):
        it.app.memory.used = limits.CONNECTIONS_BYTES_MAX
        if chunked:
            head = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            it.writer.write(head + b"%x\r\n" % 50_000 + b"x" * 50_000)
        else:
            it.writer.write(request("POST", "/v1/publish", b"x" * 50_000)[:-1])
        status, headers, _ = await it.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")

    talk(story)


def test_small_requests_are_handled_while_the_budget_is_used_up():
    async def story(it):
        it.app.memory.used = limits.CONNECTIONS_BYTES_MAX
        it.send("POST", "/v1/ack", {"receipts": ["r"]})
        assert (await it.answer())[0] == 200
        it.broker.stored["default/default/q"] = []
        it.send("POST", "/v1/lease", {"queue": "q"})
        assert (await it.answer())[0] == 503

    talk(story)


def test_answers_that_are_not_read_count():
    async def story(it):
        it.app.respond = lambda request, send: send(request, Answer(200, b"x" * (8 << 20)))
        it.send("GET", "/")
        await until(lambda: it.app.memory.used > 1 << 20)
        assert len(await it.reader.readuntil(b"\r\n\r\n")) > 0
        await it.reader.readexactly(8 << 20)
        await until(lambda: it.app.memory.used == 0)

    talk(story)
