"""I14: a nonce is used once with a key, and an encrypted record is readable in its own place only.

The salt that is drawn at every open of a journal is zero here, as from a generator that fails: the term alone must keep
the nonces of one open from those of another. `python -m sim.nonces` counts crashes and recoveries of the smallest
broker that encrypts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.batch import Batch, build, layout
from penstock.core.records import EncryptedPublished, Published, Record
from penstock.encryption import record_cipher
from penstock.encryption.master_keys import MasterKeys
from penstock.encryption.record_cipher import SALT_BYTES, NotDecrypted, RecordCipher
from penstock.encryption.shard_encryption import ShardEncryption, open_encryption
from penstock.engines.local.engine import LocalEngine
from penstock.journal.codec import encode
from penstock.journal.frame import FrameWriter
from penstock.testing.files import Operation, SimFiles, Verdict
from sim.violation import Violation

MASTERS = MasterKeys([bytes(range(32))])


def weak_random(entropy: Random) -> Callable[[int], bytes]:
    """Random bytes for keys, and zeros for the salt."""
    return lambda count: bytes(count) if count == SALT_BYTES else entropy.randbytes(count)


class NonceOracle:
    """Sees every call of AES-GCM that encrypts a record, of all processes of a run."""

    def __init__(self, report: Callable[[Violation], None]):
        self._report = report
        self._plain = AESGCM
        self._used: set[tuple[bytes, bytes]] = set()
        self._reader: RecordCipher | None = None

    def watch(self) -> None:
        oracle, plain = self, self._plain

        class Watched:
            def __init__(self, key: bytes):
                self._key, self._cipher = key, plain(key)

            def encrypt(self, nonce: bytes, data: bytes, context: bytes) -> bytes:
                oracle.note(self._key, nonce)
                return self._cipher.encrypt(nonce, data, context)

            def decrypt(self, nonce: bytes, data: bytes, context: bytes) -> bytes:
                return self._cipher.decrypt(nonce, data, context)

        setattr(record_cipher, "AESGCM", Watched)  # noqa: B010  the module does not export it

    def stop(self) -> None:
        setattr(record_cipher, "AESGCM", self._plain)  # noqa: B010

    def note(self, key: bytes, nonce: bytes) -> None:
        if (key, nonce) in self._used:
            self._report(Violation("I14", f"nonce {nonce.hex()} was used twice with the same key"))
        self._used.add((key, nonce))

    @property
    def uses(self) -> int:
        return len(self._used)

    def reads_by(self, encryption: ShardEncryption | None) -> None:
        """A process has opened the journal: records are decrypted by its keyring."""
        if encryption is not None:
            self._reader = RecordCipher(encryption.cipher.keyring, 0, bytes(SALT_BYTES))

    def decrypted(self, record: Record) -> Record:
        """The record as it was published. Raises Violation if it cannot be read, or could be read elsewhere."""
        if type(record) is not EncryptedPublished:
            return record
        if self._reader is None:
            raise Violation("I14", "a record is encrypted, and no process had a key")
        try:
            (found,) = self._reader.decrypt(record).records
        except NotDecrypted as error:
            raise Violation("I14", f"the record at offset {record.offset} cannot be decrypted: {error}") from None
        for change in ({"offset": record.offset + 1}, {"partition": record.partition + 1}, {"queue": record.queue + 1}):
            try:
                self._reader.decrypt(msgspec.structs.replace(record, **change))
            except NotDecrypted:
                continue
            raise Violation("I14", f"the record at offset {record.offset} can be read as one of {change}")
        return found


# -- many recoveries ----------------------------------------------------------------------------------------------


DISK_LIVES = 100
"""Recoveries of one disk: its journal is never trimmed."""
OPERATIONS_MAX = 60
"""Operations of the disk before the power is cut: that is in the middle of an open, or of one of the first appends."""


class Recoveries:
    """A journal that is opened and written until the power is cut, again and again."""

    def __init__(self, seed: int):
        self._rng = Random(f"{seed}/recoveries")
        self._files = SimFiles()
        self._left = 0
        """Operations of the disk until the power is cut."""
        self._cut = asyncio.Event()
        self.violations: list[Violation] = []
        self.oracle = NonceOracle(self.violations.append)
        self.count = 0
        self.opened = 0
        """Processes that came as far as encrypting."""

    async def run(self, recoveries: int) -> None:
        self.oracle.watch()
        try:
            while self.count < recoveries and not self.violations:
                if self.count % DISK_LIVES == 0:
                    self._files = SimFiles(faults=self._fault, on_stop=self._cut.set)
                await self._life()
                self.count += 1
        finally:
            self.oracle.stop()

    def _fault(self, operation: Operation, path: str) -> Verdict:  # noqa: ARG002  any operation
        self._left -= 1
        return "cut" if self._left == 0 else None

    async def _life(self) -> None:
        self._left = self._rng.randint(1, OPERATIONS_MAX)
        self._cut.clear()
        process, cut = asyncio.ensure_future(self._process()), asyncio.ensure_future(self._cut.wait())
        await asyncio.wait([process, cut], return_when=asyncio.FIRST_COMPLETED)
        for task in (process, cut):
            task.cancel()
        await asyncio.gather(process, cut, return_exceptions=True)
        self._files.crash(self._rng)

    async def _process(self) -> None:
        engine = LocalEngine("/data", files=self._files, segment_bytes=4096, zero_ahead_bytes=0)
        node = engine.node_id(bytes(16))
        journal = await engine.acquire(0, node)
        encryption = await open_encryption(journal, MASTERS, weak_random(self._rng))
        assert encryption is not None
        self.opened += 1
        writer = FrameWriter(node, journal.term, journal.tail.index + 1, journal.tail.chain)
        while True:
            index = writer.next_index
            parts = [part for part in encode(self._encrypted(encryption, index)) if part is not None]
            await journal.append(index, [writer.seal(1, parts), *parts])

    def _encrypted(self, encryption: ShardEncryption, offset: int) -> Published:
        keys: Any = {layout.KEY: [b"k%d" % self._rng.randint(0, 3) for _ in range(2)]}
        batch = Batch.open(build([b"1", b"2"], columns=keys))
        return encryption.cipher.encrypt(Published(1, 1, 0, offset, offset, batch), "sim/default/queue")


def main() -> None:
    parser = argparse.ArgumentParser(description="count crashes and recoveries, and look for a nonce that repeats")
    parser.add_argument("--recoveries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = Recoveries(asked.seed)
    asyncio.run(found.run(asked.recoveries))
    repeats = len(found.violations)
    print(f"{found.count} recoveries, {found.opened} encrypted, {found.oracle.uses} nonces, {repeats} repeats")
    raise SystemExit(bool(found.violations))


if __name__ == "__main__":
    main()
