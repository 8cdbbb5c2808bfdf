"""The parts of a Delta log that delta-rs does not expose: all transaction identifiers, and removed files.

delta-rs looks up one transaction identifier by its name; a recount needs all names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from penstock.pipeline.options import PipelineError

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class LogContent(NamedTuple):
    transactions: dict[str, int]
    """Application id -> version: the newest of each."""
    removed: dict[str, dict[str, str]]
    """Path below the table -> partition values, of files that a later version no longer lists. Delta drops a removal
    from its log after a week, with the next checkpoint."""


def read_log(log: Path, version: int) -> LogContent:
    """The log up to a version. Raises PipelineError if an entry of it is missing."""
    transactions: dict[str, int] = {}
    removed: dict[str, dict[str, str]] = {}
    for action in _actions(log, version):
        if txn := action.get("txn"):
            transactions[txn["appId"]] = txn["version"]
        elif remove := action.get("remove"):
            removed[unquote(remove["path"])] = dict(remove["partitionValues"] or {})
        elif add := action.get("add"):
            removed.pop(unquote(add["path"]), None)
    return LogContent(transactions, removed)


def _actions(log: Path, version: int) -> Iterator[dict[str, Any]]:
    """In the order of the log: the newest checkpoint, then the entries behind it."""
    checkpoints = {int(found[1]): path for path in log.iterdir() if (found := _CHECKPOINT.fullmatch(path.name))}
    begin = max((number for number in checkpoints if number <= version), default=-1)
    if begin >= 0:
        for actions in pq.ParquetFile(checkpoints[begin]).iter_batches(columns=["txn", "remove"]):
            yield from actions.to_pylist()
    for number in range(begin + 1, version + 1):
        try:
            text = (log / f"{number:020}.json").read_text()
        except FileNotFoundError:
            raise PipelineError(
                f"{log}: entry {number} of the log is missing, so the table cannot be recounted"
            ) from None
        yield from map(json.loads, text.splitlines())
