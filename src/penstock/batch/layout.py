"""Constants of the batch frame, shared by its readers and writers. Grammar: docs/formats/batch.md."""

from __future__ import annotations

import struct
import sys

# Columns are views of the frame's bytes; on a big-endian machine every view would have to be a copy.
assert sys.byteorder == "little", "Penstock runs on little-endian machines"

HEADER = struct.Struct("<2sBBIII")
MAGIC = b"PB"
VERSION = 1

KIND_BYTES = 0
KIND_JSON = 1
KIND_MIXED = 2
KIND_MASK = 3
FLAG_CHECKED = 4

PRIORITY = 1 << 0
DELAY_MS = 1 << 1
DELIVER_AT_MS = 1 << 2
TTL_MS = 1 << 3
MAX_RETRIES = 1 << 8
PAYLOAD_KIND = 1 << 12
HAS_PRIORITY = 1 << 13
KEY = 1 << 16
ID = 1 << 17
HEADERS = 1 << 18
TENANT = 1 << 19

KNOWN = (
    PRIORITY | DELAY_MS | DELIVER_AT_MS | TTL_MS | MAX_RETRIES | PAYLOAD_KIND | HAS_PRIORITY | KEY | ID | HEADERS
    | TENANT
)  # fmt: skip
VAR_SHIFT = 16

DELIVERY_HEADER = struct.Struct("<2sBBI")
DELIVERY_MAGIC = b"PD"
DELIVERY_VERSION = 1


def fixed_width(bit: int) -> int:
    """Bytes per value of the fixed column with this bit number (0–15)."""
    return 8 if bit < 8 else 4 if bit < 12 else 1
