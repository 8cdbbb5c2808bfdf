"""Where journals live. `open_engine(url)` imports only what the URL asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.journal.port import Engine


def open_engine(url: str, *, data_dir: str, **options: Any) -> Engine:
    """`local:` (files in `data_dir`, or `local:/another/dir`) or `memory:`."""
    scheme, _, rest = url.partition(":")
    if scheme == "local":
        from penstock.engines.local.engine import LocalEngine

        return LocalEngine(rest or data_dir, **options)
    if scheme == "memory":
        from penstock.engines.memory import MemoryEngine

        return MemoryEngine()
    raise InvalidRequest(f"store {url!r} is not known: use local: or memory:", details={"field": "store"})
