"""Log levels of a server by category."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.wire.messages import Request

Level: TypeAlias = Literal["debug", "info", "warning", "error"]

QUIET = ("requests", "connections")
"""Categories that begin at `warning`, because they have a line per request or connection at `info`."""
CATEGORIES = (*QUIET, "limits", "slow", "webhooks", "websocket", "http", "series", "server")


class LogsRequest(Request):
    levels: Annotated[
        dict[str, Level],
        Meta(max_length=len(CATEGORIES), description=f"Categories: {', '.join(CATEGORIES)}."),
    ] = msgspec.field(default_factory=dict)
    requests_per_s: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(description="Lines of requests a second; the others are counted in the next line."),
    ] = None


class LogsReply(msgspec.Struct):
    levels: dict[str, Level]
    requests_per_s: int
