"""Roles of people, as scopes on all queues."""

from __future__ import annotations

from penstock.security.scopes import VERBS, Scope, parse_scopes

_VIEWER = ("peek", "metrics")
_OPERATOR = (*_VIEWER, "publish", "consume", "dlq", "queue.admin", "webhook.admin")

ROLES: dict[str, tuple[Scope, ...]] = {
    role: parse_scopes(f"{verb}:*" for verb in verbs)
    for role, verbs in (("viewer", _VIEWER), ("operator", _OPERATOR), ("admin", VERBS))
}
