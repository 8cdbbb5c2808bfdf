"""Loggers of the broker: structured events that go through the standard library's `logging`.

A process that embeds the broker configures logging itself; the broker must not write to its standard output or change
its loggers. `server/logging.py` configures logging for `penstock serve`.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """`log.warning("event_name", queue=…)`: the event is the record's message, the fields are its `extra`."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
