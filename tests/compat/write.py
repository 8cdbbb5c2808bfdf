"""Write compatibility fixtures: `python -m tests.compat.write`, from the top of the repository.

What a released version wrote must be readable forever, so fixtures are written once and then only read. Run this

- when a format got a new version (docs/formats/): raise VERSION here; the next journal goes into a directory of its own
  and every older one stays;
- when a frame got a new column or a journal a new kind of record: add it below. New batch frames are added beside the
  old ones. A journal that lacks a kind is joined by another one: add it to STORIES.

Nothing that exists is overwritten. If a test says that an old fixture reads differently, the code is wrong, not the
fixture; with one exception: a new field with a default, in a record or in the state, shows in `dump.txt` and changes
the `digest`. `--renew` writes those two anew, and nothing else. Read the diff.

Time, ids and nonces come from a clock that stands still and a generator with a seed: two runs write the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.batch import Batch, build, layout
from penstock.broker.service import Broker
from penstock.broker.types import LeaseReply, ProducerSeq, PublishPart
from penstock.core.commands import (
    AddUser,
    ChangeUser,
    Claim,
    CreateKey,
    DeleteLetters,
    EndRedrive,
    Lease,
    Letter,
    Part,
    RedriveLetters,
    RemoveUser,
    RemoveWebhook,
    RevokeKey,
    RotateKey,
    RotateWebhook,
    SetWebhook,
    StartRedrive,
    SwitchWebhook,
    Tick,
    Transact,
    TrimPartition,
)
from penstock.core.records import WebhookSpec
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.opening import FILE_HEADER_BYTES
from penstock.errors import Conflict
from penstock.ids import parse_queue, ulid_text
from penstock.journal.frame import BadFrame, read_frame
from penstock.runtime.host import ShardHost, open_shard
from penstock.testing.clock import ManualClock
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, encode_delivery
from penstock.wire.holds import HoldRequest
from penstock.wire.schedules import ScheduleMessage, ScheduleRequest
from tests.compat.look import MASTERS, NODE, client_ids_in, content, dump_of, state_of

HERE = Path(__file__).parent
Story = Callable[[Path], Coroutine[Any, Any, None]]
VERSION = 1
SEGMENT_BYTES = 3_000
"""Of a journal file: small, so that there are several."""
ZEROS_KEPT = 512
"""A journal that was being written ends in zeros; this many stay, so that they are read too."""

WORK, KEPT, ONCE = parse_queue("work"), parse_queue("archive/kept"), parse_queue("fire/and/forget")
BRIEF, DOOMED, BUFFERED = parse_queue("brief"), parse_queue("doomed"), parse_queue("buffered")
JOBS, DEAD, MOVED, ROUTED = parse_queue("jobs"), parse_queue("dead"), parse_queue("moved"), parse_queue("routed")
SECRET = parse_queue("secret")
DAY_MS = 24 * 3_600_000


def main() -> None:
    parser = argparse.ArgumentParser(description="write compatibility fixtures")
    parser.add_argument("--renew", action="store_true", help="only dump.txt and the digest of the journals that exist")
    if parser.parse_args().renew:
        for directory in sorted(HERE.glob("journal-v*")):
            renew(directory)
        return
    write_batches(HERE / "batch")
    for name, story in STORIES.items():
        journal = HERE / f"journal-v{VERSION}{name}"
        if not journal.exists():
            write_journal(journal, story)


# -- batches ------------------------------------------------------------------------------------------------------


def write_batches(directory: Path) -> None:
    """A frame and a description each. Existing ones stay as they are."""
    directory.mkdir(exist_ok=True)
    for name, frame in [*batches(), *deliveries()]:
        path = directory / f"{name}.bin"
        if not path.exists():
            path.write_bytes(frame)
            _write_json(path.with_suffix(".json"), content(name, frame))


def batches() -> Iterator[tuple[str, bytes]]:
    """Every kind of payload, every column alone, all of them, and what is not a client's to send but in journals."""
    json_texts = [b"1", b'{"a": [true, null]}', '"größer"'.encode()]
    raw = [b"\x00\xff\xfe", b"", b"PB"]
    yield "json", build(json_texts)
    yield "json-checked", build(json_texts, checked=True)
    yield "bytes", build(raw, kind=layout.KIND_BYTES)
    yield "mixed", build([json_texts[0], raw[0], json_texts[2]], kinds=[1, 0, 1])
    yield "one-message", build([b"null"])
    columns: dict[str, tuple[int, list[Any]]] = {
        "priority": (layout.PRIORITY, [-(2**63), 0, 2**63 - 1]),
        "delay-ms": (layout.DELAY_MS, [0, 1, 86_400_000]),
        "deliver-at-ms": (layout.DELIVER_AT_MS, [0, 1_760_000_000_000, 2**52]),
        "ttl-ms": (layout.TTL_MS, [0, 1, 3_600_000]),
        "max-retries": (layout.MAX_RETRIES, [-1, 0, 1_000_000]),
        "key": (layout.KEY, [b"", b"user-42", "schlüssel".encode()]),
        "id": (layout.ID, [b"order-1", b"", b"order-3"]),
        "headers": (layout.HEADERS, [b'{"trace":"abc"}', b"", b'{"a":"1","b":"2"}']),
        "tenant": (layout.TENANT, [b"acme", b"", b"umbrella"]),
    }
    for name, (column, values) in columns.items():
        yield f"column-{name}", build(json_texts, columns={column: values})
    everything = dict(columns.values())
    given = {layout.PRIORITY: [7, 0, -7], layout.HAS_PRIORITY: [1, 0, 1]}
    yield "column-has-priority", build(json_texts, columns=given)
    yield "everything", build([json_texts[0], raw[0], json_texts[2]], kinds=[1, 0, 1], columns=everything)
    yield (
        "cut-out-of-a-longer-one",
        bytes(Batch.open(build(json_texts * 3, columns=_tripled(everything))).run(2, 7).frame),
    )
    yield "columns-of-the-future", build(json_texts, columns={1 << 5: [1, 2, 3], 1 << 27: [b"x", b"", b"yz"]})


