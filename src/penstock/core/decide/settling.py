"""Deciding what becomes of leased messages: acked, to be tried again, given up, given back, held longer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from penstock.core import commands, records
from penstock.core.commands import Claim, Outcome
from penstock.core.decide.retry import backoff_ms, exhausted, retries_of
from penstock.core.decision import Decision
from penstock.core.offsets.ranges import RangeSet, pairs
from penstock.core.records import Record
from penstock.core.state import Partition, Shard
from penstock.core.state.leases import Held, Lease

Reason: TypeAlias = Literal["nack", "lease_expired", "session_expired"]
_WORDS: dict[Reason, str] = {
    "nack": "",
    "lease_expired": "the lease ran out",
    "session_expired": "its holder fell silent, or was replaced",
}
"""The error text of a dead letter whose lease ended without one from the consumer."""


ERASED = "erased"
"""Of messages that cannot be read: their data keys were destroyed."""


class _Settling:
    """Walks the claims of one command against the leases, so that a message is settled once per command."""

    def __init__(self, shard: Shard):
        self._shard = shard
        self._taken: dict[int, RangeSet] = {}

    def held(self, claim: Claim) -> tuple[Lease | None, list[Held]]:
        """The lease and what of the claim it holds; nothing if the receipt is stale, forged or shown twice."""
        lease = self._shard.leases.get(claim.lease)
        if lease is None or lease.nonce != claim.nonce:
            return None, []
        parts = lease.parts(claim.first, claim.stop)
        taken = self._taken.get(claim.lease)
        if taken is None:
            taken = self._taken[claim.lease] = RangeSet()
        elif taken.overlaps(claim.first, claim.stop):
            parts = [
                Held(first, stop, part.attempt, part.deadline)
                for part in parts
                for first, stop in taken.gaps(part.first, part.stop)
            ]
        # All of the claim: what of it is not held now is not held for the next claim either.
        taken.add(claim.first, claim.stop)
        return lease, parts


def _outcomes(claim: Claim, parts: list[Outcome]) -> list[Outcome]:
    """The parts of a claim in order, with everything between them stale."""
    if len(parts) == 1 and parts[0].first == claim.first and parts[0].stop == claim.stop:
        return parts
    outcomes: list[Outcome] = []
    at = claim.first
    for part in parts:
        if at < part.first:
            outcomes.append(Outcome(at, part.first, "stale"))
        if outcomes and outcomes[-1].stop == part.first and outcomes[-1][2:] == part[2:]:
            outcomes[-1] = outcomes[-1]._replace(stop=part.stop)
        else:
            outcomes.append(part)
        at = part.stop
    if at < claim.stop:
        outcomes.append(Outcome(at, claim.stop, "stale"))
    return outcomes


def ack(shard: Shard, command: commands.Ack, now_ms: int) -> Decision:
    if (lease := _all_of_one(shard, command.claims)) is not None:
        ranges: list[int] = []
        for claim in command.claims:
            _append_range(ranges, claim.first, claim.stop)
        return Decision(
            [records.Acked(now_ms, lease.queue, lease.partition, lease.group, lease.id, ranges)],
            [[Outcome(claim.first, claim.stop, "acked")] for claim in command.claims],
        )
    settling = _Settling(shard)
    made: dict[int, records.Acked] = {}
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "acked") for part in parts]))
        if lease is None or not parts:
            continue
        fact = made.get(lease.id)
        if fact is None:
            fact = made[lease.id] = records.Acked(now_ms, lease.queue, lease.partition, lease.group, lease.id, [])
        for part in parts:
            _append_range(fact.ranges, part.first, part.stop)
    return Decision(list(made.values()), replies)


def _all_of_one(shard: Shard, claims: list[Claim]) -> Lease | None:
    """The lease, if the claims are all that it holds and nothing else: as most batches are acked, without a look at
    each of their runs."""
    lease = shard.leases.get(claims[0].lease) if claims else None
    if lease is None or len(claims) != len(lease.held):
        return None
    held = [(lease.id, lease.nonce, run.first, run.stop) for run in lease.held]
    return lease if sorted(claims) == held else None


def all_held(shard: Shard, claims: list[Claim]) -> bool:
    """True if an ack of these would ack every one of them now."""
    settling = _Settling(shard)
    return all(
        sum(part.stop - part.first for part in settling.held(claim)[1]) == claim.stop - claim.first for claim in claims
    )


def nack(shard: Shard, command: commands.Nack, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        replies.append(
            _outcomes(
                claim,
                fail(
                    shard, lease, parts, "nack", command.error, command.delay_ms, now_ms, made, command.max_retries
                ),
            )
            if lease is not None
            else _outcomes(claim, [])
        )  # fmt: skip
    return Decision(made, replies)


def reject(shard: Shard, command: commands.Reject, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        outcomes = []
        for part in parts:
            assert lease is not None
            given_up = _give_up(shard, lease, part.first, part.stop, "rejected", command.error, now_ms)
            _add(made, given_up)
            outcomes.append(Outcome(part.first, part.stop, _ended(given_up)))
        replies.append(_outcomes(claim, outcomes))
    return Decision(made, replies)


def drop_unreadable(shard: Shard, command: commands.DropUnreadable, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim, problem in zip(command.claims, command.problems, strict=True):
        lease, parts = settling.held(claim)
        for part in parts:
            assert lease is not None
            about = (now_ms, lease.queue, lease.partition, lease.group, lease.id)
            made.append(_unreadable(about, part.first, part.stop, problem))
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "dead_lettered") for part in parts]))
    return Decision(made, replies)


def release(shard: Shard, command: commands.Release, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    for claim in command.claims:
        lease, parts = settling.held(claim)
        if lease is not None and parts:
            ranges = _ranges(parts)
            _add(made, records.Released(now_ms, lease.queue, lease.partition, lease.group, lease.id, ranges))
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "released") for part in parts]))
    return Decision(made, replies)


def extend(shard: Shard, command: commands.Extend, now_ms: int) -> Decision:
    settling = _Settling(shard)
    made: list[Record] = []
    replies: list[list[Outcome]] = []
    deadline = now_ms + command.lease_ms
    for claim in command.claims:
        lease, parts = settling.held(claim)
        if lease is not None and parts:
            _add(
                made,
                records.Extended(
                    now_ms, lease.id, _ranges(parts), command.lease_ms, lease.queue, lease.partition, lease.group
                ),
            )
        replies.append(_outcomes(claim, [Outcome(part.first, part.stop, "extended", deadline) for part in parts]))
    return Decision(made, replies)


def fail(
    shard: Shard, lease: Lease, parts: list[Held], reason: Reason, error: str, delay_ms: int | None, now_ms: int,
    made: list[Record], max_retries: int | None = None,
) -> list[Outcome]:  # fmt: skip
    """Another attempt for those that have one left, the dead letters for the others; by runs, not by message.

    `max_retries` is the consumer's own limit: it can lower the budget of a message, not raise it.
    """
    queue = shard.queues[lease.queue]
    partition = queue.partitions[lease.partition]
    general = retries_of(shard, queue, lease.group)
    outcomes: list[Outcome] = []
    for part in parts:
        for first, stop, budget in _by_budget(partition, general, lease.group, part):
            if exhausted(part.attempt, budget if max_retries is None else min(budget, max_retries)):
                text = error or _WORDS[reason]
                given_up = _give_up(shard, lease, first, stop, "max_retries", text, now_ms)
                _add(made, given_up)
                outcomes.append(Outcome(first, stop, _ended(given_up)))
                continue
            wait = (
                delay_ms if delay_ms is not None else backoff_ms(queue.config.backoff, part.attempt, lease.id + first)
            )
            due = now_ms + wait
            last = made[-1] if made else None
            if type(last) is records.Retried and (last.lease, last.due, last.reason) == (lease.id, due, reason):
                _append_range(last.ranges, first, stop)  # failed in the same way, as all that one command is about
            else:
                made.append(
                    records.Retried(
                        now_ms, lease.queue, lease.partition, lease.group, lease.id, [first, stop], due, reason, error
                    )
                )
            outcomes.append(Outcome(first, stop, "retrying", due))
    return outcomes


def undo_lease(made: list[Record], damaged: list[tuple[int, int, int, str]]) -> list[Record]:
    """The facts of a lease that is not given, because its messages cannot be read: no delivery counts as an attempt.

    Each entry of `damaged` is (partition, first, stop, problem). Damaged messages become dead letters in any queue,
    erased messages are removed, and the rest is released.
    """
    undone: list[Record] = []
    for fact in made:
        if not isinstance(fact, records.Leased):
            undone.append(fact)
            continue
        undone.append(msgspec.structs.replace(fact, settled=False))
        about = (fact.at, fact.queue, fact.partition, fact.group, fact.lease)
        rest, lost = RangeSet(), RangeSet()
        for at in range(0, len(fact.runs), 3):
            rest.add(fact.runs[at], fact.runs[at] + fact.runs[at + 1])
        for partition, first, stop, problem in damaged:
            if partition == fact.partition:
                lost.add(first, stop)
                undone.append(_unreadable(about, first, stop, problem))
        kept = [bound for first, stop in rest for part in lost.gaps(first, stop) for bound in part]
        if kept:
            undone.append(records.Released(*about, kept))
    return undone


def _unreadable(about: tuple[int, int, int, int, int], first: int, stop: int, problem: str) -> records.DeadLettered:
    if problem == ERASED:
        return records.DeadLettered(*about, [first, stop], "erased", kept=False)
    return records.DeadLettered(*about, [first, stop], "damaged", problem)


def _by_budget(partition: Partition, general: int, group: int, part: Held) -> list[tuple[int, int, int]]:
    # Only a message that was redriven remembers its budget itself.
    redriven = {
        offset: retry.budget
        for offset in range(part.first, part.stop)
        if (retry := partition.progress[group].retries.get(offset)) is not None and retry.budget >= 0
    }
    if not partition.max_retries and not redriven:
        return [(part.first, part.stop, general)]
    pieces: list[tuple[int, int, int]] = []
    for offset in range(part.first, part.stop):
        budget = redriven.get(offset, partition.max_retries.get(offset, general))
        if pieces and pieces[-1][2] == budget:
            pieces[-1] = (pieces[-1][0], offset + 1, budget)
        else:
            pieces.append((offset, offset + 1, budget))
    return pieces


def _give_up(
    shard: Shard, lease: Lease, first: int, stop: int, reason: Any, error: str, now_ms: int
) -> records.DeadLettered:
    kept = shard.queues[lease.queue].config.dead_letter
    return records.DeadLettered(
        now_ms, lease.queue, lease.partition, lease.group, lease.id, [first, stop], reason, error, kept
    )


def _ended(given_up: records.DeadLettered) -> str:
    """The status in the answer: a queue without dead letters keeps nothing of the message."""
    return "dead_lettered" if given_up.kept else "dropped"


_Partly: TypeAlias = records.Retried | records.Released | records.Extended | records.DeadLettered
"""Records that may end or change a part of a lease."""
_RANGES_AT = {kind: kind.__struct_fields__.index("ranges") for kind in get_args(_Partly)}


def _add(made: list[Record], fact: _Partly) -> None:
    """As a fact of its own, or as more of the last one if they are about other messages and otherwise the same.

    The last one is not a fact before the decision is made: until then its list of ranges may grow.
    """
    last = made[-1] if made else None
    if type(last) is type(fact) and last.lease == fact.lease and _but_for_ranges(last) == _but_for_ranges(fact):
        for first, stop in pairs(fact.ranges):
            _append_range(last.ranges, first, stop)
    else:
        made.append(fact)


def _but_for_ranges(fact: _Partly) -> tuple[Any, ...]:
    values = msgspec.structs.astuple(fact)
    at = _RANGES_AT[type(fact)]
    return values[:at] + values[at + 1 :]


def _ranges(parts: list[Held]) -> list[int]:
    ranges: list[int] = []
    for part in parts:
        _append_range(ranges, part.first, part.stop)
    return ranges


def _append_range(ranges: list[int], first: int, stop: int) -> None:
    if ranges and ranges[-1] == first:
        ranges[-1] = stop
    else:
        ranges += (first, stop)
