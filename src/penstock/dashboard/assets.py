"""Scripts and style sheets. Their URLs carry a hash of their content, so browsers keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8", ".svg": b"image/svg+xml"}


class Asset(NamedTuple):
    body: bytes
    compressed: bytes
    content_type: bytes
    hash: str


@cache
def assets() -> dict[str, Asset]:
    """All assets by file name; read and compressed at first use."""
    found = {}
    for file in files("penstock.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _TYPES:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            found[file.name] = Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[suffix], digest)
    return found


def asset_url(name: str) -> str:
    return f"/ui/static/{name}?{assets()[name].hash}"
