"""Says when the dead letters of a queue are too many, or grow too fast; once when it begins and once when it is over.

No counter is kept for this: a queue's letters are numbered, and the number of letters within a minute is the
difference of two numbers. Queues without `dead_letter_alarm` cost one comparison every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from penstock.core.state import Queue
from penstock.logs import get_logger
from penstock.runtime.view import ShardView

LOOK_EVERY_S = 5.0
MINUTE_MS = 60_000

_log = get_logger("penstock.alarms")


class Alarm(NamedTuple):
    since_at_ms: int
    why: list[str]
    """`count`, `per_minute` or both."""


class Alarms:
    def __init__(self, view: ShardView):
        self._view = view
        self._active: dict[int, Alarm] = {}
        self._samples: dict[int, deque[tuple[int, int]]] = {}
        """Per queue: (time, letters since the process started), of the last minute."""
        self._task = asyncio.ensure_future(self._watch())

    def close(self) -> None:
        self._task.cancel()

    def of(self, queue: Queue) -> dict[str, Any] | None:
        """The alarm of this queue as it is now, or None."""
        self._look(queue)
        alarm = self._active.get(queue.number)
        return None if alarm is None else alarm._asdict()

    def active(self) -> list[str]:
        """Paths of the queues whose alarm is on."""
        self._look_at_all()
        return sorted(queue.path for number in self._active if (queue := self._view.queue_numbered(number)) is not None)

    async def _watch(self) -> None:
        while True:
            self._look_at_all()
            await asyncio.sleep(LOOK_EVERY_S)

    def _look_at_all(self) -> None:
        for number in [number for number in self._samples if self._view.queue_numbered(number) is None]:
            del self._samples[number]
            self._active.pop(number, None)
        for queue in list(self._view.queues()):
            if queue.config.dead_letter_alarm is not None or queue.number in self._active:
                self._look(queue)

    def _look(self, queue: Queue) -> None:
        config = queue.config.dead_letter_alarm
        why: list[str] = []
        letters = sum(len(partition.dead) for partition in queue.partitions)
        per_minute = 0
        if config is not None:
            per_minute = self._per_minute(queue.number)
            if config.count is not None and letters >= config.count:
                why.append("count")
            if config.per_minute is not None and per_minute >= config.per_minute:
                why.append("per_minute")
        before = self._active.get(queue.number)
        if why and before is None:
            self._active[queue.number] = Alarm(self._view.now_ms(), why)
            _log.warning("dead_letter_alarm", queue=queue.path, why=why, letters=letters, per_minute=per_minute)
        elif why and before is not None:
            self._active[queue.number] = before._replace(why=why)
        elif before is not None:
            del self._active[queue.number]
            _log.info("dead_letter_alarm_over", queue=queue.path, letters=letters, since_at_ms=before.since_at_ms)

    def _per_minute(self, number: int) -> int:
        now_ms, total = self._view.now_ms(), self._view.counters.of(number).dead_lettered
        samples = self._samples.setdefault(number, deque([(now_ms, 0)]))
        # The oldest one is the last from before the minute, so that the difference covers all of it.
        if now_ms - samples[-1][0] >= LOOK_EVERY_S * 1000 / 2:
            samples.append((now_ms, total))
        while len(samples) > 1 and samples[1][0] <= now_ms - MINUTE_MS:
            samples.popleft()
        return total - samples[0][1]
