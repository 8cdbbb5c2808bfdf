"""What a publish has to pass before anything is decided, and the queues that it makes.

What is refused leaves nothing behind, also not a queue that would have been made for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.batch.check import check_delivery_times, check_payload_sizes, check_priorities
from penstock.broker.types import ProducerSeq, PublishPart
from penstock.core import commands
from penstock.core.config import QueueConfig, parse_config
from penstock.core.decide import decide
from penstock.core.lanes import LANES
from penstock.errors import InvalidRequest, QueueFull, QueueNotFound, TooLarge
from penstock.ids import QueuePath
from penstock.runtime.loop import ShardLoop


class Intake:
    def __init__(self, loop: ShardLoop, *, auto_create: bool):
        self._loop = loop
        self._auto_create = auto_create

    def check(self, parts: Sequence[PublishPart], create_as: dict[str, Any] | None = None) -> None:
        """Refuse what its queue would not take."""
        for part in parts:
            config = self._config(part.queue, create_as)
            check_payload_sizes(part.batch, config.max_payload_bytes)
            check_delivery_times(part.batch, self._loop.now_ms())
            if config.order == "lanes":
                check_priorities(part.batch, 0, LANES - 1)

    def check_to_come(self, path: QueuePath, priority: int, size: int = 0) -> None:
        """The same for messages that are yet to be made, with payloads of this size."""
        config = self._config(path)
        if size > config.max_payload_bytes:
            raise TooLarge(
                f"payload: {size} bytes are over the limit of {config.max_payload_bytes} of queue {path}",
                details={"field": "payload", "max_payload_bytes": config.max_payload_bytes},
            )
        if config.order == "lanes" and not 0 <= priority < LANES:
            raise InvalidRequest(
                f"priority: {priority} is not a lane of queue {path}, 0 (critical) to {LANES - 1}",
                details={"field": "priority"},
            )

    def rehearse(
        self, parts: Sequence[PublishPart], producer: ProducerSeq | None = None,
        create_as: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Where a queue has to be made first: refuse what would be refused afterwards. Changes nothing."""
        paths = self._loop.shard.paths
        new = {part.queue: self._config(part.queue, create_as) for part in parts if part.queue not in paths}
        if new:
            self._rehearse(parts, producer)
            _check_room(parts, new)

    def _rehearse(self, parts: Sequence[PublishPart], producer: ProducerSeq | None) -> None:
        shard, now_ms = self._loop.shard, self._loop.now_ms()
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

    def made(self, path: QueuePath) -> int:
        """The number of the queue as a publish would find it; raises as a publish would."""
        self._config(path)
        return self.number(path)

    def number(self, path: QueuePath, create_as: dict[str, Any] | None = None) -> int:
        """Of a queue that is there, or is made now."""
        number = self._loop.shard.paths.get(path)
        if number is None:
            self._loop.check_publish()
            # Not awaited: the publish is parked behind it, and what is refused is refused there and then.
            self._loop.submit(commands.ConfigureQueue(path, parse_config(create_as or {})))
            number = self._loop.shard.paths[path]
        return number

    def _config(self, path: QueuePath, create_as: dict[str, Any] | None = None) -> QueueConfig:
        number = self._loop.shard.paths.get(path)
        if number is not None:
            return self._loop.shard.queues[number].config
        if not self._auto_create:
            raise QueueNotFound(f"there is no queue {path}", details={"queue": path})
        return parse_config(create_as or {})


def _check_room(parts: Sequence[PublishPart], new: Mapping[QueuePath, QueueConfig]) -> None:
    for path, config in new.items():
        count = sum(part.batch.count for part in parts if part.queue == path)
        if config.max_messages is not None and count > config.max_messages:
            raise QueueFull(
                f"queue {path} would hold at most {config.max_messages} messages; {count} do not fit",
                details={"depth": 0, "max_messages": config.max_messages},
            )
