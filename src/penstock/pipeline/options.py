"""What a user may set on a read or a write, and one clear sentence for everything that cannot be meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline.schema import TABLES

URL_DEFAULT = "http://127.0.0.1:7400"
RECORDS_PER_PARTITION_DEFAULT = 250_000
KNOWN = (
    "url", "token", "table", "queue", "startingOffset", "endingOffset", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "maxRecordsPerTrigger", "maxBytesPerTrigger", "pushdown", "payloadSchema", "jobId",
    "retryFor",
)  # fmt: skip


class PipelineError(Exception):
    """Something that the user of the pipeline can put right; the message says how."""


class OtherIncarnation(PipelineError):
    """The queue was deleted and created again: the one that was meant is gone."""


class Options:
    """Options as Spark hands them over: text, in any case."""

    def __init__(self, given: Mapping[str, str]):
        self._given = given
        known = {name.lower(): name for name in KNOWN}
        for name in given:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.85)
            if near and near[0] != name.lower():
                raise PipelineError(f"unknown option {name!r}; did you mean {known[near[0]]!r}?")
        # All of them now, on the driver: a task would be a bad place to learn of a typing error.
        for name, option in vars(Options).items():
            if isinstance(option, property) and name != "queue":
                getattr(self, name)

    @property
    def url(self) -> str:
        return self._given.get("url", URL_DEFAULT)

    @property
    def token(self) -> str | None:
        return self._given.get("token")

    @property
    def retry_for_s(self) -> float:
        """How long a task keeps trying when the broker is gone, for instance because it is restarting."""
        return float(self._positive("retryFor") or 60)

    @property
    def table(self) -> str:
        table = self._given.get("table", "messages")
        if table not in TABLES:
            raise PipelineError(f"there is no table {table!r}; choose one of {', '.join(TABLES)} (option `table`)")
        return table

    @property
    def queue(self) -> QueuePath:
        """Raises if there is none: for what is about one queue."""
        found = self.queue_or_none
        if found is None:
            raise PipelineError(f'table {self.table!r} is about one queue: say which, .option("queue", "orders")')
        return found

    @property
    def queue_or_none(self) -> QueuePath | None:
        name = self._given.get("queue")
        try:
            return None if name is None else parse_queue(name)
        except PenstockError as error:
            raise PipelineError(error.message) from None

    @property
    def starting_offset(self) -> str | dict[int, int]:
        return self._position("startingOffset", "earliest")

    @property
    def ending_offset(self) -> str | dict[int, int]:
        return self._position("endingOffset", "latest")

    @property
    def fail_on_data_loss(self) -> bool:
        return self._flag("failOnDataLoss", True)

    @property
    def pushdown(self) -> bool:
        return self._flag("pushdown", False)

    @property
    def min_partitions(self) -> int | None:
        return self._positive("minPartitions")

    @property
    def max_records_per_partition(self) -> int:
        return self._positive("maxRecordsPerPartition") or RECORDS_PER_PARTITION_DEFAULT

    @property
    def max_records_per_trigger(self) -> int | None:
        return self._positive("maxRecordsPerTrigger")

    @property
    def max_bytes_per_trigger(self) -> int | None:
        return self._positive("maxBytesPerTrigger")

    @property
    def lake(self) -> str | None:
        """Where to look for what the broker no longer has. For `seam.py` alone."""
        return self._given.get("lake")

    @property
    def holes(self) -> bool:
        """Whether to tell of what was expired or cancelled at the edges of a range. For `archive.py` alone."""
        return self._flag("holes", False)

    @property
    def queue_uuid(self) -> str | None:
        """The incarnation of the queue that must be read, and no other. For `archive.py` and `seam.py` alone."""
        return self._given.get("queueUuid")

    @property
    def payload_schema(self) -> str | None:
        return self._given.get("payloadSchema")

    @property
    def job_id(self) -> str | None:
        name = self._given.get("jobId")
        if name is not None:
            try:
                parse_queue(name)
                if "/" in name:
                    raise PenstockError("no '/'")
            except PenstockError:
                raise PipelineError(
                    f"jobId: {name!r} is not a name for a job: lower-case letters, digits and hyphens, 1 to 64"
                ) from None
        return name

    def _flag(self, name: str, default: bool) -> bool:
        text = self._given.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise PipelineError(f"{name}: {text!r} is neither true nor false")
        return text == "true"

    def _positive(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not int(text):
            raise PipelineError(f"{name}: {text!r} is not a number above 0")
        return int(text)

    def _position(self, name: str, default: str) -> str | dict[int, int]:
        text = self._given.get(name, default).strip()
        if text in ("earliest", "latest") or (text.startswith("at:") and text[3:].isdigit()):
            return text
        try:
            decoded: Any = json.loads(text)
            if isinstance(decoded, int) and decoded >= 0:
                return {0: decoded}
            named = {int(partition): offset for partition, offset in decoded.items()}
            if all(isinstance(offset, int) and offset >= 0 for offset in named.values()):
                return named
        except (ValueError, AttributeError):
            pass
        raise PipelineError(
            f"{name}: {text!r} is neither 'earliest', 'latest', 'at:<epoch milliseconds>' nor JSON like "
            '{"0": 123, "1": 456} with an offset per partition'
        )
