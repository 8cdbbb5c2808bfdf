"""The principal: the identity behind a request, and everything that it may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import Forbidden, QueueNotFound
from penstock.security.buckets import Rate
from penstock.security.scopes import Scope

_BLIND_VERBS = ("metrics", "audit.read")
"""Verbs that do not make queues visible, although their pattern is `*`."""
_DECISIONS_KEPT = 1024
"""Decisions that a principal remembers; above this it forgets all and starts over."""


class Principal:
    """An API key, the subject of a JWT, a client certificate or a person. Scopes never change: a change of a key makes
    another principal."""

    __slots__ = ("__weakref__", "_decided", "expires_at_ms", "id", "kept", "kind", "name", "rate", "scopes")

    def __init__(
        self, kind: str, id: str, name: str, scopes: Sequence[Scope], expires_at_ms: int = 0, rate: Rate | None = None
    ):
        self.kind = kind
        """`key`, `jwt`, `certificate` or `user`."""
        self.id = id
        self.name = name
        self.scopes = tuple(scopes)
        self.expires_at_ms = expires_at_ms
        """0: it does not expire."""
        self.rate = rate
        """Of its requests, if it has one of its own."""
        self._decided: dict[tuple[str, str], bool] = {}
        self.kept: dict[object, Any] = {}
        """Objects for calls of this principal, by their maker. They refer to the principal, so they end with it."""

    def may(self, verb: str, queue: str) -> bool:
        """Decide once per verb and queue: most clients use few queues."""
        known = self._decided.get((verb, queue))
        if known is None:
            known = any(scope.allows(verb, queue) for scope in self.scopes)
            if len(self._decided) >= _DECISIONS_KEPT:
                self._decided.clear()
            self._decided[verb, queue] = known
        return known

    def may_see(self, queue: str) -> bool:
        """True if any scope names the queue: its settings and counts may then be read."""
        return any(scope.matches(queue) for scope in self.scopes if scope.verb not in _BLIND_VERBS)

    def has(self, verb: str) -> bool:
        """True if a scope has the verb, for any queue."""
        return any(scope.verb == verb for scope in self.scopes)

    def demand_everywhere(self, verb: str, prefix: str = "") -> None:
        """Return if the verb is allowed on all queues that begin with the prefix."""
        whole = Scope(verb, prefix, True)
        if not any(scope.covers(whole) for scope in self.scopes):
            raise Forbidden(
                f"this credential has no scope {whole}; create a key that has it", details={"scope": str(whole)}
            )

    def demand(self, verb: str, queue: str) -> None:
        """Return if the verb is allowed on the queue. Decided without looking whether the queue exists."""
        if not self.may(verb, queue):
            raise self.refusal(verb, queue)

    def refusal(self, verb: str, queue: str) -> Forbidden | QueueNotFound:
        """404 in a namespace that no scope names, as if the queue did not exist; 403 in one of the principal's own."""
        namespace = queue.partition("/")[0]
        if any(scope.touches_namespace(namespace) for scope in self.scopes if scope.verb not in _BLIND_VERBS):
            return Forbidden(
                f"this credential has no scope {verb}:{queue}; create a key that has it",
                details={"scope": f"{verb}:{queue}"},
            )
        return QueueNotFound(f"there is no queue {queue}", details={"queue": queue})

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id} {self.name!r}>"
