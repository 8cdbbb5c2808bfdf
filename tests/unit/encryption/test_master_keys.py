"""Master keys: their file, and keyrings that are wrapped by them."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode

import pytest

from penstock.encryption.keyring import Unit
from penstock.encryption.master_keys import KEYS_MAX, EncryptionKeyError, MasterKeys
from penstock.encryption.shard_encryption import open_encryption
from penstock.engines.memory import MemoryEngine
from penstock.journal.blobs import KEYRING_MAGIC, seal_blob
from penstock.journal.port import Damaged

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))


def line(key: bytes) -> str:
    return b64encode(key).decode() + "\n"


@pytest.mark.parametrize("text", [line(FIRST), FIRST.hex(), f"\n  {line(FIRST)}\n", line(FIRST) + line(SECOND)])
def test_a_key_file_has_one_key_a_line(text):
    assert MasterKeys.parse(text, "file").first.id == MasterKeys([FIRST]).first.id


@pytest.mark.parametrize(
    "text", ["", "\n", "abc", line(FIRST[:31]), line(FIRST) + "x", "é" * 44, "0" * 63, line(FIRST) * (KEYS_MAX + 1)]
)
def test_other_texts_are_refused_without_being_shown(text):
    with pytest.raises(EncryptionKeyError) as refused:
        MasterKeys.parse(text, "key file")
    assert "key file" in str(refused.value)
    assert not text.strip() or text.strip() not in str(refused.value)


def test_a_master_key_does_not_show_itself():
    key = MasterKeys([FIRST]).first
    assert FIRST.hex() not in repr(key) and key.id in repr(key)


async def opened(engine: MemoryEngine, keys: list[bytes] | None):
    journal = await engine.acquire(0, bytes(16))
    encryption = await open_encryption(journal, None if keys is None else MasterKeys(keys), os.urandom)
    return journal, encryption


def test_a_keyring_is_the_same_after_a_restart_and_wrapped_by_the_first_key():
    async def run() -> None:
        engine = MemoryEngine()
        _, encryption = await opened(engine, [FIRST])
        key = encryption.cipher.keyring.data_key("a/b/c", b"", 0)
        journal, encryption = await opened(engine, [SECOND, FIRST])
        assert encryption.cipher.keyring.data_key("a/b/c", b"", 0) == key
        (blob,) = await journal.list_blobs("keyring-")
        assert encryption.master_id.encode() in journal.peek(blob[0], 0, blob[1])
        _, encryption = await opened(engine, [SECOND])
        assert encryption.cipher.keyring.data_key("a/b/c", b"", 0) == key
        with pytest.raises(EncryptionKeyError, match="add the line of that key"):
            await opened(engine, [FIRST])
        with pytest.raises(EncryptionKeyError, match="--encryption-key FILE"):
            await opened(engine, None)

    asyncio.run(run())


def test_a_keyring_of_another_content_is_damage():
    async def run() -> None:
        engine = MemoryEngine()
        journal, _ = await opened(engine, [FIRST])
        ((name, size),) = await journal.list_blobs("keyring-")
        body = bytearray(journal.peek(name, 24, size - 24))
        body[-1] ^= 1
        await journal.delete_blobs([name])
        await journal.put_blobs([("keyring-000000000009", seal_blob(KEYRING_MAGIC, [bytes(body)]))])
        with pytest.raises(Damaged, match="keyring-000000000009"):
            await opened(engine, [FIRST])

    asyncio.run(run())


def test_only_the_newest_keyring_stays():
    async def run() -> None:
        engine = MemoryEngine()
        journal, encryption = await opened(engine, [FIRST])
        old = await journal.list_blobs("keyring-")
        data = journal.peek(*[old[0][0], 0, old[0][1]])
        settled: list[int] = []
        await encryption.erase([Unit("a", "a/b/c")], lambda: settled.append(encryption.generation))
        assert settled == [1] and len(await journal.list_blobs("keyring-")) == 1
        # A crash before the deletion of the former one: the newest counts, and the other one is deleted.
        await journal.put_blobs([(old[0][0], [data])])
        journal, encryption = await opened(engine, [FIRST])
        assert encryption.generation == 1
        assert len(await journal.list_blobs("keyring-")) == 1
        assert encryption.cipher.keyring.data_key("a/b/c", b"", 0) is None

    asyncio.run(run())


class Refusing:
    """A journal that stores no more blobs; `deletes` says whether it deletes any."""

    def __init__(self, inner, deletes: bool):
        self._inner, self._deletes = inner, deletes

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def put_blobs(self, blobs) -> None:
        await self._inner.put_blobs(blobs)  # it is there, and the sync of its directory failed
        raise OSError(5, "Input/output error")

    async def delete_blobs(self, names) -> None:
        if not self._deletes:
            raise OSError(5, "Input/output error")
        await self._inner.delete_blobs(names)


@pytest.mark.parametrize("deletes", [True, False])
def test_an_erasure_that_cannot_be_stored_leaves_the_former_keyring_or_stops_the_shard(deletes):
    async def run() -> None:
        engine = MemoryEngine()
        journal, encryption = await opened(engine, [FIRST])
        failures: list[str] = []
        encryption.on_failure = failures.append
        encryption._journal = Refusing(journal, deletes)
        with pytest.raises(OSError, match="Input/output"):
            await encryption.erase([Unit("a")], lambda: failures.append("settled"))
        assert encryption.generation == 0
        assert len(failures) == (0 if deletes else 1)
        if deletes:
            _, again = await opened(engine, [FIRST])
            assert again.generation == 0

    asyncio.run(run())


def test_an_erasure_is_finished_if_its_caller_goes_away():
    async def run() -> None:
        engine = MemoryEngine()
        _, encryption = await opened(engine, [FIRST])
        done = asyncio.Event()
        task = asyncio.ensure_future(encryption.erase([Unit("a")], done.set))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait_for(done.wait(), 5)
        assert encryption.generation == 1

    asyncio.run(run())