def _tripled(columns: dict[int, list[Any]]) -> dict[int, Any]:
    return {column: values * 3 for column, values in columns.items()}


def deliveries() -> Iterator[tuple[str, bytes]]:
    """The answers of a lease and of a read."""
    first, second = build([b"1", b"2"]), build([b"\xff"], kind=layout.KIND_BYTES)
    run = Run("default/default/work", 0, 7, 2, ulid_text(1 << 80), 1_760_000_000_000, len(first))
    again = Run("default/default/work", 1, 0, 1, ulid_text(9 << 80), 1_760_000_000_001, len(second), 3)
    leased = [run, again]
    for number, each in enumerate(leased):
        each.receipt, each.deadline_at_ms = f"r1.0.{number}.00000000000000ff.", 1_760_000_030_000
    settled = [Settled("r1.0.9.00000000000000ff.3-5", "acked"), Settled("r1.0.9.00000000000000ff.6", "stale")]
    yield "delivery-lease", encode_delivery(LeaseMeta(leased, settled), [first, second])
    read = Run("default/default/work", 0, 7, 2, ulid_text(1 << 80), 1_760_000_000_000, len(first))
    yield "delivery-read", encode_delivery(ReadMeta([read], 9, 9, 7), [first])


# -- the journal --------------------------------------------------------------------------------------------------


def write_journal(directory: Path, story: Story) -> None:
    """A data directory, and beside it what it holds."""
    directory.mkdir()
    data = directory / "data"
    asyncio.run(story(data))
    for name in ("lock", "reserve"):
        (data / name).unlink()
    for file in sorted((data / "shard-0/journal").glob("*.log"))[-1:]:
        _cut_zeros(file)
    (directory / "dump.txt").write_text(dump_of(data))
    _write_json(directory / "expected.json", look_at_copy(data))


