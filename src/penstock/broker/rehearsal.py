"""Whether a publish will be refused, before its queues are made: what is refused leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.broker.types import ProducerSeq, PublishPart
from penstock.core import commands
from penstock.core.config import QueueConfig
from penstock.core.decide import decide
from penstock.core.state import Shard
from penstock.errors import QueueFull
from penstock.ids import QueuePath


def rehearse(
    shard: Shard, parts: Sequence[PublishPart], new: Mapping[QueuePath, QueueConfig], producer: ProducerSeq | None,
    now_ms: int,
) -> None:  # fmt: skip
    """Raises what a publish of these parts would, as far as it concerns queues that exist. Changes nothing.

    `new` are the queues that it would make.
    """
    name, epoch, seq = producer or ("", 0, 0)
    there: dict[int, list[commands.Part]] = {}
    for part in parts:
        number = shard.paths.get(part.queue)
        if number is not None:
            known = commands.Part(number, part.batch)
            there.setdefault(number, []).append(known)
            if name:
                decide(shard, commands.Publish([known], 0, name, epoch, seq), now_ms)
        seq += part.batch.count
    for known_parts in there.values():
        # Together: the last one may be the one for which there is no room.
        decide(shard, commands.Publish(known_parts, 0), now_ms)
    for path, config in new.items():
        count = sum(part.batch.count for part in parts if part.queue == path)
        if config.max_messages is not None and count > config.max_messages:
            raise QueueFull(
                f"queue {path} would hold at most {config.max_messages} messages; {count} do not fit",
                details={"depth": 0, "max_messages": config.max_messages},
            )
