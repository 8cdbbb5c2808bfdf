"""People that log in: added, changed, removed.

The machine checks identity and number. Emails, roles and passwords were checked by the facade, which knows the actor.
"""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision
from penstock.core.state import Shard
from penstock.core.state.users import StoredUser
from penstock.errors import Conflict, NotFound


def add(shard: Shard, command: commands.AddUser, now_ms: int) -> Decision:
    if command.email in shard.users:
        raise Conflict(f"there is a user {command.email} already; change the role or the password instead")
    if len(shard.users) >= limits.USERS_MAX:
        raise Conflict(f"there are {limits.USERS_MAX} users already, which is the limit; remove some")
    return Decision([records.UserSet(now_ms, *command)], None)


def change(shard: Shard, command: commands.ChangeUser, now_ms: int) -> Decision:
    user = user_of(shard, command.email)
    role, hash = command.role or user.role, command.hash or user.hash
    return Decision([records.UserSet(now_ms, user.email, role, hash, user.creator)], None)


def remove(shard: Shard, command: commands.RemoveUser, now_ms: int) -> Decision:
    user_of(shard, command.email)
    return Decision([records.UserRemoved(now_ms, command.email)], None)


def user_of(shard: Shard, email: str) -> StoredUser:
    user = shard.users.get(email)
    if user is None:
        raise user_not_found(email)
    return user


def user_not_found(email: str) -> NotFound:
    return NotFound(f"there is no user {email[:256]!r}", details={"user": email[:256]})
