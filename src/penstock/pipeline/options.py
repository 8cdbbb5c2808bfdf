"""The options of a read or a write, checked on the driver; an invalid one is a PipelineError."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from penstock.errors import PenstockError
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline.offset_options import EARLIEST, BadOffset, parse_position, parse_time
from penstock.pipeline.schema import TABLES

URL_DEFAULT = "http://127.0.0.1:7400"
RECORDS_PER_PARTITION_DEFAULT = 250_000
KNOWN = (
    "url", "token", "table", "queue", "startingOffset", "endingOffset", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "maxRecordsPerTrigger", "maxBytesPerTrigger", "includeHeaders",
    "payloadSchema", "jobId", "retryFor",
)  # fmt: skip
ALIASES = {
    "startingOffset": ("startingOffsets", "startingTimestamp"),
    "endingOffset": ("endingOffsets", "endingTimestamp"),
    "maxRecordsPerTrigger": ("maxOffsetsPerTrigger",),
}
"""Names of the Kafka source."""
INTERNAL = ("lake", "holes", "queueUuid", "lakeDirectory")
"""Set by the archive and by `union`."""
OF_SPARK = ("checkpointLocation", "queryName", "outputMode", "mergeSchema", "serialization.format")
"""Options that Spark passes to every data source."""
MEANT = {
    "subscribe": "queue", "topic": "queue", "path": "queue", "kafka.bootstrap.servers": "url", "host": "url",
    "key": "token", "batch": "jobId",
}  # fmt: skip
"""Names of other sources, for the suggestion in the error."""

REMOVED = {
    "pushdown": "Spark applies filters that were pushed down for one query to the next query on the same DataFrame; "
    "choose offsets or times with startingOffset and endingOffset instead"
}
"""Former options, with the reason for their removal."""


class PipelineError(Exception):
    """An error that the user of the pipeline can correct; the message says how."""


class OtherIncarnation(PipelineError):
    """The queue was deleted and created again: the uuid is that of the deleted queue."""


class Options:
    """Options as Spark passes them: text, with names in any case."""

    def __init__(self, given: Mapping[str, str]):
        self._given = {name.lower(): value for name, value in given.items()}
        _check_names(self._given)
        for name, aliases in ALIASES.items():
            used = [each for each in (name, *aliases) if each.lower() in self._given]
            if len(used) > 1:
                raise PipelineError(f"{used[0]} and {used[1]} are the same option: give one of them")
        # Every option is parsed now, on the driver: an error in a task is hard to find.
        for name, option in vars(Options).items():
            if isinstance(option, property) and name != "queue":
                getattr(self, name)

    @property
    def url(self) -> str:
        return self._get("url", URL_DEFAULT)

    @property
    def token(self) -> str | None:
        return self._given.get("token")

    @property
    def retry_for_s(self) -> float:
        """How long a call is repeated while the broker cannot be reached, for instance because it is restarting."""
        return float(self._positive("retryFor") or 60)

    @property
    def table(self) -> str:
        table = self._get("table", "messages")
        if table not in TABLES:
            raise PipelineError(f"there is no table {table!r}; choose one of {', '.join(TABLES)} (option `table`)")
        return table

    @property
    def queue(self) -> QueuePath:
        """The queue of a table that needs one. Raises PipelineError if the option is missing."""
        found = self.queue_or_none
        if found is None:
            raise PipelineError(f'table {self.table!r} is about one queue: set .option("queue", "orders")')
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
        """`earliest`, `latest`, `at:<ms>`, or an offset per partition, -1 for latest and -2 for earliest."""
        return self._position("startingOffset", "earliest")

    @property
    def ending_offset(self) -> str | dict[int, int]:
        """As `starting_offset`; -2 is refused."""
        ending = self._position("endingOffset", "latest")
        if isinstance(ending, dict) and EARLIEST in ending.values():
            raise PipelineError("endingOffset: -2 (earliest) would end a read before its start")
        return ending

    @property
    def fail_on_data_loss(self) -> bool:
        return self._flag("failOnDataLoss", True)

    @property
    def include_headers(self) -> bool:
        return self._flag("includeHeaders", True)

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
        """The lake with the messages that the broker has removed. Only for `union.py`."""
        return self._given.get("lake")

    @property
    def holes(self) -> bool:
        """Whether a row marks expired or cancelled messages at the ends of a range. Only for `archive.py`."""
        return self._flag("holes", False)

    @property
    def queue_uuid(self) -> str | None:
        """The only incarnation of the queue that may be read. Only for `archive.py` and `union.py`."""
        return self._given.get("queueuuid")

    @property
    def payload_schema(self) -> str | None:
        return self._given.get("payloadschema")

    @property
    def job_id(self) -> str | None:
        name = self._given.get("jobid")
        if name is not None:
            try:
                parse_queue(name)
                if "/" in name:
                    raise PenstockError("no '/'")
            except PenstockError:
                raise PipelineError(
                    f"jobId: {name!r} is not a name for a job: 1 to 64 letters, digits, '-', '_' or '.'"
                ) from None
        return name

    def _get(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def _used(self, name: str) -> str:
        """The name, or the alias of it, under which the option was given."""
        return next((each for each in (name, *ALIASES.get(name, ())) if each.lower() in self._given), name)

    def _flag(self, name: str, default: bool) -> bool:
        text = self._get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise PipelineError(f"{name}: {text!r} is neither true nor false")
        return text == "true"

    def _positive(self, name: str) -> int | None:
        used = self._used(name)
        text = self._given.get(used.lower())
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not int(text):
            raise PipelineError(f"{used}: {text!r} is not a number above 0")
        return int(text)

    def _position(self, name: str, default: str) -> str | dict[int, int]:
        used = self._used(name)
        text = self._get(used, default)
        try:
            return f"at:{parse_time(text)}" if used.endswith("Timestamp") else parse_position(text, self.queue_or_none)
        except BadOffset as error:
            raise PipelineError(
                f"{used}: {text!r} is no position: {error}. It may be 'earliest', 'latest', 'at:<epoch milliseconds>', "
                'an ISO time, or JSON like {"0": 123, "1": 456} with an offset per partition'
            ) from None


def _check_names(given: Mapping[str, str]) -> None:
    """Raises PipelineError for a name that is no option, with the most similar option."""
    aliases = [alias for several in ALIASES.values() for alias in several]
    public = {name.lower(): name for name in (*KNOWN, *aliases)}
    known = {*public, *(name.lower() for name in (*INTERNAL, *OF_SPARK))}
    for name in given:
        if name in known:
            continue
        if name in REMOVED:
            raise PipelineError(f"there is no option {name!r} any more: {REMOVED[name]}")
        near = MEANT.get(name) or next(iter(difflib.get_close_matches(name, public, n=1, cutoff=0.6)), None)
        if near is None:
            raise PipelineError(f"unknown option {name!r}; the options are {', '.join(KNOWN)}")
        raise PipelineError(f"unknown option {name!r}; did you mean {public.get(near, near)!r}?")
