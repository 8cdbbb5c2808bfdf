"""Erasing by destroying data keys: the messages of a namespace, of a queue, or those with one message key.

After the call no file of the store has a copy that can be read: journals, segments and snapshots have ciphertext, and
the key is gone. Messages that were stored before the encryption was turned on are rewritten first. The messages end at
the same time: those that wait are cancelled, dead letters are removed. A message that a consumer holds was delivered
before, and can still be acked; it is never delivered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from itertools import product
from typing import NamedTuple, TypeAlias

from penstock import limits
from penstock.broker.confirm import Confirmations
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.decide.settling import ERASED
from penstock.core.state import Queue
from penstock.encryption.keyring import Unit, namespace_of
from penstock.encryption.master_keys import MasterKeys
from penstock.encryption.shard_encryption import ShardEncryption
from penstock.errors import Conflict, DiskFull, InvalidRequest, Unavailable
from penstock.journal.port import EngineError, OutOfSpace
from penstock.runtime.snapshots import ShardReloaded
from penstock.runtime.view import ShardView
from penstock.wire.encryption import EncryptionReply, ErasedReply

Rewrite: TypeAlias = Callable[[Callable[[str], bool]], Awaitable[tuple[bool, str]]]
"""`Upkeep.rewrite`"""


class _Found(NamedTuple):
    """The stored messages of some subjects of a queue."""

    queue: Queue
    places: list[tuple[int, int]]
    """(partition, offset)"""
    letters: list[commands.Letter]


class Erasure:
    """The encryption of one shard, as its operators use it."""

    def __init__(self, view: ShardView, submit: Submit, confirmations: Confirmations, rewrite: Rewrite):
        self._view = view
        self._rewrite = rewrite
        self._rewritten: set[int] = set()
        """Queues without plaintext in the store: there will be none."""
        self._submit = submit
        self._confirmations = confirmations
        self.read_masters: Callable[[], MasterKeys] | None = None
        """Reads the master keys again; set by the server that has them."""

    def status(self) -> EncryptionReply:
        encryption = self._view.encryption
        queues = [queue.path for queue in self._view.queues() if queue.config.encryption]
        if encryption is None:
            return EncryptionReply(False, None, 0, len(queues), self._view.new_queue.encryption)
        return EncryptionReply(
            True, encryption.master_id, encryption.generation, len(queues), self._view.new_queue.encryption
        )

    async def rotate(self) -> EncryptionReply:
        """Read the master keys again and rewrap the data keys by the first of them. Messages stay as they are."""
        encryption = self._encryption()
        if self.read_masters is None:
            raise Conflict("this server was started with a fixed encryption key; it has no file to read again")
        await _stored(encryption.rewrap(self.read_masters()))
        return self.status()

    async def erase(self, target: str, *, keys: Sequence[str] | None = None, confirm: str | None = None) -> ErasedReply:
        """`target` is the path of a queue, or a namespace followed by `/*`; with `keys`, of the messages that have one
        of them as their key. Raises Conflict with a token, and needs it as `confirm`."""
        encryption = self._encryption()
        queues = self._queues(target)
        if keys is not None and not 1 <= len(keys) <= limits.ERASED_KEYS_MAX:
            raise InvalidRequest(f"keys: 1 to {limits.ERASED_KEYS_MAX} of them", details={"field": "keys"})
        subjects = None if keys is None else [key.encode() for key in dict.fromkeys(keys)]
        await self._view.settled()
        found = [await self._find(queue, subjects) for queue in queues]
        messages, letters = _counts(found, subjects)
        self._confirmations.demand(
            "erase", f"{target}\0{_digest(keys)}", confirm, self._view.now_ms(),
            {"queues": len(queues), "messages": messages, "dead_letters": letters},
            target if keys is None else f"{len(keys)} message keys of {target}",
        )  # fmt: skip
        if await self._rewrite_plaintext(target, queues):
            found = [await self._find(queue, subjects) for queue in queues]
        pending = []

        def settle() -> None:
            self._view.log.forget([queue.number for queue in queues])
            for each in found:
                if self._view.queue_numbered(each.queue.number) is None:
                    continue  # deleted meanwhile
                if subjects is None:
                    pending.append(self._submit(commands.PurgeQueue(each.queue.number)))
                else:
                    pending.append(self._submit(commands.Cancel(each.queue.number, each.places)))
                    pending.append(self._submit(commands.DeleteLetters(each.queue.number, each.letters)))

        await _stored(encryption.erase(_units(target, queues, subjects), settle))
        for each in pending:
            await each
        # Records that were on their way to the disk meanwhile were encrypted under the former keys.
        await self._view.settled()
        self._view.log.forget([queue.number for queue in queues])
        for queue in queues:
            await self._delete_letters(queue)
        return ErasedReply(target, len(queues), messages, letters, encryption.generation)

    async def _rewrite_plaintext(self, target: str, queues: Sequence[Queue]) -> bool:
        """Encrypt what is stored in plaintext. Returns whether there was some; raises Conflict if it cannot be removed.

        Once for each queue in the life of a process: what comes later is encrypted. What queues of a namespace left
        that were deleted is searched each time."""
        namespace = target.removesuffix("/*")
        if namespace == target and queues[0].number in self._rewritten:
            return False
        try:
            copied, left = await self._rewrite(
                lambda path: path == target if namespace == target else namespace_of(path) == namespace
            )
        except ShardReloaded:
            raise Unavailable("the shard was read again; repeat the call", retry_after_ms=1_000) from None
        except OutOfSpace as error:
            raise DiskFull(
                f"there is no room to encrypt the messages of {target} that are stored in plaintext, and nothing was "
                f"erased: {error}",
                retry_after_ms=5_000,
            ) from None
        except (EngineError, OSError) as error:
            raise Unavailable(f"the store cannot be searched for plaintext: {error}", retry_after_ms=1_000) from None
        if left:
            holds = [hold.name for hold in self._view.holds().values() if hold.index and not hold.lost_at]
            advice = (
                f"`penstock holds remove {holds[0]}`, or wait until its archive has copied the journal"
                if holds
                else "purge the queue and delete its dead letters, among which are damaged ones"
            )
            raise Conflict(
                f"nothing was erased: messages of {target} from before the encryption was turned on are stored in "
                f"plaintext and cannot be rewritten now ({left}); {advice}, then repeat the call",
                details={"queue": target, "holds": holds},
            )
        self._rewritten.update(queue.number for queue in queues)
        return copied

    async def _delete_letters(self, queue: Queue) -> None:
        """Delete the dead letters whose messages were erased, by this call or by one that was not finished."""
        for number, partition in enumerate(queue.partitions):
            for offset in sorted(partition.dead.offsets()):
                if self._view.queue_numbered(queue.number) is not queue:
                    return  # deleted meanwhile
                if any(
                    problem == ERASED
                    for *_, problem in self._view.log.damaged(queue.number, number, offset, offset + 1)
                ):
                    await self._submit(commands.DeleteLetters(queue.number, _letters_at(queue, number, offset)))
                await self._view.give_way()

    def _encryption(self) -> ShardEncryption:
        if self._view.encryption is None:
            raise Conflict("this server has no encryption key, so nothing is encrypted; purge or delete queues instead")
        return self._view.encryption

    def _queues(self, target: str) -> list[Queue]:
        """The encrypted queues of a target. Raises QueueNotFound, or Conflict if a queue is not encrypted."""
        if not target.endswith("/*"):
            queue = self._view.queue(target)
            if not queue.config.encryption:
                raise Conflict(
                    f"queue {target} is not encrypted: its messages have no key that could be destroyed; purge it, or "
                    "delete it",
                    details={"queue": target},
                )
            return [queue]
        namespace = target.removesuffix("/*")
        return [
            queue for queue in self._view.queues() if queue.config.encryption and namespace_of(queue.path) == namespace
        ]

    async def _find(self, queue: Queue, subjects: Sequence[bytes] | None) -> _Found:
        """The messages of these subjects; without subjects nothing is looked for, because all will end."""
        places: list[tuple[int, int]] = []
        letters: list[commands.Letter] = []
        for subject, number in product(subjects or (), range(len(queue.partitions))):
            for offset in await self._offsets(queue, number, subject):
                places.append((number, offset))
                letters += _letters_at(queue, number, offset)
        return _Found(queue, places, letters)

    async def _offsets(self, queue: Queue, number: int, subject: bytes) -> list[int]:
        found: list[int] = []
        partition = queue.partitions[number]
        first = min((*partition.dead.offsets(), partition.start))  # dead letters may be all that is left of the log
        for match in self._view.log.keys.find(queue.number, number, subject, first):
            if match is None:
                await self._view.give_way()
            else:
                found.append(match[1])
        return found


def _letters_at(queue: Queue, number: int, offset: int) -> list[commands.Letter]:
    """The dead letters of a message, of all groups."""
    dead = queue.partitions[number].dead
    found = [(group, dead.get(group, offset)) for group in dead.groups()]
    return [commands.Letter(number, group, offset, letter.dead_at) for group, letter in found if letter is not None]


def _counts(found: Sequence[_Found], subjects: Sequence[bytes] | None) -> tuple[int, int]:
    """Messages that wait, and dead letters, that an erasure ends."""
    if subjects is None:
        return sum(each.queue.depth() for each in found), sum(each.queue.dead_letters() for each in found)
    return sum(len(each.places) for each in found), sum(len(each.letters) for each in found)


def _units(target: str, queues: Sequence[Queue], subjects: Sequence[bytes] | None) -> list[Unit]:
    if subjects is not None:
        return [Unit(namespace_of(each.path), each.path, subject) for each in queues for subject in subjects]
    if target.endswith("/*"):
        # The namespace as a whole: also what is left of queues that were deleted.
        return [Unit(target.removesuffix("/*"))]
    return [Unit(namespace_of(target), target)]


def _digest(keys: Sequence[str] | None) -> str:
    return "" if keys is None else sha256("\0".join(sorted(set(keys))).encode()).hexdigest()


async def _stored(change: Awaitable[None]) -> None:
    """A change of the keyring, with the errors of the interface."""
    try:
        await change
    except OutOfSpace as error:
        raise DiskFull(f"the keyring cannot be stored: {error}", retry_after_ms=5_000) from None
    except (EngineError, OSError) as error:
        raise Unavailable(f"the keyring cannot be stored: {error}", retry_after_ms=1_000) from None
