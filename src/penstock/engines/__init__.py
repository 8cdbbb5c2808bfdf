"""Where journals live. `open_engine(url)` imports only what the URL asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.journal.port import Engine


def open_engine(url: str, *, data_dir: str, **options: Any) -> Engine:
    """`local:` (files in `data_dir`, or `local:/another/dir`), `memory:` or `postgres://…`. `options` are those of
    `LocalEngine`."""
    scheme, _, rest = url.partition(":")
    if scheme == "local":
        from penstock.engines.local.engine import LocalEngine

        return LocalEngine(rest or data_dir, **options)
    if scheme == "memory":
        from penstock.engines.memory import MemoryEngine

        return MemoryEngine()
    if scheme in ("postgres", "postgresql"):
        try:
            from penstock.engines.postgres.engine import PostgresEngine
        except ModuleNotFoundError as error:
            raise InvalidRequest(
                f"store: {error.name} is not installed: pip install 'penstock[postgres]'", details={"field": "store"}
            ) from None
        return PostgresEngine(url)
    raise InvalidRequest(
        f"store {scheme[:32]!r} is not known: use local:, memory: or postgres://", details={"field": "store"}
    )


def without_password(url: str) -> str:
    """The URL of a store as it may be logged."""
    return re.sub(r"(//[^:/@]*):[^@/]*@", r"\1@", re.sub(r"(?<=password=)[^&]*", "***", url))
