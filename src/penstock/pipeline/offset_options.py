"""The text of `startingOffset`, `endingOffset` and their aliases of the Kafka source. Pure.

earliest, latest
at:<epoch milliseconds>, at:<ISO time>, <ISO time>      a time without a zone is UTC
123                                                     an offset of partition 0
{"0": 123, "1": -1}                                     an offset per partition; -1 is latest, -2 is earliest
{"orders": {"0": 123}}                                  the same as the Kafka source writes it
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.ids import QueuePath, parse_queue

LATEST, EARLIEST = -1, -2
"""In JSON, as in the Kafka source."""


class BadOffset(ValueError):
    """The text means no position; the message says why."""


def parse_position(text: str, queue: QueuePath | None) -> str | dict[int, int]:
    """`earliest`, `latest`, `at:<ms>`, or partition -> offset. Raises BadOffset."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return text
    if text.startswith("at:"):
        return f"at:{parse_time(text[3:])}"
    try:
        decoded: Any = json.loads(text)
    except ValueError:
        return f"at:{parse_time(text)}"
    if isinstance(decoded, int) and not isinstance(decoded, bool) and decoded >= 0:
        return {0: decoded}
    if isinstance(decoded, dict) and len(decoded) == 1:
        ((name, inner),) = decoded.items()
        if isinstance(inner, dict):
            _check_queue(name, queue)
            decoded = inner
    return _by_partition(decoded)


def parse_time(text: str) -> int:
    """Epoch milliseconds of a number of them, or of an ISO time. Raises BadOffset."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOffset("it is neither a number of milliseconds nor an ISO time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _check_queue(name: str, queue: QueuePath | None) -> None:
    try:
        meant = parse_queue(name)
    except PenstockError as error:
        raise BadOffset(error.message) from None
    if queue is not None and meant != queue:
        raise BadOffset(f"it is about queue {name!r}, and the query reads {queue}")


def _by_partition(decoded: Any) -> dict[int, int]:
    if not isinstance(decoded, dict) or not all(str(partition).isdigit() for partition in decoded):
        raise BadOffset('JSON has an offset per partition, like {"0": 123, "1": 456}')
    for offset in decoded.values():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise BadOffset("an offset is a number from 0 on, or -1 (latest), or -2 (earliest)")
    return {int(partition): offset for partition, offset in decoded.items()}
