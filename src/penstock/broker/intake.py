"""Checks of a publish before it is decided, and creation of the queues that it names.

A refused publish has no effect: the queues that it would have created are not created either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.batch import Batch, layout
from penstock.batch.check import check_delivery_times, check_payload_sizes
from penstock.batch.priorities import with_priorities
from penstock.broker.types import ProducerSeq, PublishPart, Submit
from penstock.core import commands
from penstock.core.config import QueueConfig
from penstock.core.order.lanes import LANES, NORMAL
from penstock.errors import InvalidRequest, QueueFull, TooLarge, Unavailable
from penstock.ids import QueuePath
from penstock.runtime.view import ShardView, queue_not_found


class _Priorities(NamedTuple):
    """The priorities that messages may have in a queue of some order."""

    default: int
    low: int
    high: int
    unless: str
    """Why others are refused."""


_PRIORITIES = {
    "fifo": _Priorities(0, -limits.PRIORITY_MAX - 1, limits.PRIORITY_MAX, "is not a priority"),
    "lanes": _Priorities(NORMAL, 0, LANES - 1, f"is not a lane of the queue: use 0 (critical) to {LANES - 1}"),
    "heap": _Priorities(0, -limits.PRIORITY_MAX - 1, limits.PRIORITY_MAX, "is not a priority"),
}


def default_priority(config: QueueConfig) -> int:
    """The priority of a message that has none."""
    return _PRIORITIES[config.order].default


def ignored(parts: Sequence[commands.Part], config_of: Callable[[int], QueueConfig]) -> tuple[str, ...]:
    """The options of these messages that have no effect in their queues, for the reply."""
    for number, batch in parts:
        if (
            batch.columns & layout.PRIORITY
            and config_of(number).order == "fifo"
            and any(batch.integers(layout.PRIORITY))
        ):
            return ("priority",)
    return ()


def prioritized(batch: Batch, config: QueueConfig) -> Batch:
    """The batch with the priority that each message has in such a queue. Raises InvalidRequest."""
    if config.order == "fifo" and not batch.columns & (layout.PRIORITY | layout.HAS_PRIORITY):
        return batch  # as most batches are
    return with_priorities(batch, *_PRIORITIES[config.order])


class Intake:
    def __init__(self, view: ShardView, submit: Submit, *, auto_create: bool):
        self._view = view
        self._submit = submit
        self._auto_create = auto_create

    def accept(
        self, parts: Sequence[PublishPart], producer: ProducerSeq, create_as: dict[str, Any] | None = None,
        *, may_create: bool = True,
    ) -> list[commands.Part]:  # fmt: skip
        """The parts with the numbers of their queues, which are created if they do not exist.

        Without `may_create` the result is empty if a queue does not exist.
        """
        numbered = []
        new: dict[QueuePath, QueueConfig] = {}
        for path, batch in parts:
            queue = self._view.find_queue(path)
            config = queue.config if queue is not None else self._config(path, create_as)
            check_payload_sizes(batch, config.max_payload_bytes)
            if batch.columns & layout.DELIVER_AT_MS:
                check_delivery_times(batch, self._view.now_ms())
            if queue is None:
                new[path] = config
            numbered.append(commands.Part(0 if queue is None else queue.number, prioritized(batch, config)))
        if new and not may_create:
            return []
        if new:
            self._view.check(commands.Publish(numbered, 0, *producer))
            for path, config in new.items():
                _check_room(path, config, sum(part.batch.count for part in parts if part.queue == path))
            created = {path: self._create(path, config) for path, config in new.items()}
            numbered = [
                part if part.queue else commands.Part(created[path], part.batch)
                for part, (path, _) in zip(numbered, parts, strict=True)
            ]
        return numbered

    def check_message(self, path: QueuePath, priority: int | None, size: int = 0) -> int:
        """Refuse a message of this priority and size that is yet to be published. Returns the priority it will have."""
        queue = self._view.find_queue(path)
        config = queue.config if queue is not None else self._config(path)
        if size > config.max_payload_bytes:
            raise TooLarge(
                f"payload: {size} bytes are over the limit of {config.max_payload_bytes} of queue {path}",
                details={"field": "payload", "max_payload_bytes": config.max_payload_bytes},
            )
        priorities = _PRIORITIES[config.order]
        if priority is not None and not priorities.low <= priority <= priorities.high:
            raise InvalidRequest(f"priority: {priority} {priorities.unless}", details={"field": "priority"})
        return priorities.default if priority is None else priority

    def make_queue(self, path: QueuePath) -> None:
        """See to it that the queue exists; raises as a publish to it would."""
        if self._view.find_queue(path) is None:
            config = self._config(path)
            self._view.check(commands.Publish([], 0))
            self._create(path, config)

    def _create(self, path: QueuePath, config: QueueConfig) -> int:
        # Not awaited: the publish is committed behind it, and a refusal is raised at once.
        self._submit(commands.ConfigureQueue(path, config))
        return self._view.queue(path).number

    def _config(self, path: QueuePath, create_as: dict[str, Any] | None = None) -> QueueConfig:
        """The settings with which the queue would be created."""
        if not self._auto_create:
            raise queue_not_found(path)
        if not self._view.is_home(path):
            # It lived here when the call was routed. Created here, it would be a second queue of its path.
            raise Unavailable(f"queue {path} was deleted meanwhile; try again", retry_after_ms=100)
        return self._view.config(create_as or {})


def _check_room(path: QueuePath, config: QueueConfig, count: int) -> None:
    if config.max_messages is not None and count > config.max_messages:
        raise QueueFull(
            f"queue {path} would hold at most {config.max_messages} messages; {count} do not fit",
            details={"depth": 0, "max_messages": config.max_messages},
        )
