"""Levels of the log by category, which can change while the server runs."""

from __future__ import annotations

import asyncio
import logging

from penstock.errors import InvalidRequest
from penstock.logs import get_logger
from penstock.transports.http import HttpApp
from penstock.transports.metrics import BOUNDS, Histogram
from penstock.transports.request_log import SLOW_S, RequestLog, slow_log
from penstock.wire.logs import CATEGORIES, QUIET, Level, LogsReply, LogsRequest

WATCH_S = 10.0

_log = get_logger("penstock.server")


class LogLevels:
    def __init__(self, app: HttpApp, log: RequestLog, level: Level):
        """`level` is that of the server, from which the categories start."""
        self._app = app
        self._requests = log
        self._level: dict[str, Level] = {}
        for category in CATEGORIES:
            self._set(category, "warning" if category in QUIET and level != "error" else level)

    def show(self) -> LogsReply:
        return LogsReply(dict(self._level), self._requests.budget.per_s)

    def change(self, asked: LogsRequest, actor: str) -> LogsReply:
        unknown = sorted(set(asked.levels) - set(CATEGORIES))
        if unknown:
            raise InvalidRequest(
                f"levels: there is no category {unknown[0][:80]!r}; there are {', '.join(CATEGORIES)}",
                details={"field": "levels"},
            )
        for category, level in asked.levels.items():
            self._set(category, level)
        if asked.requests_per_s is not None:
            self._requests.budget.per_s = asked.requests_per_s
        self._app.observe("requests", self._requests.observe if self._writes_requests else None)
        self._app.metrics.log_call = self._requests.grpc if self._writes_requests else None
        _log.warning("log_levels_changed", levels=dict(asked.levels), requests_per_s=asked.requests_per_s, actor=actor)
        return self.show()

    @property
    def _writes_requests(self) -> bool:
        return logging.getLogger("penstock.requests").isEnabledFor(logging.INFO)

    def _set(self, category: str, level: Level) -> None:
        self._level[category] = level
        logging.getLogger(f"penstock.{category}").setLevel(level.upper())


async def watch_slow_operations(app: HttpApp) -> None:
    """Log how many commits and publishes were slow. Reads the histograms, so that a commit does nothing for it."""
    kinds: dict[str, Histogram] = {"commit": app.metrics.commit_seconds, "publish": app.metrics.publish_seconds}
    before = {name: slow_count(each) for name, each in kinds.items()}
    while True:
        await asyncio.sleep(WATCH_S)
        for name, histogram in kinds.items():
            slow = slow_count(histogram)
            if slow > before[name]:
                slow_log.warning("slow_operations", operation=name, count=slow - before[name], above_s=SLOW_S)
            before[name] = slow


def slow_count(histogram: Histogram) -> int:
    """Observations above `SLOW_S`."""
    return sum(histogram.counts[BOUNDS.index(SLOW_S) + 1 :])