def look_at_copy(data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "data"
        shutil.copytree(data, copy)
        return asyncio.run(state_of(copy, client_ids_in(copy)))


def renew(directory: Path) -> None:
    expected = directory / "expected.json"
    values = json.loads(expected.read_text())
    values["digest"] = look_at_copy(directory / "data")["digest"]
    _write_json(expected, values)
    (directory / "dump.txt").write_text(dump_of(directory / "data"))


async def tell(root: Path) -> None:
    """The story: first what ends up in a sealed segment and a snapshot, then every kind of record behind them."""
    clock, dice = ManualClock(), random.Random(1)
    engine, host, broker = await _open(root, clock, dice)
    await _first_chapter(host, broker, clock)
    await host.upkeep.round()
    await broker.messages.publish([PublishPart(WORK, _numbered(60, 6))])
    clock.advance(10)
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    clock.advance(1_000)
    engine, host, broker = await _open(root, clock, dice)
    await _second_chapter(host, broker, clock)
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_members(root: Path) -> None:
    """The same, and then a group with assigned partitions, one of them moving, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(3)
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(JOBS, {"partitions": 3})
    await broker.messages.publish([PublishPart(JOBS, _keyed(9))])
    await broker.members.join(JOBS, member="ada", session_ms=20_000, drain_ms=5_000)
    held = await broker.messages.lease(JOBS, member="ada", generation=1, max=9)
    await broker.members.join(JOBS, member="bob", session_ms=90_000)
    await broker.messages.ack(
        [receipt for run in held.runs if run.partition == 2 for receipt in receipts(LeaseReply([run], []))]
    )
    await broker.members.heartbeat(JOBS, member="ada", generation=1)
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice)
    await broker.members.join(JOBS, member="cyd", session_ms=120_000)
    await broker.members.heartbeat(JOBS, member="bob", generation=2)
    clock.advance(20_000)
    await broker.members.heartbeat(JOBS, member="cyd", generation=3)
    await broker.members.leave(JOBS, member="cyd")
    bob = await broker.members.heartbeat(JOBS, member="bob", generation=2)
    await broker.messages.lease(JOBS, member="bob", generation=bob.generation, max=9, lease_ms=600_000)
    await broker.members.join(JOBS, member="dee", session_ms=90_000)
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_letters(root: Path) -> None:
    """The same, and then dead letters are brought back, copied and deleted, and a transaction is made."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(4)
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(DEAD, {"dead_letter_max": 10, "dead_letter_alarm": {"count": 5}})
    await _dead_letters(host, clock)
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_groups(root: Path) -> None:
    """The same, and then groups are moved and deleted, and ids of clients' own are freed, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(5)
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(MOVED, {"partitions": 2, "retention": {"mode": "keep"}})
    await broker.messages.publish([PublishPart(MOVED, _keyed(9))])
    await broker.groups.create(MOVED, "late", start={0: 1})
    for group in ("late", "gone"):
        await broker.messages.ack(receipts(await broker.messages.lease(MOVED, group=group, max=5)))
    await _delete_group(broker, "gone")
    await broker.groups.seek(MOVED, "late", to={0: 0})
    own = {layout.ID: [b"first", b"second", b"third"], layout.DELAY_MS: [40 * DAY_MS] * 3}
    await broker.messages.publish([PublishPart(MOVED, Batch.open(build([b"1", b"2", b"3"], columns=own)))])
    await broker.scheduled.cancel(MOVED, ids=["first"])
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice)
    await broker.messages.lease(MOVED, group="gone", max=1, lease_ms=600_000)
    await broker.groups.seek(MOVED, "late", to="latest")
    await broker.scheduled.cancel(MOVED, ids=["second"])
    await broker.messages.publish([PublishPart(MOVED, _keyed(2))])
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_ids(root: Path) -> None:
    """The same, and then client ids in a blob and in the snapshot, a freed one, and a queue with unused partitions."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(6)
    engine, host, broker = await _open(root, clock, dice, stored_ids=4)
    await broker.queues.put(MOVED, {"partitions": 8})
    for first in (0, 3, 6):
        await broker.messages.publish([PublishPart(MOVED, _with_ids(range(first, first + 3)))])
    await broker.scheduled.cancel(MOVED, ids=["id-1"])
    await host.upkeep.round()
    clock.advance(1_000)
    await broker.messages.publish([PublishPart(MOVED, _with_ids([9]))])
    await host.upkeep.round()
    await broker.messages.publish([PublishPart(MOVED, _with_ids([10, 1]))])
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_chunks(root: Path) -> None:
    """The same, and then dead letters in a blob and in the snapshot, and a segment that partitions share."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(8)
    engine, host, broker = await _open(root, clock, dice, stored_letters=2)
    await broker.queues.put(MOVED, {"partitions": 2})
    await broker.messages.publish([PublishPart(MOVED, _keyed(6))])
    for error in ("no", "no", "später"):
        for run in (await broker.messages.lease(MOVED, max=1)).runs:
            await broker.messages.reject([f"{run.receipt}{run.offset}"], error=error)
        clock.advance(10)
    await host.upkeep.round()
    await host.upkeep.round()
    for run in (await broker.messages.lease(MOVED, max=1)).runs:
        await broker.messages.reject([f"{run.receipt}{run.offset}"], error="no")
    await host.upkeep.round()
    await broker.messages.publish([PublishPart(MOVED, _keyed(1))])
    await host.close(final_snapshot=False)
    await engine.close()


def _with_ids(numbers: Iterable[int]) -> Batch:
    """Messages that wait for a month, with client ids."""
    own: Any = {layout.ID: [b"id-%d" % each for each in numbers]}
    own[layout.DELAY_MS] = [30 * DAY_MS] * len(own[layout.ID])
    return Batch.open(build([b"0"] * len(own[layout.ID]), columns=own))


async def _delete_group(broker: Broker, group: str) -> None:
    try:
        await broker.groups.delete(MOVED, group)
    except Conflict as asked:
        await broker.groups.delete(MOVED, group, confirm=asked.details["confirm"])


async def tell_of_schedules(root: Path) -> None:
    """The same, and then recurring schedules, readers of the log and a window buffer, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(2)
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(BUFFERED, {"window_ms": 60_000, "max_messages": 2})
    await broker.messages.publish([PublishPart(BUFFERED, _numbered(0, 1))])
    await broker.readers.keep(KEPT, "warehouse", {0: 1, 1: 2})
    message = ScheduleMessage(payload=msgspec.Raw(b'{"report":1}'), key="k", headers={"h": "v"}, tenant="acme")
    asked = ScheduleRequest(queue="reports", cron="*/10 * * * * *", message=message, timezone="Europe/Berlin")
    await broker.schedules.put("tens", asked)
    await broker.schedules.put("paused", asked)
    await broker.schedules.put("removed", asked)
    await broker.schedules.pause("paused", paused=True)
    clock.advance(25_000)
    # At once: the shard's own timer runs by real time, and would come whenever it comes.
    await host.loop.submit(Tick())
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice)
    full = ScheduleRequest(queue="buffered", cron="*/10 * * * * *", message=message, catch_up="all")
    await broker.schedules.put("full", full)
    await broker.schedules.remove("removed")
    clock.advance(25_000)
    await broker.readers.keep(KEPT, "billing", {1: 3})
    await broker.readers.forget(KEPT, "warehouse")
    clock.advance(1_000)
    await broker.messages.lease(BUFFERED, max=1)
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_webhooks(root: Path) -> None:
    """The same, and then webhooks: registered, changed, rotated, switched and removed, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(5)
    engine, host, _ = await _open(root, clock, dice)
    spec = WebhookSpec(WORK, "crm", "https://example.com/in", [5_000, 60_000])
    for name, group in (("01HOOKA", "crm"), ("01HOOKB", "billing"), ("01HOOKC", "audit")):
        await host.loop.submit(SetWebhook(name, msgspec.structs.replace(spec, group=group), b"sealed " + name.encode()))
    await host.loop.submit(RotateWebhook("01HOOKA", b"sealed again", 86_400_000))
    await host.loop.submit(SwitchWebhook("01HOOKB", "disabled", "the endpoint answered 410 (Gone)"))
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    clock.advance(1_000)
    engine, host, _ = await _open(root, clock, dice)
    changed = msgspec.structs.replace(spec, format="cloudevents-binary", concurrency=1, description="orders to the CRM")
    await host.loop.submit(SetWebhook("01HOOKA", changed))
    await host.loop.submit(RotateWebhook("01HOOKA", b"sealed a third time", 3_600_000))
    await host.loop.submit(SwitchWebhook("01HOOKA", "paused"))
    await host.loop.submit(RemoveWebhook("01HOOKC"))


async def tell_of_holds(root: Path) -> None:
    """The same, and then an archive holds back the journal and a queue, around a snapshot; another spans too much."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(5)
    engine, host, broker = await _open(root, clock, dice)
    await broker.holds.set("lake", HoldRequest(events=2, queues={KEPT: {"1": 2}}), {KEPT: KEPT})
    await broker.holds.set("small", HoldRequest(events=1, max_bytes=1), {})
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice)
    leased = await broker.messages.lease(WORK, max=1, consumer="worker-9")
    await broker.messages.extend(receipts(leased), lease_ms=9_000)
    await broker.holds.set("lake", HoldRequest(events=3, queues={KEPT: {"1": 3}}), {KEPT: KEPT})
    await broker.holds.remove("small")
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_keys(root: Path) -> None:
    """The same, and then API keys: created, rotated and revoked, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(5)
    engine, host, _ = await _open(root, clock, dice)
    for number, name in enumerate(("billing", "shipping", "reports")):
        scopes = ["publish:shop/*", f"consume:shop/default/{name}"]
        await host.loop.submit(CreateKey(f"key{number}", name, scopes, bytes([number]) * 32))
    await host.loop.submit(RotateKey("key0", b"a" * 32, 86_400_000))
    await host.loop.submit(RotateKey("key1", b"b" * 32, 0))
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    clock.advance(1_000)
    engine, host, _ = await _open(root, clock, dice)
    await host.loop.submit(
        CreateKey("key3", "guest", ["peek:*"], b"c" * 32, clock.now_ms() + 3_600_000, "100/m", "key0")
    )
    await host.loop.submit(RotateKey("key3", b"d" * 32, 60_000))
    await host.loop.submit(RevokeKey("key2"))
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_users(root: Path) -> None:
    """The same, and then people: added, changed and removed, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(7)
    engine, host, _ = await _open(root, clock, dice)
    for name, role in (("ada", "admin"), ("bob", "viewer"), ("eve", "operator")):
        await host.loop.submit(AddUser(f"{name}@example.com", role, f"$argon2id${name}", "key0"))
    await host.loop.submit(ChangeUser("bob@example.com", "operator"))
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    clock.advance(1_000)
    engine, host, _ = await _open(root, clock, dice)
    await host.loop.submit(ChangeUser("ada@example.com", hash="$argon2id$new"))
    await host.loop.submit(RemoveUser("eve@example.com"))
    await host.loop.submit(AddUser("zoe@example.com", "viewer", "$argon2id$zoe"))
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_routing(root: Path) -> None:
    """The same, and then a queue whose keys are routed by hash slots, and which grows, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(6)
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(ROUTED, {"partitions": 3})
    await broker.messages.publish([PublishPart(ROUTED, _keyed(20))])
    await host.upkeep.round()
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice)
    await broker.queues.put(ROUTED, {"partitions": 5})
    await broker.messages.publish([PublishPart(ROUTED, _keyed(20))])
    await broker.messages.lease(ROUTED, max=1, lease_ms=600_000)
    await host.close(final_snapshot=False)
    await engine.close()


async def tell_of_encryption(root: Path) -> None:
    """The same, and then a queue that is encrypted, with one message key that was erased, around a snapshot."""
    await tell(root)
    clock, dice = ManualClock(), random.Random(7)
    encryption: Any = {"masters": MASTERS, "random": dice.randbytes}
    engine, host, broker = await _open(root, clock, dice, **encryption)
    await broker.queues.put(SECRET, {"encryption": True, "retention": {"mode": "keep"}})
    await broker.messages.publish([PublishPart(SECRET, _numbered(0, 3))])
    await broker.messages.publish([PublishPart(SECRET, _keyed(6))])
    await host.upkeep.round()
    try:
        await broker.erasure.erase(SECRET, keys=["k2"])
    except Conflict as asked:
        await broker.erasure.erase(SECRET, keys=["k2"], confirm=asked.details["confirm"])
    await host.close(final_snapshot=False)
    await engine.close()
    engine, host, broker = await _open(root, clock, dice, **encryption)
    await broker.messages.publish([PublishPart(SECRET, _with_everything())])
    await broker.messages.publish([PublishPart(SECRET, _keyed(3))])
    await host.close(final_snapshot=False)
    await engine.close()


STORIES: dict[str, Story] = {
    "": tell, "-members": tell_of_members, "-letters": tell_of_letters, "-schedules": tell_of_schedules,
    "-webhooks": tell_of_webhooks, "-keys": tell_of_keys, "-users": tell_of_users,
    "-holds": tell_of_holds, "-groups": tell_of_groups, "-ids": tell_of_ids, "-routing": tell_of_routing,
    "-chunks": tell_of_chunks,
    "-encryption": tell_of_encryption,
}  # fmt: skip
"""The end of the name of the journal's directory -> its content."""


