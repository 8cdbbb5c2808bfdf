"""Find files that a shard's directory should have, for `penstock inspect`: named by other files, and missing or cut.

A store that was not stopped cleanly may lack segments of queues that were deleted after the last snapshot.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.core.offsets.agenda import ENTRY_BYTES, Chunk
from penstock.core.state.client_ids import DIGEST_BYTES, RUN_BYTES
from penstock.core.state.letter_chunks import encoded_bytes
from penstock.journal.blobs import decode_snapshot
from penstock.journal.frame import frames_at_end
from penstock.journal.port import Damaged

POSITION_BITS = 27
"""Of a locator, which is the first frame of a file and a position in it."""
_COLUMNS_BEFORE_IDS = 6
"""Snapshots of the first version have so many columns per index, in another order."""


def missing_in(shard: Path) -> Iterator[str]:
    """One line for each file of a shard that is missing or ends too early."""
    for path in (shard / "term", shard.parent / "node"):
        if not path.exists():
            yield f"{path}: the file is missing"
    logs = {int(file.stem): file for file in sorted((shard / "journal").glob("*.log"))}
    for (_, file), (first, following) in pairwise(logs.items()):
        data = file.read_bytes()
        if (first - 1, following.read_bytes()[24:40]) not in frames_at_end(data):
            yield f"{file}, offset {len(data)}: the file does not end with frame {first - 1}, behind which {following}"
    names = sorted((shard / "blobs").glob("snapshot-*[0-9]"))
    index = 0
    if names:
        try:
            values = decode_snapshot(names[-1].name, names[-1].read_bytes())
        except Damaged:
            return  # reported with the file itself
        index = int(values["index"])
        ends = {
            **_agenda_ends(shard, values["state"]),
            **_id_ends(shard, values["state"]),
            **_letter_ends(shard, values["state"]),
            **_piece_ends(shard, [columns for _, _, columns in values["pieces"]]),
        }
        for file, end in sorted(ends.items()):
            size = file.stat().st_size if file.exists() else -1
            if size < end:
                found = f"the file ends after {size} bytes" if size >= 0 else "the file is missing"
                yield f"{file}: the last snapshot names what is stored in it up to offset {end}, but {found}"
    if logs and min(logs) > index + 1:
        yield f"{shard}: frames {index + 1} to {min(logs) - 1} are in no file: a snapshot or a journal file is missing"


def _piece_ends(shard: Path, indexes: list[list[bytes]]) -> dict[Path, int]:
    """How far the stored messages reach in each file."""
    ends: dict[Path, int] = {}
    for columns in indexes:
        order = (3, 4, 2) if len(columns) == _COLUMNS_BEFORE_IDS else (2, 3, 4)
        locators, skips, lengths = (array("q", columns[column]) for column in order)
        for locator, skip, length in zip(locators, skips, lengths, strict=True):
            if locator > 0:
                file = shard / "journal" / f"{locator >> POSITION_BITS:020d}.log"
                skip += locator & (1 << POSITION_BITS) - 1
            else:
                file = shard / "blobs" / f"segment-{-locator:012d}"
            ends[file] = max(ends.get(file, 0), skip + length)
    return ends


def _id_ends(shard: Path, state: dict[str, Any]) -> dict[Path, int]:
    """The same for client ids."""
    ends: dict[Path, int] = {}
    for queue in state["queues"]:
        for _, _, entries, runs, *where in queue["ids"]["chunks"] if isinstance(queue["ids"], dict) else ():
            if len(where) > 1:
                file = shard / "blobs" / f"ids-{where[0]:012d}"
                ends[file] = max(ends.get(file, 0), where[1] + DIGEST_BYTES * entries + RUN_BYTES * runs)
    return ends


def _letter_ends(shard: Path, state: dict[str, Any]) -> dict[Path, int]:
    """The same for dead letters."""
    ends: dict[Path, int] = {}
    for queue in state["queues"]:
        for partition in filter(None, queue["partitions"]):
            for letters, text_bytes, *where in (
                chunk for _, chunks in partition.get("letters", ()) for chunk in chunks
            ):
                if len(where) > 1:
                    file = shard / "blobs" / f"letters-{where[0]:012d}"
                    ends[file] = max(ends.get(file, 0), where[1] + encoded_bytes(letters, text_bytes))
    return ends


def _agenda_ends(shard: Path, state: dict[str, Any]) -> dict[Path, int]:
    """The same for due times."""
    ends: dict[Path, int] = {}
    for queue in state["queues"]:
        for partition in filter(None, queue["partitions"]):
            for agenda in (partition["schedule"], partition.get("expiries")):
                for chunk in agenda["chunks"] if isinstance(agenda, dict) else ():
                    blob, start, entries = Chunk(*chunk).blob, Chunk(*chunk).start, Chunk(*chunk).entries
                    file = shard / "blobs" / f"agenda-{blob:012d}"
                    ends[file] = max(ends.get(file, 0), start + entries * ENTRY_BYTES)
    return ends
