"""The directory of a lake. Object stores are refused: a lake needs files that can be renamed and synced."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import InvalidRequest

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def lake_directory(given: Path | str) -> Path:
    """The absolute path of a directory, or of a URL `file:///…`. Raises InvalidRequest for other URLs."""
    text = str(given)
    found = _URL.match(text)
    if found is None:
        return Path(text).absolute()
    if found[1].lower() == "file":
        return Path("/" + text[len(found[0]) :].lstrip("/"))
    raise InvalidRequest(
        f"{given} is not a directory: a lake is a directory on a file system, which driver and executors share; object "
        "stores are not supported. Mount the bucket, or copy the lake there after each run",
        details={"field": "lake"},
    )