async def _open(
    root: Path, clock: ManualClock, dice: random.Random, **options: Any
) -> tuple[LocalEngine, ShardHost, Broker]:
    engine = LocalEngine(str(root), segment_bytes=SEGMENT_BYTES)
    node = engine.node_id(NODE)
    host = await open_shard(engine, 0, clock, node, segments_kept=1, **options)
    return engine, host, Broker(host, dice.getrandbits)


async def _first_chapter(host: ShardHost, broker: Broker, clock: ManualClock) -> None:
    backoff = {"kind": "fixed", "base_ms": 100, "cap_ms": 100, "jitter": 0.0}
    await broker.queues.put(WORK, {"max_retries": 1, "backoff": backoff, "lease_ms": 5_000})
    await broker.queues.put(KEPT, {"partitions": 2, "retention": {"mode": "keep", "ms": 86_400_000}})
    await broker.messages.publish([PublishPart(WORK, _numbered(0, 10))])
    await broker.messages.publish([PublishPart(KEPT, _keyed(8))], ProducerSeq("billing", 3, 100))
    await broker.messages.publish([PublishPart(WORK, _with_everything())])
    clock.advance(10)
    await broker.messages.lease(KEPT, group="audit", max=3)
    leased = await broker.messages.lease(WORK, max=6, consumer="worker-1")
    await broker.messages.ack(receipts(leased)[:2])
    await broker.messages.nack(receipts(leased)[2:3], error="not now")
    await broker.messages.reject(receipts(leased)[3:4], error="never")


