"""Test support: an in-memory broker with a manual clock (`MemoryBroker`), and the fakes of the project's own tests.

Guide: docs/testing.md. pytest loads the fixtures `penstock_broker`, `penstock_client` and `penstock_sync_client`
automatically.
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
            f"the test broker needs the server: pip install 'penstock[server]' ({error.name} is missing)",
            name=error.name,
        ) from error
    return MemoryBroker
