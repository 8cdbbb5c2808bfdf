"""For tests: a broker in memory whose clock you turn (`MemoryBroker`), and what the broker itself is tested with.

Guide: docs/testing.md. With pytest the fixtures `penstock_broker`, `penstock_client` and `penstock_sync_client` are
there by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.memory import MemoryBroker

__all__ = ["MemoryBroker"]


def __getattr__(name: str) -> Any:
    if name != "MemoryBroker":
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    try:
        from penstock.testing.memory import MemoryBroker
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise ModuleNotFoundError(
            f"the broker for tests is the real one: pip install 'penstock[server]' ({error.name} is missing)",
            name=error.name,
        ) from error
    return MemoryBroker