async def _second_chapter(host: ShardHost, broker: Broker, clock: ManualClock) -> None:
    await broker.queues.put(ONCE, {"delivery": "at_most_once"})
    await broker.queues.put(BRIEF, {"ttl_ms": 500})
    await broker.messages.publish([PublishPart(ONCE, _numbered(100, 3)), PublishPart(BRIEF, _numbered(200, 2))])
    await broker.messages.lease(ONCE, max=2)
    delayed = await broker.messages.publish([PublishPart(WORK, _delayed())])
    ids = [ulid_text(run.id + row) for run in delayed.runs for row in range(run.count)]
    await broker.scheduled.cancel(WORK, ids=ids[:1])
    await broker.scheduled.reschedule(WORK, ids=ids[1:2], delay_ms=7_200_000)
    leased = await broker.messages.lease(WORK, group="audit", max=8, consumer="worker-2", lease_ms=2_000)
    await broker.messages.extend(receipts(leased)[:2], lease_ms=9_000)
    await broker.messages.release(receipts(leased)[2:3])
    await broker.messages.nack(receipts(leased)[3:4], delay_ms=50, error="später")
    await broker.messages.reject(receipts(leased)[4:5])
    await broker.messages.ack(receipts(leased)[5:6])
    # Two leases of `audit` run out, the two messages of `brief` are too old.
    clock.advance(2_500)
    await broker.messages.lease(WORK, group="late", max=3, lease_ms=60_000)
    again = await broker.messages.lease(WORK, group="audit", max=2, consumer="worker-3")
    await broker.messages.nack(receipts(again), error="the last attempt of some")
    await broker.messages.publish([PublishPart(KEPT, _keyed(4))], ProducerSeq("billing", 3, 108))
    await host.loop.submit(TrimPartition(host.loop.shard.paths[KEPT], 0, 2))
    await broker.messages.publish([PublishPart(DOOMED, _numbered(300, 2))])
    for destroy in (broker.queues.purge, broker.queues.delete):
        await destroy(DOOMED, confirm=await _token(destroy))
    clock.advance(10)
    await broker.messages.publish([PublishPart(WORK, _numbered(400, 2))])


