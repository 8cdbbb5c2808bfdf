"""Shell completion with names from the running server. An unreachable server yields no names and no error."""

from __future__ import annotations

import os
from typing import Any

from penstock.server.remote import Remote

TIMEOUT_S = 0.5
"""Enough for a server on this machine, short enough for an interactive shell."""
URL_DEFAULT = "http://127.0.0.1:7400"
_DEFAULT = "default/"


def complete_queue(ctx: Any, incomplete: str) -> list[str]:
    names = [_short(entry["queue"]) for entry in _listed(ctx, "list_queues", "queues", limit=500)]
    return sorted(name for name in names if name.startswith(incomplete))


def complete_running_redrive(ctx: Any, incomplete: str) -> list[str]:
    """Ids of the running redrives of the queue that precedes the argument."""
    redrives = _listed(ctx, "redrives", "redrives", queue=ctx.params.get("queue"))
    names = [entry["redrive_id"] for entry in redrives if entry["status"] == "running"]
    return sorted(name for name in names if name.startswith(incomplete))


def _listed(ctx: Any, operation: str, entries: str, **fields: object) -> list[dict[str, Any]]:
    url = ctx.params.get("url") or os.environ.get("PENSTOCK_URL") or URL_DEFAULT
    try:
        found: list[dict[str, Any]] = Remote(url, timeout_s=TIMEOUT_S).ask(operation, **fields)[entries]
    except Exception:  # an error message would break the line that the user is typing
        return []
    return found


def _short(path: str) -> str:
    """The shortest spelling of a queue path: `default/default/orders` is `orders`, `shop/default/mail` `shop/mail`."""
    namespace, task, name = path.split("/")
    if f"{task}/" != _DEFAULT:
        return path
    return name if f"{namespace}/" == _DEFAULT else f"{namespace}/{name}"
