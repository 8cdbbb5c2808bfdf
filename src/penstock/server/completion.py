"""Names for the shell's completion, from the running server. No server, no names, and never an error."""

from __future__ import annotations

import os
from typing import Any

from penstock.server.remote import Remote

TIMEOUT_S = 0.5
"""Longer than a server on this machine takes, shorter than a person at the keyboard waits."""
URL_DEFAULT = "http://127.0.0.1:7400"
_DEFAULT = "default/"


def complete_queue(ctx: Any, incomplete: str) -> list[str]:
    names = [_short(entry["queue"]) for entry in _listed(ctx, "/v1/queues", "queues", limit=500)]
    return sorted(name for name in names if name.startswith(incomplete))


def complete_running_redrive(ctx: Any, incomplete: str) -> list[str]:
    """Of the queue that stands before it."""
    redrives = _listed(ctx, "/v1/dlq/redrives", "redrives", queue=ctx.params.get("queue"))
    names = [entry["redrive_id"] for entry in redrives if entry["status"] == "running"]
    return sorted(name for name in names if name.startswith(incomplete))


def _listed(ctx: Any, path: str, entries: str, **query: object) -> list[dict[str, Any]]:
    url = ctx.params.get("url") or os.environ.get("PENSTOCK_URL") or URL_DEFAULT
    try:
        found: list[dict[str, Any]] = Remote(url, timeout_s=TIMEOUT_S).get(path, **query)[entries]
    except Exception:  # whatever it is, a shell in the middle of a line is not the place to tell
        return []
    return found


def _short(path: str) -> str:
    """As a person would type it: `default/default/orders` is `orders`, `shop/default/mail` is `shop/mail`."""
    namespace, task, name = path.split("/")
    if f"{task}/" != _DEFAULT:
        return path
    return name if f"{namespace}/" == _DEFAULT else f"{namespace}/{name}"