async def _token(destroy: Any) -> str:
    try:
        await destroy(DOOMED)
    except Exception as error:
        return error.details["confirm"]  # type: ignore[attr-defined, no-any-return]
    raise AssertionError("nothing is destroyed without a token")


def receipts(reply: LeaseReply) -> list[str]:
    return [f"{run.receipt}{run.offset + row}" for run in reply.runs for row in range(run.count)]


def _numbered(first: int, count: int) -> Batch:
    return Batch.open(build([b'{"n":%d}' % number for number in range(first, first + count)], checked=True))


def _keyed(count: int) -> Batch:
    return Batch.open(
        build([b"%d" % n for n in range(count)], columns={layout.KEY: [b"k%d" % n for n in range(count)]})
    )


def _with_everything() -> Batch:
    columns: dict[int, Any] = {
        layout.PRIORITY: [5, -5],
        layout.TTL_MS: [3_600_000, 0],
        layout.MAX_RETRIES: [7, -1],
        layout.KEY: [b"user-42", b""],
        layout.ID: [b"order-1", b"order-2"],
        layout.HEADERS: [b'{"trace":"abc"}', b""],
        layout.TENANT: [b"acme", b""],
    }
    return Batch.open(build([b"\x00\xff", b'"two"'], kinds=[0, 1], columns=columns))


