"""Fixtures for pytest, there as soon as Penstock is installed. What they need is loaded by the first test that asks."""

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
    """A broker in memory for this test alone; `advance(seconds)` turns its clock."""
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
