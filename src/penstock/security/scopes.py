"""Scopes: `<verb>:<queue pattern>`, the permission to do one thing with some queues.

A pattern is a queue (`orders`, `shop/orders`, `shop/mail/high`, completed as queue paths are), a prefix of queue names
(`shop/orders-*`), all queues of a namespace or task (`shop/*`, `shop/mail/*`), or all queues (`*`). A wildcard stands
at the end only, so whether one scope covers another is a comparison of prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue

QUEUE_VERBS = ("publish", "consume", "peek", "dlq", "queue.admin", "webhook.admin", "key.admin")
SERVER_VERBS = ("cluster.admin", "audit.read", "metrics")
"""Verbs of the whole server: their pattern is `*`, and may be left out."""
VERBS = QUEUE_VERBS + SERVER_VERBS

_SEGMENT = limits.NAME_PATTERN.removeprefix("^").removesuffix("$")
_BELOW = re.compile(rf"({_SEGMENT}(?:/{_SEGMENT})?/)\*")


class Scope(NamedTuple):
    """One verb on the queues of one pattern."""

    verb: str
    pattern: str
    """A queue path, or a prefix of queue paths."""
    is_prefix: bool

    def allows(self, verb: str, queue: str) -> bool:
        return self.verb == verb and self.matches(queue)

    def matches(self, queue: str) -> bool:
        return queue.startswith(self.pattern) if self.is_prefix else queue == self.pattern

    def covers(self, other: Scope) -> bool:
        """True if everything that `other` allows is allowed by this scope."""
        return self.verb == other.verb and self.covers_queues(other)

    def covers_queues(self, other: Scope) -> bool:
        return other.pattern.startswith(self.pattern) if self.is_prefix else self == other._replace(verb=self.verb)

    def touches_namespace(self, namespace: str) -> bool:
        """True if this scope names a queue of the namespace."""
        start = f"{namespace}/"
        return self.pattern.startswith(start) or (self.is_prefix and start.startswith(self.pattern))

    def __str__(self) -> str:
        return f"{self.verb}:{self.pattern}{'*' if self.is_prefix else ''}"


@lru_cache(maxsize=4096)  # valid scopes only: lru_cache does not keep exceptions
def parse_scope_text(text: str) -> Scope:
    """Raises InvalidRequest with the rule."""
    verb, colon, pattern = text.partition(":")
    if verb not in VERBS:
        raise _invalid(text, f"the verb is one of {', '.join(VERBS)}")
    if verb in SERVER_VERBS:
        if (pattern if colon else "*") != "*":
            raise _invalid(text, f"{verb} is for the whole server: write {verb} or {verb}:*")
        return Scope(verb, "", True)
    if pattern == "*":
        return Scope(verb, "", True)
    below = _BELOW.fullmatch(pattern)
    if below is not None:
        return Scope(verb, below[1], True)
    try:
        # The beginning of a name is itself a name, and a wildcard inside of it is not.
        return Scope(verb, parse_queue(pattern.removesuffix("*")), pattern.endswith("*"))
    except InvalidRequest:
        raise _invalid(
            text, "after the colon comes a queue, or the beginning of queue names and one * at the end: shop/orders, "
            "shop/*, *",
        ) from None  # fmt: skip


def parse_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Distinct scopes in the given order, without those that another one covers. Raises InvalidRequest."""
    found = list(dict.fromkeys(map(parse_scope_text, texts)))
    if not 1 <= len(found) <= limits.KEY_SCOPES_MAX:
        raise InvalidRequest(
            f"scopes: a key has 1 to {limits.KEY_SCOPES_MAX} scopes, not {len(found)}", details={"field": "scopes"}
        )
    return tuple(scope for scope in found if not any(each.covers(scope) for each in found if each != scope))


def not_covered(wanted: Iterable[Scope], held: Sequence[Scope]) -> list[Scope]:
    """The scopes of `wanted` that no scope of `held` covers."""
    return [scope for scope in wanted if not any(each.covers(scope) for each in held)]


def _invalid(text: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"scope {text[:200]!r} is not <verb>:<queue pattern>; {rule}", details={"field": "scopes"})
