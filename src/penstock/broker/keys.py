"""API keys as their administrators see them. The secret of a key is shown once, when it is created or rotated.

A principal sees the keys whose queues are within its `key.admin` scopes; others do not exist for it. It creates and
rotates keys with at most its own scopes: a rotation returns a secret that can do everything that the key can do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from penstock import limits
from penstock.broker.types import Entropy, Submit
from penstock.core import commands
from penstock.core.decide.keys import key_not_found
from penstock.core.state.keys import StoredKey
from penstock.errors import Forbidden, InvalidRequest
from penstock.runtime.view import ShardView
from penstock.security.buckets import parse_rate
from penstock.security.credentials import KeyEntry, KeyTable
from penstock.security.keys import ApiKey
from penstock.security.principal import Principal
from penstock.security.scopes import VERBS, Scope, not_covered, parse_scope_text, parse_scopes
from penstock.wire.keys import KeyReply, KeyRequest, KeyRevokedReply, KeysReply

_NAME = re.compile(limits.KEY_NAME_PATTERN)
_CERTIFICATE_NAME = re.compile(r"(?i:.*://.*|urn:.*|[a-z0-9_-]+(\.[a-z0-9_-]+)+)")
"""URI and DNS names. A certificate with such a name acts as the keys of that name."""


class Keys:
    """The keys of one shard. Without a table of accepted keys the server checks none, and creates none."""

    def __init__(self, view: ShardView, submit: Submit, entropy: Entropy):
        self._view = view
        self._submit = submit
        self._entropy = entropy
        self._table: KeyTable | None = None
        self._on_ended: Callable[[Sequence[Principal]], None] = lambda _: None
        self._followed: dict[str, StoredKey] = {}
        """The keys that the table has."""
        self._named: dict[str, set[str]] = {}
        """Name -> ids of the keys that the table has."""
        self._last_used: dict[str, int] = {}
        """Soft: the time of the last use since the start, by id."""

    def attach(self, table: KeyTable, on_ended: Callable[[Sequence[Principal]], None]) -> None:
        """Keep the table of accepted keys up to date; `on_ended` gets the principals that are accepted no longer."""
        self._table, self._on_ended = table, on_ended
        self._follow()

    def used(self, id: str, now_ms: int) -> None:
        self._last_used[id] = now_ms

    async def create(self, asked: KeyRequest, by: Principal | None = None) -> KeyReply:
        """With its secret. `by` is the creator; None is the server itself, which may give any scope."""
        table = self._required_table()
        if not _NAME.fullmatch(asked.name):
            raise InvalidRequest(
                f"name {asked.name[:100]!r} is not a name for a key: 1 to 256 letters, digits, '.', '_', ':', '@', '/' "
                "or '-', beginning with a letter or digit",
                details={"field": "name"},
            )
        scopes = parse_scopes(asked.scopes)
        rate = str(parse_rate(asked.rate)) if asked.rate is not None else ""
        expires_at = asked.expires_at_ms or 0
        if expires_at and expires_at <= self._view.now_ms():
            raise InvalidRequest("expires_at_ms is in the past", details={"field": "expires_at_ms"})
        _check_covered(scopes, by)
        if by is not None and _CERTIFICATE_NAME.fullmatch(asked.name):
            _check_certificates(asked.name, by)
        key = ApiKey.new(randbits=self._entropy)
        command = commands.CreateKey(
            key.id, asked.name, [str(scope) for scope in scopes], table.hash(key.text.reveal()), expires_at, rate,
            by.id if by is not None else "",
        )  # fmt: skip
        await self._submit(command)
        return self._changed(key)

    async def rotate(self, id: str, overlap_ms: int, by: Principal | None = None) -> KeyReply:
        """With the new secret. The former one is accepted as well for `overlap_ms`."""
        table = self._required_table()
        _check_covered(_scopes_of(self._visible(id, by)), by)
        key = ApiKey.new(id, self._entropy)
        await self._submit(commands.RotateKey(id, table.hash(key.text.reveal()), overlap_ms))
        return self._changed(key)

    async def revoke(self, id: str, by: Principal | None = None) -> KeyRevokedReply:
        """The key is accepted no longer when this returns, and its streams end."""
        self._visible(id, by)
        await self._submit(commands.RevokeKey(id))
        self._follow()
        return KeyRevokedReply(id, True)

    async def bootstrap(self, write: Callable[[str], None]) -> bool:
        """Create the first key, with all scopes. False if there is a key already.

        `write` stores its text durably, before the key exists: a crash in between must not lock everything out.
        """
        if self._view.keys():
            return False
        key = ApiKey.new(randbits=self._entropy)
        write(key.text.reveal())
        scopes = [f"{verb}:*" for verb in VERBS]
        hash = self._required_table().hash(key.text.reveal())
        await self._submit(commands.CreateKey(key.id, "bootstrap", scopes, hash))
        self._follow()
        return True

    def certificate_entries(self, names: Sequence[str]) -> list[tuple[StoredKey, tuple[Scope, ...]]]:
        """The keys whose name is one of these names of a client certificate. A name of another form, which any
        administrator of keys may use, is no identity."""
        wanted = {name for name in names if _CERTIFICATE_NAME.fullmatch(name)}
        ids = sorted({id for name in wanted for id in self._named.get(name, ())})
        return [(self._followed[id], _scopes_of(self._followed[id])) for id in ids]

    def list(self, by: Principal | None = None) -> KeysReply:
        found = sorted(self._view.keys().values(), key=lambda key: (key.name, key.id))
        return KeysReply([self._shown(key) for key in found if _sees(by, key)])

    def _required_table(self) -> KeyTable:
        if self._table is None:
            raise Forbidden("this server checks no keys; start it with --auth keys")
        return self._table

    def _visible(self, id: str, by: Principal | None) -> StoredKey:
        key = self._view.key(id)
        if not _sees(by, key):
            raise key_not_found(id)
        return key

    def _changed(self, key: ApiKey) -> KeyReply:
        self._follow()
        shown = self._shown(self._view.key(key.id))
        shown.key = key.text.reveal()
        return shown

    def _follow(self) -> None:
        """Bring the table up to date. A key that has not changed costs a look."""
        if self._table is None:
            return
        keys, ended = self._view.keys(), list[Principal]()
        for key in [key for id, key in self._followed.items() if id not in keys]:
            ended += self._table.forget(key.id)
            self._last_used.pop(key.id, None)
            self._named[key.name].discard(key.id)
            if not self._named[key.name]:
                del self._named[key.name]
        for key in [key for id, key in keys.items() if self._followed.get(id) is not key]:
            ended += self._table.accept(_entry(key))
            self._named.setdefault(key.name, set()).add(key.id)
        self._followed = dict(keys)
        self._on_ended(ended)

    def _shown(self, key: StoredKey) -> KeyReply:
        former = [secret.until for secret in key.secrets if secret.until > self._view.now_ms()]
        return KeyReply(
            key.id, key.name, key.scopes, key.created_at, key.expires_at or None, key.rate or None, key.creator or None,
            key.rotated_at or None, former[0] if former else None, self._last_used.get(key.id),
        )  # fmt: skip


def _entry(key: StoredKey) -> KeyEntry:
    """A secret ends at the end of its overlap or with its key, whichever is first."""
    hashes = tuple(
        (secret.hash, min([time for time in (secret.until, key.expires_at) if time], default=0))
        for secret in key.secrets
    )
    return KeyEntry(key.id, key.name, _scopes_of(key), hashes, parse_rate(key.rate) if key.rate else None)


def _scopes_of(key: StoredKey) -> tuple[Scope, ...]:
    return tuple(map(parse_scope_text, key.scopes))


def _sees(by: Principal | None, key: StoredKey) -> bool:
    if by is None:
        return True
    held = [scope for scope in by.scopes if scope.verb == "key.admin"]
    return all(any(each.covers_queues(scope) for each in held) for scope in _scopes_of(key))


def _check_certificates(name: str, by: Principal) -> None:
    """Raises Forbidden: certificates are of the whole server, so a tenant must not give scopes to those of another."""
    try:
        by.demand_everywhere("key.admin")
    except Forbidden:
        raise Forbidden(
            f"a client certificate can have the name {name}; only key.admin:* makes keys of URI and DNS names",
            details={"field": "name", "scope": "key.admin:*"},
        ) from None


def _check_covered(wanted: Sequence[Scope], by: Principal | None) -> None:
    if by is None:
        return
    outside = [
        scope for scope in wanted if not any(own.verb == "key.admin" and own.covers_queues(scope) for own in by.scopes)
    ]
    if outside:
        shown = ", ".join(map(str, outside))
        raise Forbidden(
            f"the queues of {shown} are outside of the key.admin scope of the credential that makes the key",
            details={"scopes": [str(scope) for scope in outside]},
        )
    missing = not_covered(wanted, by.scopes)
    if missing:
        shown = ", ".join(map(str, missing))
        raise Forbidden(
            f"a key can have at most the scopes of the credential that creates or rotates it, which lacks {shown}",
            details={"scopes": [str(scope) for scope in missing]},
        )
