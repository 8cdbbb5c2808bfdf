"""Deciding a transaction: acks and publishes that happen together, or not at all.

A transaction can be repeated safely, without an id. The first request leaves a record with a digest of the whole
request; the same request again is answered from that record, although its receipts are stale by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from penstock.batch import Batch
from penstock.core import commands, records
from penstock.core.commands import Ack, Publish, PublishedRun
from penstock.core.decide.publishing import decide_publish
from penstock.core.decide.settling import ack
from penstock.core.decision import Decision
from penstock.core.records import TransactedRun
from penstock.core.state import Shard


def transact(shard: Shard, command: commands.Transact, now_ms: int) -> Decision:
    """A reply without runs means: some receipts are stale, nothing happened."""
    named = ((shard.queues[part.queue].path, part.batch) for part in command.parts)
    key = command.key or key_of(command.claims, named)
    known = shard.transactions.get(key)
    if known is not None:
        outcomes = [[commands.Outcome(claim.first, claim.stop, "acked")] for claim in command.claims]
        return Decision([], commands.Transacted(outcomes, [_repeated(run) for run in known.runs]))
    acked = ack(shard, Ack(command.claims), now_ms)
    if any(outcome.status != "acked" for outcomes in acked.reply for outcome in outcomes):
        return Decision([], commands.Transacted(acked.reply, None))
    published, runs = decide_publish(shard, Publish(command.parts, command.entropy), now_ms)
    made = [*acked.records, *published]
    if command.claims:
        # Without receipts nothing tells a repetition from a second transaction that says the same.
        made.append(records.Transacted(now_ms, key, [_remembered(run) for run in runs]))
    return Decision(made, commands.Transacted(acked.reply, runs))


def key_of(claims: Iterable[commands.Claim], parts: Iterable[tuple[str, Batch]]) -> bytes:
    """Of what was asked: by the queues' names, as a queue may have been deleted or made anew since."""
    digest = blake2b(digest_size=16)
    for claim in claims:
        digest.update(b"%d.%d.%d.%d;" % claim)
    for path, batch in parts:
        digest.update(b"%b:%d;" % (path.encode(), len(batch.frame)))
        digest.update(batch.frame)
    return digest.digest()


def _remembered(run: PublishedRun) -> TransactedRun:
    return TransactedRun(
        run.part, run.queue, run.partition, run.offset, run.count, run.id.to_bytes(16, "big"), run.rows
    )  # fmt: skip


def _repeated(run: TransactedRun) -> PublishedRun:
    number = int.from_bytes(run.id, "big")
    return PublishedRun(run.part, run.queue, run.partition, run.offset, run.count, number, True, run.rows)