def _delayed() -> Batch:
    columns: dict[int, Any] = {
        layout.DELAY_MS: [3_600_000, 3_600_000, 0],
        layout.DELIVER_AT_MS: [0, 0, 1_760_009_000_000],
    }
    return Batch.open(build([b'"later"'] * 3, columns=columns))


def _cut_zeros(file: Path) -> None:
    """Of the space that was prepared for more, only a little is worth keeping."""
    view, at = memoryview(file.read_bytes()), FILE_HEADER_BYTES
    while True:
        try:
            at += read_frame(view, at).size
        except BadFrame:
            break
    with file.open("r+b") as open_file:
        open_file.truncate(at + ZEROS_KEPT)


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()


async def _dead_letters(host: ShardHost, clock: ManualClock) -> None:
    """By command, because a redrive itself takes its time."""
    submit, shard = host.loop.submit, host.loop.shard
    work, copies = shard.paths[WORK], shard.paths[DEAD]
    letters = [
        Letter(number, group, offset, letter.dead_at)
        for number, partition in enumerate(shard.queues[work].partitions)
        for (group, offset), letter in sorted(partition.dead.items())
    ]
    await submit(StartRedrive(work, "back", filter='reason = "rejected"', delay_ms=60_000, rate_per_s=100))
    await submit(RedriveLetters(work, "back", letters[:1]))
    await submit(StartRedrive(work, "elsewhere", "audit", None, [bytes(16)], DEAD, priority=7, rate_per_s=5))
    await submit(RedriveLetters(work, "elsewhere", letters[1:2], Part(copies, _numbered(500, 1)), 1))
    await submit(EndRedrive(work, "elsewhere", "failed", 1, "the last one is too large"))
    await submit(DeleteLetters(work, letters[2:3]))
    (run,) = await host.loop.lease(Lease(work, "late", 1, 77), 0)
    claim = Claim(run.lease, run.nonce, run.first, run.first + 1)
    await submit(Transact([claim], [Part(copies, _numbered(510, 2))], 2))
    clock.advance(10)
