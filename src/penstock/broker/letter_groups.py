"""Dead letters grouped by their errors: errors that differ only in numbers, ids and quoted words are one group."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Any

from penstock.broker.deadletters import Scan, Which
from penstock.fingerprints import fingerprint, pattern_of
from penstock.ids import QueuePath
from penstock.runtime.view import ShardView

GROUPS_MAX = 100
_PLACEHOLDER = re.compile(r"<(?:address|time|id|number|url|email|text|path)>")
_pattern = lru_cache(maxsize=2_048)(pattern_of)


class LetterGroups:
    def __init__(self, view: ShardView):
        self._view = view

    async def largest(self, path: QueuePath, looked_max: int) -> dict[str, Any]:
        """Look at the oldest letters of a queue, at most about `looked_max`, without reading their messages."""
        queue = self._view.queue(path)
        scan = Scan(self._view, queue.number, Which())
        groups: dict[tuple[str, str], dict[str, Any]] = {}
        while not scan.ended and scan.looked < looked_max:
            for candidate in scan.step():
                letter = candidate.letter
                key = letter.reason, _pattern(letter.error)
                found = groups.get(key)
                if found is None:
                    found = groups[key] = _new_group(*key, letter.error, letter.dead_at)
                found["count"] += 1
                found["last_at_ms"] = letter.dead_at
            await asyncio.sleep(0)
        largest = sorted(groups.values(), key=lambda group: -group["count"])
        return {"queue": queue.path, "reasons": largest[:GROUPS_MAX], "looked": scan.looked, "complete": scan.ended}


def _new_group(reason: str, pattern: str, error: str, at_ms: int) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint(pattern), "reason": reason, "pattern": pattern, "error": error[:200], "count": 0,
        "first_at_ms": at_ms, "last_at_ms": at_ms, "filter": _filter(reason, pattern),
    }  # fmt: skip


def _filter(reason: str, pattern: str) -> str:
    """A filter that finds the letters of a group: by the longest part of the pattern that does not vary."""
    text = max(_PLACEHOLDER.split(pattern), key=len).strip()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'reason = "{reason}"' + (f' and error ~ "{escaped}"' if text else "")
