"""One open shard: its journal, its loop and its upkeep, started and stopped in the right order."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.clock import Clock
from penstock.core.commands import Open
from penstock.encryption.master_keys import MasterKeys
from penstock.encryption.shard_encryption import open_encryption
from penstock.ids import ulid_text
from penstock.journal.port import Engine, Fenced, ShardJournal, WatchedJournal
from penstock.runtime.loop import ShardLoop
from penstock.runtime.node_memory import NodeMemory
from penstock.runtime.pace import Pace
from penstock.runtime.recovery import Recovered, recover
from penstock.runtime.upkeep import Upkeep
from penstock.runtime.view import ShardView

TERM_SHIFT = 32
UNLIMITED = 1 << 62


class ShardHost:
    """Use `open_shard`."""

    def __init__(
        self, journal: ShardJournal, loop: ShardLoop, upkeep: Upkeep, recovered: Recovered, node: bytes, number: int
    ):
        self.node = node
        """The id of the storage, 16 bytes."""
        self.number = number
        self.journal = journal
        self.loop = loop
        self.view = ShardView(loop)
        self.upkeep = upkeep
        self.replayed = recovered.replayed

    async def close(self, *, final_snapshot: bool = True) -> None:
        """Everything decided becomes durable; the next start begins with a snapshot."""
        self.loop.closing = True
        try:
            await self.upkeep.stop(final_snapshot=final_snapshot)
        finally:
            await self.loop.drain()
            self.loop.log.close()
            await self.journal.close()


def first_blob_number(journal: ShardJournal, recovered: int) -> int:
    """The number of the next blob. In a shared store it begins with the term, so that no name is used by two owners."""
    return journal.term << TERM_SHIFT if journal.traits.shared else recovered


async def open_shard(
    engine: Engine,
    number: int,
    clock: Clock,
    node: bytes,
    *,
    on_failure: Callable[[str], None] = lambda _: None,
    on_problem: Callable[[str], None] = lambda _: None,
    on_round: Callable[[], None] = lambda: None,
    segment_bytes: int = limits.JOURNAL_SEGMENT_BYTES,
    segments_kept: int = limits.JOURNAL_SEGMENTS_KEPT,
    memory: NodeMemory | None = None,
    far_entries: int = limits.FAR_ENTRIES_MIN,
    stored_ids: int = limits.STORED_IDS_MIN,
    stored_letters: int = limits.STORED_LETTERS_MIN,
    slice_queues: int = limits.SNAPSHOT_SLICE_QUEUES,
    masters: MasterKeys | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> ShardHost:
    """Claim the shard, read it, and take commands. Raises Damaged or Unavailable; then nothing was changed.

    `on_failure` is called once, when the journal can no longer be trusted and the process should end; `on_problem` is
    called with problems that the broker survives and an operator should know; `on_round` after every round of upkeep.
    Shards of one node share `memory`. `masters` wrap the keys of encrypted queues; without them such a shard is refused
    (EncryptionKeyError).
    """
    journal = await engine.acquire(number, node)
    memory = memory or NodeMemory()
    try:
        encryption = await open_encryption(journal, masters, random)
        # The cipher outlives the state: a shard that is read again goes on with the nonces that follow.
        cipher = None if encryption is None else encryption.cipher
        recovered = await recover(journal, node, memory, cipher)
    except BaseException:
        await journal.close()
        raise
    recovered.shard.number = number
    # A snapshot omits delays that were over by its time: journal time must not start before that time.
    clock.advance_to_ms(max(recovered.shard.now_ms, recovered.shard.advanced_ms))

    async def reload() -> tuple[Any, Any, Any]:
        loop.log.close()
        again = await recover(journal, node, memory, cipher)
        again.shard.number = number
        return again.shard, again.log, again.writer

    loop = ShardLoop(recovered.shard, journal, recovered.log, recovered.writer, clock, on_failure, reload, encryption)
    if encryption is not None:
        encryption.on_failure = loop.fail
    if isinstance(journal, WatchedJournal):
        journal.on_fenced = lambda reason: loop.stop_for(Fenced(reason))
    await loop.submit(Open(journal.term, ulid_text(int.from_bytes(node, "big"))))
    upkeep = Upkeep(
        loop,
        recovered.marks,
        first_blob_number(journal, recovered.next_segment),
        recovered.named_blobs,
        recovered.sealed,
        every_bytes=segment_bytes,
        kept=segments_kept,
        # Due entries are read in the middle of a decision, which cannot wait for a store.
        far_entries=far_entries if journal.traits.read_ms == 0 else UNLIMITED,
        stored_ids=stored_ids,
        stored_letters=stored_letters,
        slice_queues=slice_queues,
        pace=Pace(clock),
        shard_changed=recovered.replayed > 0,
        on_problem=on_problem,
        on_round=on_round,
    )
    return ShardHost(journal, loop, upkeep, recovered, node, number)
