"""The queues that an archive copies without being asked for them by name."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from penstock.pipeline.lake.archive import is_copied_unnamed
from penstock.pipeline.staging import NAMESPACE

KEEP = {"retention": {"mode": "keep"}}


@pytest.mark.parametrize(
    ("path", "config", "copied"),
    [
        ("default/default/orders", KEEP, True),
        ("default/default/orders", {"retention": {"mode": "until_acked"}}, False),
        ("default/default/orders", {**KEEP, "encryption": False}, True),
        ("default/default/orders", {**KEEP, "encryption": True}, False),
        (f"{NAMESPACE}/default/orders", KEEP, False),
    ],
)
def test_encrypted_queues_are_copied_only_if_they_are_named(path, config, copied):
    assert is_copied_unnamed(path, config) is copied
