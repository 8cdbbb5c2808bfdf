"""The things that a lake has copies of: incarnations of queues, and the journal of its broker. Pure.

A queue that is deleted and created again is another subject, with the same path and another uuid: its offsets begin at
0 again, and its rows stand beside those of the former one. The lake keeps for each subject how far it was copied, as
transaction identifiers of Delta that begin with `penstock:` and the subject's key:

    penstock:<key>:<lane>          the next place of this lane: an offset, or a place in the journal
    penstock:<key>:<lane>:start    the first place of this lane that was copied
    penstock:<key>:lanes           the number of lanes
    penstock:<key>:rows            the number of rows

A lane is a partition of a queue, or a shard. Lakes of format 1 had no uuids: the key of their queues is the path alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_MARK = re.compile(r"penstock:([^:@]+)(?:@([0-9a-f-]{36}))?:(?:(lanes|rows)|(\d+)(:start)?)")


class Subject(NamedTuple):
    queue: str
    """The path, or `EVENTS.queue` for the journal."""
    uuid: str | None = None
    """None for the journal, and for a queue of a lake of format 1 that was gone before its uuid could be asked for."""
    is_legacy: bool = False
    """Copied from format 1 on: its key has no uuid, nor have the names of its first files."""

    @property
    def key(self) -> str:
        return self.queue if self.uuid is None or self.is_legacy else f"{self.queue}@{self.uuid}"

    def lane_mark(self, lane: int) -> str:
        return f"penstock:{self.key}:{lane}"

    def start_mark(self, lane: int) -> str:
        return f"penstock:{self.key}:{lane}:start"

    @property
    def lanes_mark(self) -> str:
        return f"penstock:{self.key}:lanes"

    @property
    def rows_mark(self) -> str:
        return f"penstock:{self.key}:rows"

    def __str__(self) -> str:
        return self.queue if self.uuid is None else f"{self.queue} (uuid {self.uuid})"


EVENTS = Subject("events")
"""The journal."""


class Committed(NamedTuple):
    """Rows and positions that were committed for a subject."""

    rows: int
    positions: dict[int, int]
    """Lane -> the next place."""
    starts: dict[int, int]
    """Lane -> the first place. Lanes of format 1 have none."""


def committed(marks: Iterable[tuple[str, int]]) -> dict[tuple[str, str | None], Committed]:
    """(path, uuid) as in the keys -> what was committed, from all transaction identifiers of a table."""
    found: dict[tuple[str, str | None], Committed] = {}
    for name, value in marks:
        parsed = _MARK.fullmatch(name)
        if parsed is None:
            continue
        queue, uuid, counter, lane, start = parsed.groups()
        known = found.setdefault((queue, uuid), Committed(0, {}, {}))
        if counter == "rows":
            found[queue, uuid] = known._replace(rows=value)
        elif lane is not None:
            (known.starts if start else known.positions)[int(lane)] = value
    return found
