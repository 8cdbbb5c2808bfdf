"""The content of a fixture as plain values that can be read and compared."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.batch import Batch, layout
from penstock.core import snapshot
from penstock.core.records import Published
from penstock.core.state import Queue
from penstock.encryption.master_keys import MasterKeys
from penstock.encryption.shard_encryption import open_encryption
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.opening import FILE_HEADER_BYTES
from penstock.ids import ulid_text
from penstock.journal.blobs import decode_segment
from penstock.journal.codec import decode
from penstock.journal.dump import dump
from penstock.journal.frame import BadFrame, read_frame
from penstock.runtime.log import MessageLog
from penstock.runtime.recovery import recover
from penstock.wire.delivery import LeaseMeta, ReadMeta, decode_delivery

NODE = bytes(range(16))
MASTERS = MasterKeys([bytes(range(32))])
"""The key of the fixtures with encrypted queues."""
INTEGERS = {
    "priority": layout.PRIORITY,
    "delay_ms": layout.DELAY_MS,
    "deliver_at_ms": layout.DELIVER_AT_MS,
    "ttl_ms": layout.TTL_MS,
    "max_retries": layout.MAX_RETRIES,
}
STRINGS = {"key": layout.KEY, "id": layout.ID, "headers": layout.HEADERS, "tenant": layout.TENANT}


def text(value: bytes) -> str:
    """Itself if it is text, base64 if it is not."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def rows(batch: Batch) -> list[dict[str, Any]]:
    """Every message of a batch, with the columns that are there."""
    found: list[dict[str, Any]] = [
        {"payload": text(payload), "kind": ("bytes", "json")[kind]}
        for payload, kind in zip(batch.payloads(), batch.kinds(), strict=True)
    ]
    for name, column in INTEGERS.items():
        if batch.has(column):
            for row, value in zip(found, batch.integers(column), strict=True):
                row[name] = value
    for name, column in STRINGS.items():
        if batch.has(column):
            for row, value in zip(found, batch.strings(column), strict=True):
                row[name] = text(value)
    return found


def content(name: str, data: bytes) -> dict[str, Any]:
    """The content of a batch frame, or of a delivery."""
    if not name.startswith("delivery-"):
        batch = Batch.open(data)
        return {"count": batch.count, "checked": batch.checked, "columns": batch.columns, "messages": rows(batch)}
    kind: Any = LeaseMeta if name == "delivery-lease" else ReadMeta
    meta, batches = decode_delivery(data, kind)
    return {"meta": msgspec.to_builtins(meta), "frames": [rows(batch) for batch in batches]}


SMALL_FILES = ("node ", "shards ", "shard-0/term ")


def dump_of(root: Path) -> str:
    """The output of `penstock inspect` for a data directory, without its path: the journals and blobs. What it shows
    of the files with one number or name is left out, which is tested with their contents."""
    lines: list[str] = []
    damaged = dump(str(root), lines.append)
    assert not damaged, "\n".join(lines)
    kept, shown = [], True
    for line in "\n".join(lines).replace(f"{root}/", "").splitlines():
        if not line.startswith(" "):
            shown = not line.startswith(SMALL_FILES)
        if shown:
            kept.append(line)
    return "\n".join(kept) + "\n"


def client_ids_in(root: Path) -> set[bytes]:
    """Client ids of messages in the journal and in segments. The state has digests of them only."""
    found: set[bytes] = set()
    for file in root.rglob("segment-*"):
        found.update(_client_ids(decode_segment(file.name, file.read_bytes())[1]))
    for file in root.rglob("*.log"):
        data, at = memoryview(file.read_bytes()), FILE_HEADER_BYTES
        while at < len(data):
            try:
                frame = read_frame(data, at)
            except BadFrame:
                break
            found.update(_client_ids(frame.body))
            at += frame.size
    return found - {b""}


def _client_ids(body: memoryview) -> Iterator[bytes]:
    for _, record in decode(body):
        if isinstance(record, Published) and record.batch.has(layout.ID):
            yield from record.batch.strings(layout.ID)


async def state_of(root: Path, client_ids: Collection[bytes]) -> dict[str, Any]:
    """Everything that recovery finds, and which of these client ids are known. Takes a new term, so only to be used on
    a copy."""
    engine = LocalEngine(str(root))
    journal = await engine.acquire(0, NODE)
    try:
        encryption = await open_encryption(journal, MASTERS, bytes)
        shard, log, *_ = await recover(journal, NODE, cipher=encryption.cipher)
        return {
            "digest": snapshot.digest(shard),
            "now_ms": shard.now_ms,
            "leases": msgspec.to_builtins([lease for _, lease in sorted(shard.leases.items())]),
            "queues": {queue.path: _queue(queue, log, client_ids) for _, queue in sorted(shard.queues.items())},
        }
    finally:
        await journal.close()
        await engine.close()


def _queue(queue: Queue, log: MessageLog, client_ids: Collection[bytes]) -> dict[str, Any]:
    names = queue.group_names
    return {
        "config": msgspec.to_builtins(queue.config),
        **({"members": _members(queue)} if queue.memberships else {}),
        "client_ids": sorted(text(each) for each in client_ids if queue.dedup.place_of(each)),
        "producers": {name: [p.epoch, p.accepted.flat()] for name, p in sorted(queue.dedup.producers.items())},
        "partitions": [
            {
                "start": partition.start,
                "end": partition.end,
                "gone": partition.gone.flat(),
                "scheduled": list(partition.scheduled.within(partition.start, partition.end)),
                "messages": _messages(queue, number, log),
                "dead": [
                    {"group": names[group], "offset": offset, **msgspec.to_builtins(letter)}
                    for (group, offset), letter in sorted(partition.dead.items())
                ],
                "groups": {
                    names[group]: {
                        "floor": progress.floor,
                        "cursor": progress.cursor,
                        "done": progress.done.flat(),
                        "leased": progress.leased.flat(),
                        "retries": {str(at): msgspec.to_builtins(r) for at, r in sorted(progress.retries.items())},
                    }
                    for group, progress in sorted(partition.progress.items())
                },
            }
            for number, partition in enumerate(queue.partitions)
        ],
    }  # fmt: skip


def _members(queue: Queue) -> dict[str, Any]:
    return {queue.group_names[group]: list(each.dump()) for group, each in sorted(queue.memberships.items())}


def _messages(queue: Queue, partition: int, log: MessageLog) -> list[dict[str, Any]]:
    """The stored and live messages of the partition."""
    found = []
    for first, stop in queue.partitions[partition].live(keeps=queue.config.retention.mode == "keep"):
        for record, inside, after in log.runs(queue.number, partition, first, stop):
            contents = rows(record.batch)
            found += [
                {"offset": offset, "id": ulid_text(record.id + offset - record.offset), "at_ms": record.at}
                | contents[offset - record.offset]
                for offset in range(inside, after)
            ]
    return found
