"""The encryption of one shard: its keyring in the store, wrapped by a master key, and the cipher of its records.

The keyring is a blob of the shard, `keyring-<number>`. A change stores the next one, durably, before it is used, and
then deletes the former one: that is how a data key is destroyed. After a crash between the two the newest one counts,
and the others are deleted when the shard is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from cryptography.exceptions import InvalidTag

from penstock.encryption.keyring import RANDOM_BYTES, Keyring, Unit
from penstock.encryption.master_keys import NONCE_BYTES, EncryptionKeyError, MasterKeys
from penstock.encryption.record_cipher import SALT_BYTES, RecordCipher
from penstock.journal.blobs import KEYRING_MAGIC, decode_keyring, seal_blob
from penstock.journal.port import Damaged, EngineError, Place, ShardJournal

PREFIX = "keyring-"
Random = Callable[[int], bytes]
"""That many random bytes."""


class _Wrapped(msgspec.Struct):
    """The body of a blob: the keyring, and the id of the master key that wraps it."""

    master: str
    keyring: bytes


class ShardEncryption:
    """Use `open_encryption`."""

    def __init__(self, journal: ShardJournal, masters: MasterKeys, random: Random):
        self._journal = journal
        self._masters = masters
        self._random = random
        self._number = 0
        """Of the newest blob."""
        self._one_at_a_time = asyncio.Lock()
        self.cipher: RecordCipher
        self.on_failure: Callable[[str], None] = lambda _: None
        """Called when it is unknown which keyring the store has. Nothing may be encrypted from then on."""

    async def open(self) -> None:
        blobs = await self._journal.list_blobs(PREFIX)
        if blobs:
            name, size = blobs[-1]
            self._number = int(name.removeprefix(PREFIX))
            (data,) = await self._journal.fetch([Place(name, 0, size)])
            master, keyring = self._read(name, data)
        else:
            master, keyring = "", Keyring.new(self._random(RANDOM_BYTES))
        # The term is durable and was never used before: `RecordCipher` says why that matters.
        self.cipher = RecordCipher(keyring, self._journal.term, self._random(SALT_BYTES))
        if master != self._masters.first.id:
            await self._store(keyring)
        await self._delete_former()

    @property
    def master_id(self) -> str:
        """The id of the master key that wraps the keyring."""
        return self._masters.first.id

    @property
    def generation(self) -> int:
        return self.cipher.keyring.generation

    async def rewrap(self, masters: MasterKeys) -> None:
        """Wrap the keyring by the first of these keys. Messages and their data keys stay as they are."""

        async def change() -> None:
            before, self._masters = self._masters, masters
            try:
                await self._store(self.cipher.keyring)
            except BaseException:
                self._masters = before
                raise
            await self._delete_former()

        await self._in_turn(change)

    async def erase(self, units: Sequence[Unit], settle: Callable[[], None]) -> None:
        """Destroy the data keys of these units.

        `settle` is called once, when the messages can no longer be read: it ends them in the state of the shard.
        Messages that were published before that moment are erased, later ones have another key.
        """

        async def change() -> None:
            keyring = self.cipher.keyring.erased(units)
            await self._store(keyring)
            self.cipher.use(keyring)
            settle()
            await self._delete_former()

        await self._in_turn(change)

    async def _in_turn(self, change: Callable[[], Awaitable[None]]) -> None:
        """A change is finished, also if the caller goes away: a half of it would be the newest keyring after a restart,
        and not the one that is used until then."""

        async def run() -> None:
            async with self._one_at_a_time:
                await change()

        await asyncio.shield(asyncio.ensure_future(run()))

    async def _store(self, keyring: Keyring) -> None:
        first = self._masters.first
        wrapped = first.wrap(self._random(NONCE_BYTES), keyring.dump(), _context(first.id))
        self._number += 1
        name = _blob_name(self._number)
        body = msgspec.msgpack.encode(_Wrapped(first.id, wrapped))
        try:
            await self._journal.put_blobs([(name, seal_blob(KEYRING_MAGIC, [body]))])
        except (EngineError, OSError):
            # The keyring that is in use must be the newest one, or the next start would take the other.
            try:
                await self._journal.delete_blobs([name])
            except (EngineError, OSError) as error:
                self.on_failure(f"{name} can be neither stored nor deleted: {error}")
            raise

    async def _delete_former(self) -> None:
        names = [name for name, _ in await self._journal.list_blobs(PREFIX)]
        await self._journal.delete_blobs([name for name in names if name != _blob_name(self._number)])

    def _read(self, name: str, data: bytes) -> tuple[str, Keyring]:
        try:
            wrapped = msgspec.msgpack.decode(decode_keyring(name, data), type=_Wrapped)
            opened = self._masters.with_id(wrapped.master).unwrap(wrapped.keyring, _context(wrapped.master))
            return wrapped.master, Keyring.load(opened)
        except (InvalidTag, msgspec.DecodeError):
            raise Damaged(
                f"{name}: the checksum matches, but the content is not a keyring of this master key"
            ) from None


def _blob_name(number: int) -> str:
    return f"{PREFIX}{number:012d}"


def _context(master: str) -> bytes:
    return b"penstock keyring " + master.encode()


async def open_encryption(journal: ShardJournal, masters: MasterKeys | None, random: Random) -> ShardEncryption | None:
    """Read or create the keyring of a shard; None without a master key. Raises EncryptionKeyError or Damaged."""
    if masters is None:
        if await journal.list_blobs(PREFIX):
            raise EncryptionKeyError(
                "the store has a keyring of encrypted queues, and the server has no key for it: start it with "
                "--encryption-key FILE, the file that the server had before"
            )
        return None
    encryption = ShardEncryption(journal, masters, random)
    await encryption.open()
    return encryption
