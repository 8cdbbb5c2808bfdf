"""Encrypted queues: no plaintext in any file, and erasing by namespace, queue and message key."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.encryption.master_keys import EncryptionKeyError, MasterKeys
from penstock.encryption.shard_encryption import ShardEncryption
from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import Conflict, DiskFull, InvalidRequest, QueueNotFound
from penstock.ids import parse_queue
from penstock.journal.port import OutOfSpace
from penstock.testing.inprocess import in_process, messages
from penstock.wire.holds import HoldRequest

MASTERS = MasterKeys([bytes(range(32))])
SMALL: dict[str, Any] = {"masters": MASTERS, "segments_kept": 1, "hot_bytes": 2_000}
ENCRYPTED = {"encryption": True}
ORDERS = parse_queue("shop/orders")


def marked(name: str, count: int) -> list[bytes]:
    """Payloads that can be searched for in files."""
    return [b"PLAINTEXT of %s %d " % (name.encode(), number) + bytes(100) for number in range(count)]


def plaintext_in(root: Path, *needles: bytes) -> list[str]:
    """The files below `root` that have one of these bytes."""
    files = [file for file in root.rglob("*") if file.is_file()]
    assert files
    return [file.name for file in files if any(needle in file.read_bytes() for needle in needles)]


async def erase(box, target: str, **options: Any) -> Any:
    with pytest.raises(Conflict) as asked:
        await box.broker.erasure.erase(target, **options)
    token = asked.value.details["confirm"]
    return asked.value.details["would_lose"], await box.broker.erasure.erase(target, **options, confirm=token)


def local(path: Path):
    return lambda: LocalEngine(str(path), fsync="never", segment_bytes=3_000)


async def payloads(box, queue: str, group: str = "default") -> list[bytes]:
    found = []
    while leased := await box.lease(queue, max=50, group=group):
        found += [message.payload for message in leased]
        await box.broker.messages.ack([message.receipt for message in leased])
    return found


async def read(box, queue: str, partition: int = 0) -> list[tuple[int, bytes]]:
    reply = await box.broker.log.read(parse_queue(queue), partition=partition, offset="earliest", max=None)
    return [(message.offset, message.payload) for message in messages(reply.runs)]


async def dead(box) -> int:
    return sum(queue.dead_letters() for queue in box.host.view.queues())


def test_encrypted_messages_are_in_no_file_and_come_back(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            sent = marked("alice", 120)
            for first in range(0, 120, 10):
                headers = [b'{"note":"PLAINTEXT in a header"}'] * 10
                await box.publish("shop/orders", *sent[first : first + 10], headers=headers)
                await box.host.upkeep.round()
            assert await box.host.journal.list_blobs("segment-")
            await box.restart()
            await box.host.upkeep.round()
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []
            assert [payload for _, payload in await read(box, "shop/orders")] == sent
            leased = await box.broker.messages.lease(ORDERS, max=1)
            assert leased.runs[0].batch.string(1 << 18, 0) == b'{"note":"PLAINTEXT in a header"}'
            await box.broker.messages.release([f"{leased.runs[0].receipt}{leased.runs[0].offset}"])
            assert await payloads(box, "shop/orders") == sent

    asyncio.run(run())


def test_scan_finds_plaintext_of_a_queue_that_is_not_encrypted(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.publish("plain", *marked("alice", 3))

    asyncio.run(run())
    assert plaintext_in(tmp_path, b"PLAINTEXT") != []


@pytest.mark.parametrize("order", ["fifo", "lanes", "heap", "ordered_keys"])
def test_encryption_works_with_every_order(tmp_path, order):
    settings = {"ordered_keys": True} if order == "ordered_keys" else {"order": order}

    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, {**ENCRYPTED, **settings})
            sent = marked("alice", 40)
            for first in range(0, 40, 4):
                keys = [b"k%d" % number for number in range(4)]
                await box.publish("shop/orders", *sent[first : first + 4], key=keys, priority=[3, 1, 2, 0])
                await box.host.upkeep.round()
            await box.restart(final_snapshot=False)
            assert sorted(await payloads(box, "shop/orders")) == sorted(sent)
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []

    asyncio.run(run())


def test_encrypt_all_encrypts_new_queues_unless_they_say_otherwise(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL, encrypt_all=True) as box:
            await box.publish("first", *marked("alice", 3))
            assert box.broker.queues.get("default/default/first")["config"]["encryption"] is True
            await box.broker.queues.put(parse_queue("second"), {"encryption": False})
            assert box.broker.queues.get("default/default/second")["config"]["encryption"] is False
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []

    asyncio.run(run())


def test_without_a_key_no_queue_can_be_encrypted_and_an_encrypted_store_is_refused():
    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory) as box:
            with pytest.raises(Conflict, match="--encryption-key FILE"):
                await box.broker.queues.put(ORDERS, ENCRYPTED)
            with pytest.raises(QueueNotFound):
                box.broker.queues.get(ORDERS)
            await box.broker.queues.put(ORDERS, {})
            with pytest.raises(Conflict, match="--encryption-key FILE"):
                await box.broker.queues.patch(ORDERS, ENCRYPTED)
            with pytest.raises(Conflict, match="no encryption key"):
                await box.broker.erasure.erase(ORDERS)
            assert box.broker.erasure.status().enabled is False
        async with in_process(lambda: memory, masters=MASTERS) as box:
            await box.broker.queues.patch(ORDERS, ENCRYPTED)
        with pytest.raises(EncryptionKeyError, match="--encryption-key FILE"):
            async with in_process(lambda: memory):
                pass
        with pytest.raises(EncryptionKeyError, match="is wrapped by key"):
            async with in_process(lambda: memory, masters=MasterKeys([os.urandom(32)])):
                pass

    asyncio.run(run())


def test_encryption_can_be_turned_on_later_and_never_off(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.publish("shop/orders", *marked("before", 5))
            await box.broker.queues.patch(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", *marked("after", 5))
            assert plaintext_in(tmp_path, b"PLAINTEXT of after") == []
            await box.host.upkeep.round()
            await box.restart()
            assert [payload for _, payload in await read(box, "shop/orders")] == marked("before", 5) + marked(
                "after", 5
            )
            with pytest.raises(InvalidRequest, match="cannot be turned off"):
                await box.broker.queues.patch(ORDERS, {"encryption": False})

    asyncio.run(run())


def test_erasing_a_queue_leaves_other_queues_alone(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            for queue in ("shop/orders", "shop/invoices", "bank/orders"):
                await box.broker.queues.put(parse_queue(queue), {**ENCRYPTED, "retention": {"mode": "keep"}})
                await box.publish(queue, *marked(queue, 6), key=[b"user-%d" % (n % 2) for n in range(6)])
            await box.host.upkeep.round()
            lost, erased = await erase(box, ORDERS)
            assert lost == {"queues": 1, "messages": 6, "dead_letters": 0}
            assert (erased.queues, erased.messages, erased.generation) == (1, 6, 1)
            for _ in range(2):
                assert await read(box, "shop/orders") == [] and await box.lease("shop/orders") == []
                assert [payload for _, payload in await read(box, "shop/invoices")] == marked("shop/invoices", 6)
                assert [payload for _, payload in await read(box, "bank/orders")] == marked("bank/orders", 6)
                await box.restart()
            await box.publish("shop/orders", b"and again")
            assert [payload for _, payload in await read(box, "shop/orders")] == [b"and again"]
            await box.restart()
            assert await payloads(box, "shop/orders") == [b"and again"]

    asyncio.run(run())


def test_erasing_a_namespace_erases_all_of_its_queues(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            for queue in ("shop/orders", "shop/mail/invoices", "bank/orders"):
                await box.broker.queues.put(parse_queue(queue), ENCRYPTED)
                await box.publish(queue, *marked(queue, 3))
            await box.publish("shop/plain", b"not encrypted")
            lost, _ = await erase(box, "shop/*")
            assert lost == {"queues": 2, "messages": 6, "dead_letters": 0}
            await box.restart()
            assert await payloads(box, "shop/orders") == await payloads(box, "shop/mail/invoices") == []
            assert await payloads(box, "shop/plain") == [b"not encrypted"]
            assert await payloads(box, "bank/orders") == marked("bank/orders", 3)

    asyncio.run(run())


@pytest.mark.parametrize("partitions", [1, 3])
def test_erasing_a_message_key_ends_its_messages_wherever_they_are(tmp_path, partitions):
    """Ready, delayed, leased, dead, acked and kept for readers."""

    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            settings = {"partitions": partitions, "retention": {"mode": "keep"}, "lease_ms": 1_000, "max_retries": 9}
            await box.broker.queues.put(ORDERS, {**ENCRYPTED, **settings, "backoff": {"kind": "none"}})
            names = [b"alice", b"bob", b"alice", b"carol"]
            for number in range(6):
                texts = [b"PLAINTEXT of %s %d" % (name, number) for name in names]
                delays = [3_600_000 if number == 5 else 0] * 4
                await box.publish("shop/orders", *texts, key=names, delay_ms=delays)
                await box.host.upkeep.round()
            leased = [message for _ in range(partitions) for message in await box.lease("shop/orders", max=12)]
            held = [message for message in leased if b"alice" in message.payload]
            assert len(held) >= 3
            await box.broker.messages.reject([held[0].receipt], error="bad")
            await box.broker.messages.ack([held[1].receipt])
            lost, _ = await erase(box, ORDERS, keys=["alice"])
            assert lost == {"queues": 1, "messages": 12, "dead_letters": 1}
            assert (await box.broker.messages.ack([held[2].receipt]))[0].status == "acked"
            assert await dead(box) == 0
            await box.advance(1_001)  # leases of the others end
            await box.advance(3_600_000)
            for _ in range(2):
                everything = [payload for n in range(partitions) for _, payload in await read(box, "shop/orders", n)]
                assert len(everything) == 12 and not [text for text in everything if b"alice" in text]
                await box.restart()
                await box.host.upkeep.round()
            assert box.host.loop.damaged_messages == 0
            left = await payloads(box, "shop/orders")
            assert sorted(left) == sorted(b"PLAINTEXT of %s %d" % (n, i) for n in (b"bob", b"carol") for i in range(6))
            await box.publish("shop/orders", b"alice is back", key=[b"alice"])
            assert await payloads(box, "shop/orders") == [b"alice is back"]

    asyncio.run(run())


def test_dead_letters_from_before_the_encryption_end_with_their_message_key(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.publish("shop/orders", b"1", b"2", key=[b"alice", b"bob"])
            receipts = [message.receipt for message in await box.lease("shop/orders", max=2)]
            await box.broker.messages.reject(receipts, error="bad")
            await box.broker.queues.patch(ORDERS, ENCRYPTED)
            lost, _ = await erase(box, ORDERS, keys=["alice"])
            assert lost["dead_letters"] == 1
            assert await dead(box) == 1

    asyncio.run(run())


def test_a_leased_message_that_was_erased_is_dropped_when_it_comes_back(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, {**ENCRYPTED, "backoff": {"kind": "none"}})
            await box.publish("shop/orders", b"one", b"two", b"three", key=[b"a", b"b", b"a"])
            leased = await box.lease("shop/orders", max=3)
            await erase(box, ORDERS, keys=["a"])
            await box.broker.messages.nack([message.receipt for message in leased])
            assert await payloads(box, "shop/orders") == [b"two"]
            assert (await box.broker.stats.queue(ORDERS))["depth"] == 0
            assert box.broker.damage[0] == 0

    asyncio.run(run())


def test_after_a_crash_between_the_keyring_and_the_state_the_messages_are_dropped(tmp_path, monkeypatch):
    """The keyring is stored, and the process ends before the messages are settled or the former keyring is deleted."""

    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", b"one", b"two", b"three", key=[b"a", b"b", b"a"])
            await box.publish("shop/orders", b"four", key=[b"a"])
            leased = await box.lease("shop/orders", max=1)
            await box.broker.messages.reject([leased[0].receipt])
            store = ShardEncryption._store

            async def crash(self, keyring) -> None:
                await store(self, keyring)
                raise OSError("the process ends here")

            monkeypatch.setattr(ShardEncryption, "_store", crash)
            with pytest.raises(Conflict) as asked:
                await box.broker.erasure.erase(ORDERS, keys=["a"])
            with pytest.raises(Exception, match="the process ends here"):
                await box.broker.erasure.erase(ORDERS, keys=["a"], confirm=asked.value.details["confirm"])
            monkeypatch.setattr(ShardEncryption, "_store", store)
            assert len(await box.host.journal.list_blobs("keyring-")) == 2
            await box.restart(final_snapshot=False)
            assert len(await box.host.journal.list_blobs("keyring-")) == 1
            assert box.broker.erasure.status().generation == 1
            assert await payloads(box, "shop/orders") == [b"two"]
            assert not (await box.broker.dead_letters.page(ORDERS))["dead_letters"]
            await erase(box, ORDERS, keys=["a"])  # repeated, because it was not answered
            assert await dead(box) == 0
            assert (await box.broker.stats.queue(ORDERS))["depth"] == 0

    asyncio.run(run())


def test_an_erasure_without_space_changes_nothing(monkeypatch):
    async def run() -> None:
        async with in_process(masters=MASTERS) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", b"one")

            async def full(blobs) -> None:
                raise OutOfSpace("the disk is full")

            with pytest.raises(Conflict) as asked:
                await box.broker.erasure.erase(ORDERS)
            with monkeypatch.context() as patched:
                patched.setattr(box.host.journal, "put_blobs", full)
                with pytest.raises(DiskFull):
                    await box.broker.erasure.erase(ORDERS, confirm=asked.value.details["confirm"])
            assert await payloads(box, "shop/orders") == [b"one"]

    asyncio.run(run())


def test_messages_published_while_keys_are_erased_are_either_erased_or_readable(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, {**ENCRYPTED, "retention": {"mode": "keep"}})
            stop = asyncio.Event()
            sent: list[bytes] = []

            async def publish() -> None:
                while not stop.is_set() and len(sent) < 400:
                    text = b"message %d" % len(sent)
                    sent.append(text)
                    await box.publish("shop/orders", text, key=[b"a" if len(sent) % 2 else b"b"])

            publisher = asyncio.ensure_future(publish())
            for _ in range(10):
                await erase(box, ORDERS, keys=["a"])
                await asyncio.sleep(0)
            stop.set()
            await publisher
            before = await read(box, "shop/orders")
            await box.restart(final_snapshot=False)
            assert await read(box, "shop/orders") == before
            kept = {text for _, text in before}
            assert kept >= set(sent[1::2])  # no message of another key is touched
            await payloads(box, "shop/orders")
            assert box.broker.damage[0] == 0

    asyncio.run(run())


def test_a_confirmation_is_for_these_keys_alone():
    async def run() -> None:
        async with in_process(masters=MASTERS) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", b"one", b"two", key=[b"a", b"b"])
            with pytest.raises(Conflict) as asked:
                await box.broker.erasure.erase(ORDERS, keys=["a"])
            assert "a" not in asked.value.message.split()
            for wrong in ({"keys": ["b"]}, {}, {"keys": ["a", "b"]}):
                with pytest.raises(Conflict):
                    await box.broker.erasure.erase(ORDERS, **wrong, confirm=asked.value.details["confirm"])
            assert await payloads(box, "shop/orders") == [b"one", b"two"]

    asyncio.run(run())


def test_erasing_a_queue_that_is_not_encrypted_is_refused():
    async def run() -> None:
        async with in_process(masters=MASTERS) as box:
            await box.publish("plain", b"one")
            with pytest.raises(Conflict, match="not encrypted"):
                await box.broker.erasure.erase(parse_queue("plain"))
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            with pytest.raises(QueueNotFound):
                await box.broker.erasure.erase(parse_queue("nowhere"))
            for keys in ([], ["k"] * 1_001):
                with pytest.raises(InvalidRequest, match="keys"):
                    await box.broker.erasure.erase(ORDERS, keys=keys)

    asyncio.run(run())


def test_dead_letters_are_not_copied_to_a_queue_that_is_not_encrypted():
    async def run() -> None:
        async with in_process(masters=MASTERS) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.broker.queues.put(parse_queue("safe"), ENCRYPTED)
            await box.publish("plain", b"0")
            for target in ("plain", "new"):
                with pytest.raises(Conflict, match="choose an encrypted queue"):
                    await box.broker.redrives.start(ORDERS, filter="", target=parse_queue(target), dry_run=False)
            await box.broker.redrives.start(ORDERS, filter="", target=parse_queue("safe"), dry_run=False)

    asyncio.run(run())


def test_rotation_rewraps_the_keyring_and_rewrites_no_message(tmp_path):
    new = MasterKeys([bytes(range(1, 33)), bytes(range(32))])

    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", *marked("alice", 20))
            await box.host.upkeep.round()
            box.broker.erasure.read_masters = lambda: new
            before = {
                file.name: file.read_bytes()
                for file in tmp_path.rglob("*")
                if "keyring" not in file.name
                if file.is_file()
            }
            assert (await box.broker.erasure.rotate()).master_key == new.first.id
            after = {
                file.name: file.read_bytes()
                for file in tmp_path.rglob("*")
                if "keyring" not in file.name
                if file.is_file()
            }
            assert before == after
            box._options["masters"] = MasterKeys([bytes(range(1, 33))])
            await box.restart()
            assert await payloads(box, "shop/orders") == marked("alice", 20)

    asyncio.run(run())


async def published_in_plaintext(box) -> None:
    """Messages of `shop/orders` in every place that files have for them: sealed, in the journal, dead, acked."""
    for number in range(8):
        await box.publish("shop/orders", *marked("before", 4), key=[b"alice", b"bob"] * 2)
        await box.publish("shop/other", b"another queue %d" % number)
        if number < 6:
            await box.host.upkeep.round()
    leased = await box.lease("shop/orders", max=6)
    await box.broker.messages.reject([message.receipt for message in leased[:2]], error="bad")
    await box.broker.messages.ack([message.receipt for message in leased[2:4]])
    assert await box.host.journal.list_blobs("segment-")
    assert plaintext_in(box.path, b"PLAINTEXT")


@pytest.mark.parametrize("fsync", ["always", "never"])
@pytest.mark.parametrize("keys", [None, ["alice", "bob"]])
def test_erasing_rewrites_messages_from_before_the_encryption(tmp_path, keys, fsync):
    """In journal files, segments and files that are kept for reuse; dead letters too."""

    async def run() -> None:
        async with in_process(
            lambda: LocalEngine(str(tmp_path), fsync=fsync, segment_bytes=3_000), **SMALL, segment_bytes=3_000
        ) as box:
            box.path = tmp_path
            await published_in_plaintext(box)
            await box.broker.queues.patch(ORDERS, ENCRYPTED)
            lost, erased = await erase(box, ORDERS, keys=keys)
            assert lost["dead_letters"] == erased.dead_letters == 2
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []
            for _ in range(2):
                assert await read(box, "shop/orders") == [] and await dead(box) == 0
                await box.restart()
                assert plaintext_in(tmp_path, b"PLAINTEXT") == []
            assert sorted(await payloads(box, "shop/other")) == [b"another queue %d" % number for number in range(8)]

    asyncio.run(run())


def test_erasing_one_message_key_leaves_the_others_readable_and_encrypted(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            box.path = tmp_path
            await published_in_plaintext(box)
            await box.broker.queues.patch(ORDERS, {**ENCRYPTED, "retention": {"mode": "keep"}})
            await erase(box, ORDERS, keys=["alice"])
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []
            await box.restart()
            assert set(await payloads(box, "shop/orders")) == {marked("before", 4)[1], marked("before", 4)[3]}

    asyncio.run(run())


def test_erasing_a_namespace_rewrites_what_deleted_queues_left(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            box.path = tmp_path
            await published_in_plaintext(box)
            with pytest.raises(Conflict) as asked:
                await box.broker.queues.delete(ORDERS)
            await box.broker.queues.delete(ORDERS, confirm=asked.value.details["confirm"])
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await erase(box, "shop/*")
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []

    asyncio.run(run())


def test_erasing_is_refused_while_a_hold_keeps_plaintext(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.publish("shop/orders", *marked("before", 3))
            await box.broker.holds.set("lake", HoldRequest(events=0, max_bytes=1 << 40), {})
            await box.broker.queues.patch(ORDERS, ENCRYPTED)
            with pytest.raises(Conflict, match="penstock holds remove lake"):
                await erase(box, ORDERS)
            assert await payloads(box, "shop/orders") == marked("before", 3)
            assert box.broker.erasure.status().generation == 0
            await box.broker.holds.remove("lake")
            await erase(box, ORDERS)
            assert plaintext_in(tmp_path, b"PLAINTEXT") == []

    asyncio.run(run())


def test_a_queue_that_was_always_encrypted_is_not_rewritten(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path), **SMALL) as box:
            await box.broker.queues.put(ORDERS, ENCRYPTED)
            await box.publish("shop/orders", *marked("alice", 3))
            await box.publish("plain", b"not encrypted")
            rounds = box.host.upkeep.rounds
            await erase(box, ORDERS)
            assert box.host.upkeep.rounds == rounds

    asyncio.run(run())
