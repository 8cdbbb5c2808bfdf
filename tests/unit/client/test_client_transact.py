"""A transaction whose answer gets lost: never done twice, never called failed when it happened."""

from __future__ import annotations

import asyncio

import pytest
from client_fake import Hangup, HttpServer, error_reply, json_reply

from penstock import Client, StaleReceipt, Unavailable, limits
from penstock.client.publish import transactions
from penstock.client.transport.retry import RetryPolicy, RetryState

DONE = {"acked": ["r"], "messages": [], "durable": True}


def transact(replies, **request):
    """The outcome of a transaction whose attempts meet these replies in turn, and the bodies that were sent."""
    left = list(replies)

    async def handler(_):
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def main():
        async with HttpServer(handler) as server, Client(server.url, retry_for=20) as client:
            try:
                return await client.transact(**request), [each.body for each in server.requests]
            except Exception as error:
                return error, [each.body for each in server.requests]

    return asyncio.run(main())


def test_the_very_same_is_asked_again():
    done, bodies = transact([Hangup(), json_reply(DONE)], ack=["r"], publish=[("out", {"a": 1}, {"key": "k"})])
    assert done.acked == ["r"]
    assert len(bodies) == 2 and bodies[0] == bodies[1]


def test_stale_after_a_lost_answer_means_that_it_did_not_happen():
    error, bodies = transact([Hangup(), error_reply("stale_receipt", 409)], ack=["r"], publish=[("out", 1)])
    assert isinstance(error, StaleReceipt) and len(bodies) == 2


def test_transaction_without_acks_is_recognised_by_its_ids():
    _, bodies = transact(
        [Hangup(), json_reply({**DONE, "acked": []})], publish=[("out", 1), ("out", 2, {"id": "mine"})]
    )
    assert bodies[0] == bodies[1] and bodies[0].count(b'"id":') == 2 and b'"id":"mine"' in bodies[0]


def test_outcome_is_unknown_after_the_server_forgot_the_transaction():
    retry = RetryState(RetryPolicy(1e9))
    stale = StaleReceipt("stale")
    window_s = limits.TRANSACTION_WINDOW_MS / 1000
    assert transactions.stale_or_unknown(stale, retry, window_s + 1) is stale
    retry.delay_after(Unavailable("lost"), 0.0, reached_before=True)
    assert transactions.stale_or_unknown(stale, retry, window_s - 1) is stale
    assert isinstance(transactions.stale_or_unknown(stale, retry, window_s + 1), Unavailable)


@pytest.mark.parametrize(
    "publish", [[("NO!", 1)], [("out", object())], [("out", 1, {"delay": -1})], [("out", 1, {"x": 1})]]
)
def test_bad_publish_is_refused_before_anything_is_sent(publish):
    error, bodies = transact([], ack=["r"], publish=publish)
    assert isinstance(error, Exception) and bodies == []
