"""API keys: an administrator that creates, rotates and revokes them, and the ledger's model of those that exist (I20).

An answered creation or rotation is accepted after every crash, an answered revocation never again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core import records
from penstock.errors import PenstockError
from penstock.security.credentials import KeyTable
from penstock.security.secret import Secret
from penstock.wire.keys import KeyReply, KeyRequest, KeyRevokedReply, KeysReply
from sim.network import NoAnswer
from sim.violation import Violation

if TYPE_CHECKING:
    from sim.workload import Workload

HASH_KEY: Secret[bytes] = Secret(bytes(32))
_table = KeyTable(HASH_KEY)


class LedgerKeys:
    """The hashes of the accepted secrets of each key, newest first, as the journal has them."""

    def __init__(self) -> None:
        self.hashes: dict[str, list[bytes]] = {}
        self.seen: dict[str, set[bytes]] = {}
        """All secrets that a key ever had."""
        self.revoked: set[str] = set()

    def created(self, record: records.KeyCreated) -> None:
        if record.id in self.hashes or record.id in self.revoked:
            raise Violation("I20", f"key {record.id} was created twice")
        self.hashes[record.id] = [record.hash]
        self.seen[record.id] = {record.hash}

    def rotated(self, record: records.KeyRotated) -> None:
        former = self.hashes[record.id][:1] if record.until > record.at else []
        self.hashes[record.id] = [record.hash, *former]
        self.seen[record.id].add(record.hash)

    def was_revoked(self, record: records.KeyRevoked) -> None:
        del self.hashes[record.id]
        self.revoked.add(record.id)

    def check_shown(self, reply: KeyReply) -> None:
        """The answer to a creation or rotation: its secret is in the journal."""
        assert reply.key is not None
        if _table.hash(reply.key) not in self.seen.get(reply.id, ()):
            raise Violation("I20", f"key {reply.id} was answered, and its secret is not durable")

    def check_revoked(self, reply: KeyRevokedReply) -> None:
        if reply.id in self.hashes:
            raise Violation("I20", f"the revocation of key {reply.id} was answered, and is not durable")

    def check_list(self, reply: KeysReply) -> None:
        if {key.id for key in reply.keys} != set(self.hashes):
            raise Violation("I20", f"the keys are {sorted(self.hashes)}, the broker shows {reply.keys}")


class KeyAdministrator:
    """Knows the keys whose creation was answered."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._rng = workload.plan.rng("key_administrator")
        self._known: list[str] = []

    async def live(self) -> None:
        while self._workload.working():
            await asyncio.sleep(self._rng.expovariate(1 / (3 * self._workload.plan.pace)))
            if not self._known or self._rng.random() < 0.4:
                made = await self._call("keys.create", KeyRequest("sim", ["publish:sim/*"]))
                if isinstance(made, KeyReply):
                    self._known.append(made.id)
            elif self._rng.random() < 0.6:
                await self._call("keys.rotate", self._rng.choice(self._known), self._rng.choice((0, 5_000)))
            else:
                id = self._known.pop(self._rng.randrange(len(self._known)))
                await self._call("keys.revoke", id)

    async def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._workload.network.call(method, *arguments)
        except (NoAnswer, PenstockError) as error:
            return error
