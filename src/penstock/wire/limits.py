"""Limits of addresses, keys, namespaces and queues in replies."""

from __future__ import annotations

import msgspec


class AccessLimitsReply(msgspec.Struct):
    limits: dict[str, int | str | None]
    """By name: a rate like `1000/s`, a number, or null or 0 for none. Each is a setting `limit_<name>`."""
    refused: dict[str, int]
    """Requests that each limit refused since the start."""
