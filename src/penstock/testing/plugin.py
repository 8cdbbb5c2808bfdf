"""The pytest plugin: its fixtures are available when Penstock is installed. The broker is imported on first
use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.sync import Client as SyncClient
    from penstock.testing.memory import MemoryBroker


@pytest.fixture
def penstock_broker() -> Iterator[MemoryBroker]:
    """An in-memory broker for one test; `advance(seconds)` advances its clock."""
    from penstock.testing import MemoryBroker

    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def penstock_client(penstock_broker: MemoryBroker) -> Client:
    """A `penstock.Client` of this test's broker, for the event loop that first uses it."""
    return penstock_broker.client()


@pytest.fixture
def penstock_sync_client(penstock_broker: MemoryBroker) -> Iterator[SyncClient]:
    """A `penstock.sync.Client` of this test's broker."""
    with penstock_broker.sync_client() as client:
        yield client
