"""The audit trail as the facade sees it: calls that destroy or administer, and calls that were refused.

An entry has the actor, its address, the operation, the object and the result, never a payload. The entry of a call that
was made is durable before the call returns. Refusals are noted without waiting.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from penstock.security.principal import Principal


class Origin(NamedTuple):
    """The request that a call of the facade belongs to."""

    address: str = ""
    request: str = ""
    """The id that the client gave it."""


NO_ORIGIN = Origin()
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=NO_ORIGIN)
"""Set by transports before they call the facade."""

AUDITED = frozenset(
    {
        "queues.put", "queues.patch", "queues.delete", "queues.purge", "groups.create", "groups.seek", "groups.delete",
        "dead_letters.delete", "redrives.start", "redrives.stop", "schedules.put", "schedules.remove",
        "schedules.pause", "webhooks.create", "webhooks.change", "webhooks.remove", "webhooks.pause",
        "webhooks.resume", "webhooks.rotate", "webhooks.test", "webhooks.resend", "holds.set", "holds.remove",
        "keys.create", "keys.rotate", "keys.revoke", "users.add", "users.change", "users.remove", "erasure.erase",
        "erasure.rotate",
    }
)  # fmt: skip
"""Methods of the facade whose calls are recorded, whatever becomes of them."""


class AuditTrail(Protocol):
    async def write(self, actor: Principal, operation: str, object: str, result: str) -> None:
        """Returns when the entry is durable. Raises Unavailable if it cannot be written."""

    def note(self, actor: Principal | None, operation: str, object: str, result: str) -> None:
        """Without waiting; above a rate only some entries are kept."""


def object_of(arguments: tuple[Any, ...]) -> str:
    """The name of the object that a call is about: its first argument, or the name or queue in it."""
    if not arguments:
        return ""
    first = arguments[0]
    names = (getattr(first, field, "") for field in ("name", "email", "queue"))
    return str(first if isinstance(first, str) else next(filter(None, names), ""))[:256]
