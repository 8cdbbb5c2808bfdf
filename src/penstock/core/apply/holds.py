"""Applying changes of holds."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state import Shard
from penstock.core.state.holds import follow, hold_of


def apply_set(shard: Shard, record: records.HoldSet) -> None:
    shard.holds[record.name] = hold_of(record)
    follow(shard)


def apply_ended(shard: Shard, record: records.HoldEnded) -> None:
    if record.reason == "removed":
        del shard.holds[record.name]
    else:
        shard.holds[record.name].lost_at = record.at
    follow(shard)


def forget_queue(shard: Shard, number: int) -> None:
    """It was deleted: there is nothing to hold any more."""
    for hold in shard.holds.values():
        hold.offsets.pop(number, None)
