"""Print journals, segments and snapshots as text for `penstock inspect`. Read-only.

The path is a single file, a shard's directory or a whole data directory. Damage is reported with its offset; the intact
part of the file is printed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.batch import layout
from penstock.core.config import DEFAULT
from penstock.core.offsets.agenda import ENTRY_BYTES, Chunk
from penstock.core.records import EncryptedPublished, Published, QueueConfigured, Record
from penstock.errors import InvalidRequest
from penstock.ids import ULID_CHARS, ulid_text, ulid_value
from penstock.journal.blobs import (
    AGENDA_MAGIC,
    IDS_MAGIC,
    KEYRING_MAGIC,
    LETTERS_MAGIC,
    SEGMENT_MAGIC,
    SNAPSHOT_MAGIC,
    decode_agenda,
    decode_ids,
    decode_keyring,
    decode_letters,
    decode_segment,
    decode_snapshot,
)
from penstock.journal.cells import number_in
from penstock.journal.codec import UnknownRecord, decode
from penstock.journal.frame import MAGIC, PAGE_BYTES, BadFrame, find_frame, read_frame
from penstock.journal.missing import missing_in
from penstock.journal.port import Damaged

Write = Callable[[str], None]

JOURNAL_MAGIC = b"PENSTKJ1"
JOURNAL_HEADER_BYTES = 64
_ATTEMPTS = 10
_COLUMNS = {
    layout.PRIORITY: "priority", layout.DELAY_MS: "delay_ms", layout.DELIVER_AT_MS: "deliver_at_ms",
    layout.TTL_MS: "ttl_ms", layout.MAX_RETRIES: "max_retries", layout.PAYLOAD_KIND: "payload_kind",
    layout.KEY: "key", layout.ID: "id", layout.HEADERS: "headers", layout.TENANT: "tenant",
}  # fmt: skip


def dump(path: str, write: Write, *, records: bool = True) -> int:
    """Print all files under `path`; return the number of damaged and missing files."""
    root = Path(path)
    if not root.exists():
        raise InvalidRequest(f"{path} does not exist", details={"field": "path"})
    if root.is_file():
        return _dump_file(root, write, records)
    found = sorted(file for file in root.rglob("*") if file.is_file() and _is_store_file(file))
    if not found:
        raise InvalidRequest(
            f"no journal, segment or snapshot under {path}: is this a data directory?", details={"field": "path"}
        )
    problems = sum(_dump_file(file, write, records) for file in found)
    for journal in sorted({file.parent for file in found if file.suffix == ".log"}):
        for line in _missing(journal.parent):
            write(f"MISSING {line}")
            problems += 1
    return problems


def _missing(shard: Path) -> list[str]:
    """Looks again if a running server changed the files meanwhile: the next snapshot may drop files of the last one."""
    for _ in range(_ATTEMPTS):
        before = sorted(shard.rglob("*"))
        try:
            found = list(missing_in(shard))
        except FileNotFoundError:
            continue
        if not found or sorted(shard.rglob("*")) == before:
            return found
    return [f"{shard}: the files changed in each of {_ATTEMPTS} attempts to check them; stop the server to be sure"]


def _is_store_file(file: Path) -> bool:
    kinds = ("snapshot-", "segment-", "agenda-", "ids-", "letters-", "keyring-")
    return file.suffix == ".log" or file.name.startswith(kinds) or file.name in _NUMBERS


def _dump_file(file: Path, write: Write, records: bool) -> int:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return 0  # a running server has removed it meanwhile
    write(f"{file} ({len(data)} bytes)")
    try:
        if file.name in _NUMBERS:
            return _dump_number(file.name, data, write)
        if data[:8] == JOURNAL_MAGIC:
            return _dump_journal(data, write, records)
        if data[:8] == SEGMENT_MAGIC:
            return _dump_segment(file.name, data, write, records)
        if data[:8] == AGENDA_MAGIC:
            return _dump_agenda(file.name, data, write, records)
        if data[:8] == IDS_MAGIC:
            return _dump_ids(file.name, data, write)
        if data[:8] == LETTERS_MAGIC:
            return _dump_letters(file.name, data, write)
        if data[:8] == KEYRING_MAGIC:
            return _dump_keyring(file.name, data, write)
        if data[:8] == SNAPSHOT_MAGIC:
            return _dump_snapshot(file.name, data, write)
    except (Damaged, UnknownRecord) as error:
        write(f"  DAMAGED {error}")
        return 1
    write("  DAMAGED offset 0: neither a journal nor a segment nor a snapshot")
    return 1


def _term(data: bytes) -> str | None:
    term = number_in(data)
    return None if term is None else f"term {term}"


def _node(data: bytes) -> str | None:
    text = data[:ULID_CHARS].decode("ascii", "replace")
    try:
        return f"node {ulid_text(ulid_value(text))}"
    except InvalidRequest:
        return None


def _shards(data: bytes) -> str | None:
    return f"shards {int(data)}" if data.strip().isdigit() else None


_NUMBERS: dict[str, Callable[[bytes], str | None]] = {"term": _term, "node": _node, "shards": _shards}
"""Files that hold one number -> a function that describes it; None if it is damaged."""


def _dump_number(name: str, data: bytes, write: Write) -> int:
    described = _NUMBERS[name](data)
    write(f"  {described}" if described else f"  DAMAGED {name}, offset 0: this is not what the file should hold")
    return 0 if described else 1


def _dump_journal(data: bytes, write: Write, records: bool) -> int:
    """Print frame by frame, up to the first invalid one."""
    view = memoryview(data)
    chain = bytes(view[24:40])
    index = int.from_bytes(view[16:24], "little")
    write(f"  journal of shard {int.from_bytes(view[8:12], 'little')}, from frame {index}, after chain {chain.hex()}")
    at = JOURNAL_HEADER_BYTES
    while at < len(view):
        try:
            frame = read_frame(view, at, (index, chain))
        except BadFrame as error:
            if not any(view[at:]):
                write(f"  {len(view) - at} zeros from {at} on, written ahead")
                return 0
            if _is_left_over(view, at, index):
                write(f"  {len(view) - at} bytes from {at} on are left over from an earlier use of the file")
                return 0
            write(f"  DAMAGED or torn at offset {at}: {error}")
            return 1
        write(
            f"  frame {frame.index} at {at}: term {frame.term}, time {frame.at_ms}, node "
            f"{ulid_text(int.from_bytes(frame.node, 'big'))}, {len(frame.body)} bytes, chain {frame.chain.hex()}"
        )
        if records:
            for position, record in decode(frame.body):
                write(f"    +{position} {describe(record)}")
        at, index, chain = at + frame.size, frame.index + 1, frame.chain
    return 0


def _is_left_over(view: memoryview, at: int, index: int) -> bool:
    """True if frame `index` was not begun at this position: its page is empty, and no newer frame follows."""
    rest_of_page = view[at : at + -at % PAGE_BYTES]
    begun = any(rest_of_page) if rest_of_page else view[at : at + 2] == MAGIC
    return not begun and find_frame(view, at, newer_than=index - 1) is None


def _dump_segment(name: str, data: bytes, write: Write, records: bool) -> int:
    about, body = decode_segment(name, data)
    for part in about.parts:
        write(
            f"  segment of {part.queue}, partition {part.partition}: {part.messages} messages, "
            f"offsets {part.first} to {part.stop - 1}"
        )
    if records:
        for position, record in decode(body):
            write(f"    +{position} {describe(record)}")
    return 0


def _dump_snapshot(name: str, data: bytes, write: Write) -> int:
    values = decode_snapshot(name, data)
    write(f"  snapshot after frame {values['index']}, chain {values['chain'].hex()}")
    state: dict[str, Any] = values["state"]
    write(f"  time {state['now_ms']}, term {state['term']}, {len(state['leases'])} leases")
    for queue in state["queues"]:
        write(f"    queue {queue['number']} {queue['path']}: groups {[name for _, name in queue['groups']]}")
        for number, partition in enumerate(queue["partitions"]):
            if partition is None:
                continue  # not used
            progress = {group: (floor, cursor) for group, floor, cursor, *_ in partition["progress"]}
            write(
                f"      partition {number}: offsets {partition['start']} to {partition['end']}, "
                f"scheduled {_entries(partition['schedule'])} entries, dead {_letters(partition)}, "
                f"(floor, cursor) by group {progress}"
            )
    return 0


def _letters(partition: dict[str, Any]) -> int:
    """The number of dead letters of a partition in a snapshot."""
    chunks = [chunk for _, chunks in partition.get("letters", ()) for chunk in chunks]
    return len(partition.get("dead", ())) + sum(int(letters) for letters, *_ in chunks)


def _entries(agenda: Any) -> int:
    """The number of entries of an agenda in a snapshot, which holds the entries or a reference to them."""
    if isinstance(agenda, dict):
        return len(agenda["entries"]) // ENTRY_BYTES + sum(Chunk(*chunk).entries for chunk in agenda["chunks"])
    return len(agenda)


def _dump_agenda(name: str, data: bytes, write: Write, records: bool) -> int:
    about, entries = decode_agenda(name, data)
    write(f"  far agenda entries: {sum(part.entries for part in about.parts)} in {len(about.parts)} chunks")
    at = 0
    for part in about.parts:
        flat = array("q")
        flat.frombytes(entries[at : at + part.entries * ENTRY_BYTES])
        at += part.entries * ENTRY_BYTES
        write(f"    {part.agenda} of {part.queue}, partition {part.partition}: {part.entries} entries")
        if records:
            for due, first, count in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                write(f"      due {due}: offsets {first} to {first + count - 1}")
    return 0


def _dump_ids(name: str, data: bytes, write: Write) -> int:
    about, _ = decode_ids(name, data)
    write(f"  client ids: {sum(part.ids for part in about.parts)} in {len(about.parts)} chunks")
    for part in about.parts:
        write(f"    of {part.queue}: {part.ids}")
    return 0


def _dump_letters(name: str, data: bytes, write: Write) -> int:
    about, _ = decode_letters(name, data)
    write(f"  dead letters: {sum(part.letters for part in about.parts)} in {len(about.parts)} chunks")
    for part in about.parts:
        write(f"    of {part.queue}, partition {part.partition}, group {part.group}: {part.letters}")
    return 0


def _dump_keyring(name: str, data: bytes, write: Write) -> int:
    master = msgspec.msgpack.decode(decode_keyring(name, data)).get("master")
    write(f"  keyring of encrypted queues, wrapped by master key {master}")
    return 0


def describe(record: Record) -> str:
    """One record as one line. Payloads are counted and not shown, as they may be confidential."""
    if isinstance(record, Published):
        batch = record.batch
        columns = [name for column, name in _COLUMNS.items() if batch.has(column)]
        producer = f" producer={record.producer}/{record.epoch} seqs={record.seqs}" if record.producer else ""
        kind = "encrypted" if isinstance(record, EncryptedPublished) else "published"
        return (
            f"{kind} at={record.at} queue={record.queue} partition={record.partition} offset={record.offset} "
            f"count={batch.count} id={ulid_text(record.id)} columns={columns} "
            f"payload_bytes={batch.payload_bytes()}{producer}"
        )
    values = msgspec.to_builtins(record)
    if values.get("secret"):
        # The secret is encrypted; the dump omits it all the same.
        values["secret"] = "***"  # noqa: S105  a placeholder
    kind = values.pop("type")
    if isinstance(record, QueueConfigured):
        # Only settings that differ from the default.
        usual = msgspec.to_builtins(DEFAULT)
        values["config"] = {name: value for name, value in values["config"].items() if value != usual[name]}
    return f"{kind} " + " ".join(f"{name}={value}" for name, value in values.items())
