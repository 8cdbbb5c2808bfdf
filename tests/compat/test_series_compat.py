"""Minute series that earlier versions wrote are still read."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.broker.series_block import LATENCIES, UNKNOWN, StoredBlock

V1 = Path(__file__).parent / "series-v1"


def test_blocks_of_the_first_version_have_their_values():
    expected = json.loads((V1 / "expected.json").read_text())
    (file,) = V1.glob("m-*")
    stored = StoredBlock(file.read_bytes())
    for key, rows in expected.items():
        found = {str(row.minute): row.values for row in stored.rows(key)}
        assert found == {minute: [*values, *[UNKNOWN] * len(LATENCIES)] for minute, values in rows.items()}
    again = StoredBlock(stored.open().encode())
    assert [row for key in expected for row in again.rows(key)] == [row for key in expected for row in stored.rows(key)]
