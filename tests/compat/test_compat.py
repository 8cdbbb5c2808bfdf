"""What earlier versions wrote is read by this one, to the letter, and can be gone on with.

The fixtures are never edited; `write.py` says when new ones are added and how.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest

from penstock.batch import Batch, build, layout
from penstock.batch.check import check_client_frame
from penstock.broker.service import Broker
from penstock.broker.types import ProducerSeq, PublishPart
from penstock.core.invariants import check as check_invariants
from penstock.core.records import KINDS
from penstock.engines.local.engine import LocalEngine
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue
from penstock.journal.codec import decode
from penstock.journal.frame import read_frame
from penstock.runtime.host import open_shard
from penstock.testing.clock import ManualClock
from tests.compat import write
from tests.compat.look import MASTERS, NODE, client_ids_in, content, dump_of, state_of

HERE = Path(__file__).parent
FRAMES = sorted(HERE.glob("batch/*.bin"))
JOURNALS = sorted(HERE.glob("journal-v*"))
WORK = parse_queue("work")


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FRAMES, ids=name_of)
def test_a_frame_is_read_as_it_was_meant(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    assert as_far_as(expected, content(path.stem, path.read_bytes())) == expected


@pytest.mark.parametrize("path", [path for path in FRAMES if not path.stem.startswith("delivery-")], ids=name_of)
def test_a_frame_is_taken_from_a_client_exactly_if_all_of_it_can_be_honoured(path):
    batch = Batch.open(path.read_bytes())
    if batch.checked or batch.columns & ~layout.KNOWN:
        with pytest.raises(InvalidRequest):
            check_client_frame(batch)
    else:
        check_client_frame(batch)


def test_every_column_and_kind_of_payload_is_in_a_frame():
    batches = [Batch.open(path.read_bytes()) for path in FRAMES if not path.stem.startswith("delivery-")]
    seen = 0
    for batch in batches:
        seen |= batch.columns
    assert seen & layout.KNOWN == layout.KNOWN
    assert {batch.flags & layout.KIND_MASK for batch in batches} == {0, 1, 2}


@pytest.fixture(params=JOURNALS, ids=name_of)
def journal(request, tmp_path) -> tuple[Path, Path]:
    """A fixture, and a copy of its data to work on."""
    copy = tmp_path / "data"
    shutil.copytree(request.param / "data", copy)
    return request.param, copy


def test_a_journal_is_shown_as_it_was(journal):
    fixture, copy = journal
    assert dump_of(copy) == (fixture / "dump.txt").read_text()


def test_a_journal_is_recovered_to_what_it_meant(journal):
    fixture, copy = journal
    expected = json.loads((fixture / "expected.json").read_text())
    known = {own.encode() for queue in expected["queues"].values() for own in queue["client_ids"]}
    found = json.loads(json.dumps(asyncio.run(state_of(copy, known | client_ids_in(copy)))))
    # A digest is of the state as this version writes it; the state itself is compared, field by field.
    expected.pop("digest")
    assert as_far_as(expected, found) == expected


def as_far_as(known: object, found: object) -> object:
    """The found values, without fields and settings that did not exist when the fixture was written."""
    if isinstance(known, dict) and isinstance(found, dict) and known.keys() <= found.keys():
        return {name: as_far_as(value, found[name]) for name, value in known.items()}
    if isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        return [as_far_as(*pair) for pair in zip(known, found, strict=True)]
    return found


def test_a_journal_is_gone_on_with(journal):
    _, copy = journal

    async def first_life():
        engine, host, broker = await opened(copy)
        before = broker.queues.get(WORK)["depth"]
        again = await broker.messages.publish(
            [PublishPart(parse_queue("archive/kept"), keyed(4))], ProducerSeq("billing", 3, 108)
        )
        assert all(run.duplicate for run in again.runs), "what was published before is still known"
        await broker.messages.publish([PublishPart(WORK, Batch.open(build([b'"new"'])))])
        taken = await broker.messages.lease(WORK, group="new", max=1000)
        assert taken.runs[-1].batch.payloads()[-1] == b'"new"'
        assert {result.status for result in await broker.messages.ack(write.receipts(taken))} == {"acked"}
        assert broker.queues.get(WORK)["depth"] == before + 1, "the other groups have not had it"
        check_invariants(host.loop.shard)
        await host.upkeep.round()
        await close(engine, broker)

    async def second_life():
        engine, host, broker = await opened(copy)
        assert (await broker.messages.lease(WORK, group="new", max=1000)).runs == []
        check_invariants(host.loop.shard)
        await close(engine, broker)

    asyncio.run(first_life())
    asyncio.run(second_life())


def test_a_key_goes_where_its_messages_are(journal):
    """Routing is a property of the queue: a queue of an earlier release keeps the function of that release."""
    _, copy = journal

    async def publish_again():
        engine, host, broker = await opened(copy)
        for queue in [queue for queue in host.loop.shard.queues.values() if len(queue.partitions) > 1]:
            homes = {}
            # Behind the last growth: before it, a key was in another partition.
            begins = [*(queue.growths[-1] if queue.growths else []), *[0] * len(queue.partitions)]
            for number, partition in enumerate(queue.partitions):
                first = max(begins[number], partition.start)
                for run in host.loop.log.runs(queue.number, number, first, partition.end):
                    if run.record.batch.has(layout.KEY):
                        homes |= dict.fromkeys(run.record.batch.strings(layout.KEY), number)
            if not homes:
                continue
            batch = Batch.open(build([b"0"] * len(homes), columns={layout.KEY: list(homes)}))
            reply = await broker.messages.publish([PublishPart(parse_queue(queue.path), batch)])
            rows = {row: run.partition for run in reply.runs for row in run.rows or range(run.count)}
            assert [rows[row] for row in range(len(homes))] == list(homes.values())
        await close(engine, broker)

    asyncio.run(publish_again())


def test_receipts_that_were_handed_out_then_are_good_now(journal):
    fixture, copy = journal
    leases = json.loads((fixture / "expected.json").read_text())["leases"]

    async def settle():
        engine, _, broker = await opened(copy)
        for lease in leases:
            for run in lease["held"]:
                receipt = f"r1.0.{lease['id']}.{lease['nonce']:016x}.{run['first']}-{run['stop'] - 1}"
                assert [result.status for result in await broker.messages.ack([receipt])] == ["acked"]
        await close(engine, broker)

    assert leases
    asyncio.run(settle())


def test_every_kind_of_record_is_in_a_journal():
    found = set()
    for file in HERE.glob("journal-v*/data/shard-0/journal/*.log"):
        view, at = memoryview(file.read_bytes()), 64
        while at < len(view) and any(view[at:]):
            frame = read_frame(view, at)
            found |= {type(record) for _, record in decode(frame.body)}
            at += frame.size
    assert found == set(KINDS)


def test_writing_fixtures_still_works_and_two_runs_write_the_same(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write.write_batches(tmp_path / name / "batch")
        for ending, story in write.STORIES.items():
            write.write_journal(tmp_path / name / f"journal{ending}", story)
    one, two = (
        {
            file.relative_to(tmp_path / name): file.read_bytes()
            for file in (tmp_path / name).rglob("*")
            if file.is_file()
        }
        for name in ("one", "two")
    )
    assert one == two
    assert len(one) > 2 * len(FRAMES)


async def opened(path: Path):
    engine = LocalEngine(str(path), fsync="never")
    host = await open_shard(engine, 0, ManualClock(), engine.node_id(NODE), segments_kept=1, masters=MASTERS)
    return engine, host, Broker(host, random.Random(2).getrandbits)


async def close(engine: LocalEngine, broker: Broker) -> None:
    await broker.close()
    await engine.close()


def keyed(count: int) -> Batch:
    return Batch.open(
        build([b"%d" % n for n in range(count)], columns={layout.KEY: [b"k%d" % n for n in range(count)]})
    )
