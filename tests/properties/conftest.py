"""Shared fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.core.offsets import ranges


@pytest.fixture(scope="session", autouse=True)
def sets_of_offsets_crumble_early() -> Iterator[None]:
    """Models are small: with the real number no set would ever be kept as bits, with this one all are now and then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "CRUMBS", 3)
        yield
