"""People that log in: an administrator that adds, changes and removes them, and the ledger's model of them (I22).

An answered addition or change is there after every crash, an answered removal is final.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, get_args

from penstock.core import records
from penstock.errors import PenstockError
from penstock.wire.users import Role, UserChanges, UserRemovedReply, UserReply, UserRequest, UsersReply
from sim.network import NoAnswer
from sim.violation import Violation

if TYPE_CHECKING:
    from sim.workload import Workload

NAMES = tuple(f"person{number}@example.com" for number in range(4))
ROLES: tuple[Role, ...] = get_args(Role)


class PlainPasswords:
    """Hashes of passwords that cost nothing: their strength is not the subject here."""

    async def hash(self, password: str) -> str:
        return f"plain {password}"


class LedgerUsers:
    """The people of the journal, with role and hash."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str]] = {}
        self.states: dict[str, set[str]] = {}
        """All roles that a person ever had."""
        self.removals: dict[str, int] = {}

    def set(self, record: records.UserSet) -> None:
        self.known[record.email] = record.role, record.hash
        self.states.setdefault(record.email, set()).add(record.role)

    def removed(self, record: records.UserRemoved) -> None:
        if self.known.pop(record.email, None) is None:
            raise Violation("I22", f"{record.email} was removed twice")
        self.removals[record.email] = self.removals.get(record.email, 0) + 1

    def check_shown(self, reply: UserReply) -> None:
        """The answer to an addition or a change."""
        if reply.role not in self.states.get(reply.email, ()):
            raise Violation("I22", f"{reply.email} was answered as {reply.role}, which is not durable")

    def check_removed(self, reply: UserRemovedReply) -> None:
        if reply.email not in self.removals:
            raise Violation("I22", f"the removal of {reply.email} was answered, and is not durable")

    def check_list(self, reply: UsersReply) -> None:
        shown = {user.email: user.role for user in reply.users}
        if shown != {email: role for email, (role, _) in self.known.items()}:
            raise Violation("I22", f"the people are {sorted(self.known)}, the broker shows {reply.users}")


class UserAdministrator:
    def __init__(self, workload: Workload):
        self._workload = workload
        self._rng = workload.plan.rng("user_administrator")

    async def live(self) -> None:
        rng = self._rng
        while self._workload.working():
            await asyncio.sleep(rng.expovariate(1 / (3 * self._workload.plan.pace)))
            email, role = rng.choice(NAMES), rng.choice(ROLES)
            password = f"password {rng.randrange(100):08}"
            choice = rng.random()
            if choice < 0.5:
                await self._call("users.add", UserRequest(email, role, password))
            elif choice < 0.8:
                await self._call("users.change", email, UserChanges(role=role))
            else:
                await self._call("users.remove", email)

    async def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._workload.network.call(method, *arguments)
        except (NoAnswer, PenstockError) as error:
            return error
