"""Acks by the short way, a lease as a whole, and run by run: the same answers and the same facts."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core import commands
from penstock.core.commands import Claim
from penstock.core.decide import settling
from penstock.core.state import Shard
from penstock.core.state.leases import Held, Lease
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process

JOBS = parse_queue("jobs")
NONCE = 7
"""Leases that were granted together have the same."""


def held_runs(lengths: list[tuple[int, int]]) -> list[Held]:
    runs, at = [], 0
    for gap, length in lengths:
        runs.append(Held(at + gap, at + gap + length, 1 + gap % 2, 1_000))
        at += gap + length
    return runs


leases = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=4), min_size=2, max_size=2
)
strangers = st.builds(
    Claim, st.integers(0, 3), st.sampled_from([NONCE, 8]), st.integers(0, 5), st.integers(6, 9)
)  # fmt: skip


@given(leases, st.lists(strangers, max_size=2), st.integers(0, 2), st.booleans(), st.randoms(use_true_random=False))
@example([[(0, 2)], [(0, 2)]], [], 3, False, None)
def test_the_short_way_of_an_ack_is_the_long_one(lengths, others, of_which, twice, chance):
    shard = Shard()
    for number, each in enumerate(lengths, 1):
        shard.leases[number] = Lease(number, NONCE, 1, number, 0, "", 1_000, 0, held_runs(each))
    claims = [
        Claim(number, NONCE, run.first, run.stop)
        for number, lease in shard.leases.items()
        for run in lease.held
        if of_which in (0, number)
    ]
    if of_which == 3:
        # The messages of one lease, shown as if they were of both.
        first = shard.leases[1].held[0]
        claims = [Claim(1, NONCE, first.first, first.stop), Claim(2, NONCE, first.first, first.stop)]
    claims += others + claims[:1] * twice
    if chance is not None:
        chance.shuffle(claims)
    command = commands.Ack(claims)
    short = settling.ack(shard, command, 5)
    with patch.object(settling, "_all_of_one", return_value=None):
        assert settling.ack(shard, command, 5) == short


def test_claims_of_another_lease_are_not_those_of_the_first():
    """Both leases were granted together, and hold as many messages."""
    shard = Shard()
    shard.leases[1] = Lease(1, NONCE, 1, 0, 0, "", 1_000, 0, held_runs([(0, 1), (1, 1)]))
    shard.leases[2] = Lease(2, NONCE, 1, 1, 0, "", 1_000, 0, held_runs([(0, 1), (1, 1)]))
    decision = settling.ack(shard, commands.Ack([Claim(1, NONCE, 0, 1), Claim(2, NONCE, 2, 3)]), 5)
    assert [(fact.lease, fact.partition, fact.ranges) for fact in decision.records] == [(1, 0, [0, 1]), (2, 1, [2, 3])]


def test_what_failed_together_is_one_fact_for_each_time_at_which_it_is_tried_again():
    async def run() -> None:
        async with in_process() as box:
            backoff = {"kind": "exponential", "base_ms": 1_000, "cap_ms": 60_000, "jitter": 0.0}
            await box.broker.queues.put(JOBS, {"backoff": backoff})
            await box.publish("jobs", b"0", b"1", b"2")
            messages = await box.lease("jobs", max=3)
            await box.broker.messages.nack([messages[1].receipt], delay_ms=0)
            await box.broker.messages.release([messages[0].receipt, messages[2].receipt])
            again = await box.lease("jobs", max=3)
            assert sorted((m.offset, m.attempt) for m in again) == [(0, 1), (1, 2), (2, 1)]
            dues = {m.offset: box.clock.now_ms() + 1_000 * 2 ** (m.attempt - 1) for m in again}
            results = await box.broker.messages.nack([m.receipt for m in again])
            assert {result.due_at_ms for result in results} == set(dues.values())
            retries = box.host.loop.shard.queues[1].partitions[0].progress[0].retries
            assert {offset: retry.due for offset, retry in retries.items()} == dues

    asyncio.run(run())


def test_consumer_limit_of_retries_can_lower_that_of_the_queue_and_not_raise_it():
    async def run() -> None:
        async with in_process() as box:
            await box.broker.queues.put(JOBS, {"max_retries": 1, "backoff": {"kind": "none"}})
            await box.publish("jobs", b"0", b"1", b"2")
            first, second, third = await box.lease("jobs", max=3)
            (lower,) = await box.broker.messages.nack([first.receipt], max_retries=0)
            (equal,) = await box.broker.messages.nack([second.receipt], max_retries=1)
            (higher,) = await box.broker.messages.nack([third.receipt], max_retries=5)
            assert [each.status for each in (lower, equal, higher)] == ["dead_lettered", "retrying", "retrying"]
            again = await box.lease("jobs", max=3)
            results = await box.broker.messages.nack([m.receipt for m in again], max_retries=5)
            assert {each.status for each in results} == {"dead_lettered"}
            page = await box.broker.dead_letters.page(JOBS)
            assert {found.letter.reason for found in page["dead_letters"]} == {"max_retries"}

    asyncio.run(run())


def test_message_that_ends_without_dead_letters_is_dropped():
    async def run() -> None:
        async with in_process() as box:
            await box.broker.queues.put(JOBS, {"max_retries": 0, "dead_letter": False})
            await box.publish("jobs", b"0", b"1")
            first, second = await box.lease("jobs", max=2)
            (nacked,) = await box.broker.messages.nack([first.receipt])
            (rejected,) = await box.broker.messages.reject([second.receipt])
            assert (nacked.status, rejected.status) == ("dropped", "dropped")
            assert (await box.broker.dead_letters.page(JOBS))["dead_letters"] == []

    asyncio.run(run())
