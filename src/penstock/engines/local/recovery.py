"""Opening the files of a journal: a new term, the files, the last whole frame. Blocking, all of it.

A torn tail is cut off: the bytes of a commit that was under way when the machine stopped, and was never answered.
Anything else that does not check is damage, and refused with the file and the offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from penstock import limits
from penstock.engines.local.files import Files
from penstock.engines.local.opening import FILE_HEADER_BYTES, chain_before, header_problem
from penstock.engines.local.pieces import Place
from penstock.engines.local.segment import Segment
from penstock.journal.cells import CELL, cell, number_in
from penstock.journal.frame import (
    FRAME_BYTES_MAX,
    HEADER,
    BadFrame,
    Frame,
    UnsupportedFrame,
    frames_at_end,
    newer_frame,
    read_frame,
)
from penstock.journal.port import Damaged, Tail

Fsync = Literal["always", "interval", "batch", "never"]

SCAN_CHUNK_BYTES = 4 * limits.MIB
TAIL_BYTES = 64 * limits.KIB


def take_term(files: Files, root: str) -> int:
    """Raise the term by one. The new one is durable when this returns."""
    path = f"{root}/term"
    term = 1
    if files.exists(path):
        handle = files.open(path)
        stored = number_in(files.read(handle, 0, CELL.size))
        files.close(handle)
        if stored is None:
            raise Damaged(f"{path}, offset 0: the term's checksum does not match")
        term = stored + 1
    elif files.list_dir(f"{root}/journal"):
        raise Damaged(f"{path}, offset 0: the file is missing, and a journal without its term cannot be owned")
    files.remove(f"{path}.tmp")
    handle = files.open(f"{path}.tmp", create=True)
    try:
        files.write(handle, 0, [cell(term)])
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(f"{path}.tmp", path)
    files.sync_dir(root)
    return term


def open_segments(files: Files, root: str, shard: int, known_durable: int) -> dict[int, Segment]:
    """The files of the journal by their first frame, oldest first."""
    names = [name for name in files.list_dir(f"{root}/journal") if name.endswith(".log")]
    segments: dict[int, Segment] = {}
    for name in names:
        segment = _open_segment(files, f"{root}/journal/{name}", shard, known_durable, is_last=name == names[-1])
        if segment is not None:
            segments[segment.first] = segment
    for segment, following in pairwise(segments.values()):
        _check_end(files, segment, following)
    return segments


def _check_end(files: Files, segment: Segment, following: Segment) -> None:
    """A file that takes no more frames ends with the frame before the first one of the next file.

    Only the last frame is looked for, from the end on: the others are checked when they are read.
    """
    chain, length = chain_at_start(files, following), TAIL_BYTES
    while True:
        begin = max(FILE_HEADER_BYTES, segment.size - length)
        tail = files.read(segment.handle, begin, segment.size - begin)
        found = dict(frames_at_end(tail))
        if found.get(following.first - 1) == chain:
            return
        if following.first - 1 in found:
            raise Damaged(f"{following.path}, offset 0: this file does not continue the history of the one before it")
        if begin == FILE_HEADER_BYTES or length > FRAME_BYTES_MAX:
            break
        length *= 8
    raise Damaged(
        f"{segment.path}, offset {segment.size}: the file does not end with frame {following.first - 1}, behind which "
        f"{following.path} begins: its end is cut off or damaged, or files between the two are missing"
    )


def _open_segment(files: Files, path: str, shard: int, known_durable: int, *, is_last: bool) -> Segment | None:
    handle = files.open(path)
    size = files.size(handle)
    if is_last:
        files.drop_cache(handle)
    header = files.read(handle, 0, FILE_HEADER_BYTES)
    first = int(path.rpartition("/")[2].removesuffix(".log"))
    problem = header_problem(header, shard, first)
    if problem is None:
        return Segment(path, handle, first, size)
    files.close(handle)
    # A file is only used once its header is durable: without one it was being made when the power went.
    if is_last and first > known_durable and size <= FILE_HEADER_BYTES:
        files.remove(path)
        files.sync_dir(path.rpartition("/")[0])
        return None
    raise Damaged(f"{path}, offset 0: {problem}")


def chain_at_start(files: Files, segment: Segment) -> bytes:
    """The chain of the frame before the first one of the file."""
    return chain_before(files.read(segment.handle, 0, FILE_HEADER_BYTES))


def recover_tail(files: Files, root: str, segment: Segment, term: int, known_durable: int, fsync: Fsync) -> Tail:
    """Find the last whole frame of the last file; the bytes behind it are a torn tail, or damage."""
    at, index, chain = FILE_HEADER_BYTES, segment.first - 1, chain_at_start(files, segment)
    node, problem = b"", None
    try:
        for position, frame in scan(files, segment):
            at, index, chain, node = position + frame.size, frame.index, frame.chain, frame.node
            if frame.term >= term:
                raise Damaged(
                    f"{segment.path}, offset {position}: frame {index} was written in term {frame.term}, but "
                    f"{root}/term has only come to {term - 1}: it is from before"
                )
    except UnsupportedFrame as error:
        raise Damaged(f"{segment.path}, offset {at}: {error}") from None
    except BadFrame as error:
        problem = str(error)
    if index < known_durable:
        raise Damaged(
            f"{segment.path}, offset {at}: frame {index + 1} was durable and cannot be read: "
            f"{problem or 'the file ends before it'}"
        )
    rest = files.read(segment.handle, at, segment.size - at)
    if rest.count(0) == len(rest):
        # Zeros written ahead of time: a clean end.
        segment.size = at
    elif problem is not None:
        following = newer_frame(memoryview(rest), index, node)
        # With `always` commits are synced one by one, so one at most was under way. Under the other policies many were,
        # in any order, and a whole frame behind a hole is no more than what was not promised.
        if following is not None and fsync == "always":
            raise Damaged(
                f"{segment.path}, offset {at}: {problem}; a whole frame stands behind it at offset "
                f"{at + following}. If the power failed under another --fsync than always, start with that once: "
                "it cuts the end off"
            )
        files.truncate(segment.handle, at)
        segment.size = segment.prepared = at
    # A killed process may not have synced its last frame. The shard builds on it, so it must be durable.
    files.sync(segment.handle)
    return Tail(index, chain)


def scan(files: Files, segment: Segment, place: Place | None = None) -> Iterator[tuple[int, Frame]]:
    """(position, frame) of a file, in order; raises BadFrame at the first that is not whole."""
    if place is None:
        place = Place(segment.first, FILE_HEADER_BYTES, segment.first, chain_at_start(files, segment))
    _, at, index, chain = place
    chunk, chunk_at = memoryview(b""), at
    while at < segment.size:
        if at + HEADER.size > chunk_at + len(chunk):
            # Not beyond what is written by now: the rest of the file may be just about to be.
            room = min(SCAN_CHUNK_BYTES, segment.size - at)
            chunk, chunk_at = memoryview(files.read(segment.handle, at, room)), at
        try:
            frame = read_frame(chunk, at - chunk_at, (index, chain))
        except BadFrame:
            # Perhaps only this chunk ends inside the frame: look again with all there is of it.
            need = limits.COMMIT_BYTES_MAX * 2 + HEADER.size
            if chunk_at + len(chunk) >= min(segment.size, at + need):
                raise
            chunk, chunk_at = memoryview(files.read(segment.handle, at, min(need, segment.size - at))), at
            frame = read_frame(chunk, 0, (index, chain))
        yield at, frame
        at, index, chain = at + frame.size, frame.index + 1, frame.chain
