"""Exactly-once writes: tasks stage frames, the commit publishes them. Reasons: docs/adr/0021.

A task that Spark repeats may have its rows in another order, or other rows, so a task must not publish. Each job has
queues of its own in the broker:

    spark-sink/<job>/batch-<n>    the staged frames of batch *n*, in pieces that fit into a payload
    spark-sink/<job>/commits      one *manifest* per batch, followed by a *done*

The commit first makes the manifest durable: the list of the frames that the successful tasks have staged. Only the
first manifest of a batch counts; a repeated commit continues with it. Then the staged frames are published in its
order, as producer `spark:<job>:<task>`, epoch *n*, numbered by row, so that the broker recognises duplicates. Then
`done` is published, and the stage is deleted.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.batch import build, layout
from penstock.client import lowlevel as calls
from penstock.client.lowlevel import EPOCH, new_producer
from penstock.errors import Conflict, PenstockError, QueueNotFound
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.options import PipelineError
from penstock.pipeline.outgoing import Outgoing

NAMESPACE = "spark-sink"
PIECE_BYTES = limits.PAYLOAD_BYTES_MAX
COMMITS_LOOKED_AT = 100
LATE_TASKS_S = 3.0
"""Spark ends the tasks of a failed job within `spark.python.task.killTimeout`, 2 s; until then they stage frames."""
COMMITS_CONFIG = {"retention": {"mode": "keep", "ms": 90 * 86_400_000}}


class Staged(NamedTuple):
    """A staged frame."""

    offset: int
    pieces: int
    rows: int
    queue: str


class Manifest(msgspec.Struct):
    """The content of a batch: the staged frames of each task, in order."""

    batch: int
    done: bool = False
    tasks: list[tuple[int, list[Staged]]] = []


_decode = msgspec.json.Decoder(Manifest).decode
_encode = msgspec.json.Encoder().encode


class Stage:
    """The stage of one batch, for one attempt of a task."""

    def __init__(self, broker: BrokerCalls, job: str, batch: int):
        self._broker = broker
        self._path = stage_of(job, batch)
        self._producer = new_producer()
        self._pieces = 0

    def put(self, outgoing: Outgoing) -> Staged:
        """Durable when it returns."""
        if not self._pieces:
            self._broker.ask_patiently(calls.operation("put_queue", dict[str, Any], queue=self._path, body={}))
        view = memoryview(outgoing.frame)
        pieces = [bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES)]
        number = calls.ProducerSeq(self._producer, EPOCH, self._pieces)
        reply = self._broker.ask_patiently(calls.publish(self._path, build(pieces, kind=layout.KIND_BYTES), number))
        self._pieces += len(pieces)
        return Staged(reply.runs[0].offset, len(pieces), outgoing.rows, outgoing.queue)


class Commit:
    """The commit of one batch. It is idempotent, in any process."""

    def __init__(self, broker: BrokerCalls, job: str, batch: int):
        self._broker = broker
        self._job = job
        self._batch = batch
        self._stage = stage_of(job, batch)
        self._log = parse_queue(f"{NAMESPACE}/{job}/commits")

    def publish(self, tasks: Sequence[tuple[int, list[Staged]]]) -> None:
        """When it returns, the messages of the batch are in their queues, once."""
        manifest = self._known()
        if manifest is None:
            manifest = self._decide(Manifest(self._batch, tasks=[(task, staged) for task, staged in tasks if staged]))
        if not manifest.done:
            self._publish(manifest)
            self._note(Manifest(self._batch, done=True), f"done-{self._batch}")
        self._drop(self._stage)

    def give_up(self, *, late_tasks: bool) -> None:
        """Delete the stage of a failed batch, unless its manifest is durable.

        `late_tasks`: some tasks may still be running, and create the stage again after it was deleted.
        """
        until = time.monotonic() + (LATE_TASKS_S if late_tasks else 0)
        with contextlib.suppress(PipelineError):
            if self._known() is not None:
                return
            self._drop(self._stage)
            while time.monotonic() < until:
                time.sleep(LATE_TASKS_S / 20)
                self._drop(self._stage)

    def forget(self) -> None:
        """Delete the log of commits: the job will not be repeated."""
        self._drop(self._log)

    # -- the manifest -------------------------------------------------------------------------------------------------

    def _known(self) -> Manifest | None:
        """The first manifest of this batch, or its `done`; None if there is neither."""
        extent = self._try(bulk.extent(self._log))
        if extent is None:
            return None
        (partition,) = extent.partitions
        first = max(partition.start_offset, partition.end_offset - COMMITS_LOOKED_AT)
        found = [each for each in self._entries(first, partition.end_offset) if each.batch == self._batch]
        return next((each for each in found if each.done), found[0] if found else None)

    def _decide(self, manifest: Manifest) -> Manifest:
        """Make the manifest durable; returns the first manifest of the batch, which may be an earlier one."""
        self._broker.ask_patiently(calls.operation("put_queue", dict[str, Any], queue=self._log, body=COMMITS_CONFIG))
        offset, is_first = self._note(manifest, f"manifest-{self._batch}")
        return manifest if is_first else next(self._entries(offset, offset + 1))

    def _note(self, entry: Manifest, name: str) -> tuple[int, bool]:
        """(offset, True if it is the first of this name)."""
        text = _encode(entry)
        if len(text) > limits.PAYLOAD_BYTES_MAX:
            raise PipelineError(
                f"batch {self._batch} has {sum(len(staged) for _, staged in entry.tasks)} parts, too many for one "
                "commit: write fewer rows at a time (maxRecordsPerTrigger)"
            )
        frame = build([text], columns={layout.ID: [name.encode()]})
        reply = self._broker.ask_patiently(
            calls.publish(self._log, frame, calls.ProducerSeq(new_producer(), EPOCH, 0))
        )  # fmt: skip
        return reply.runs[0].offset, not reply.runs[0].duplicate

    def _entries(self, first: int, stop: int) -> Iterator[Manifest]:
        while first < stop:
            meta, batches = self._broker.ask_patiently(
                bulk.read_range(self._log, 0, first, stop, max_bytes=limits.LEASE_REPLY_BYTES_MAX)
            )
            for batch in batches:
                yield from map(_decode, batch.payloads())
            if meta.next_offset <= first:
                return
            first = meta.next_offset

    # -- the messages -------------------------------------------------------------------------------------------------

    def _publish(self, manifest: Manifest) -> None:
        """Publish the staged frames; the next frame is read while one is published."""
        staged = [(task, each) for task, parts in manifest.tasks for each in parts]
        published: defaultdict[tuple[int, str], int] = defaultdict(int)
        with ThreadPoolExecutor(1) as ahead:
            coming: Future[bytes] | None = None
            for number, (task, part) in enumerate(staged):
                frame = coming.result() if coming is not None else self._frame(part)
                coming = ahead.submit(self._frame, staged[number + 1][1]) if number + 1 < len(staged) else None
                first = published[task, part.queue]
                published[task, part.queue] += part.rows
                self._send(parse_queue(part.queue), frame, f"spark:{self._job}:{task}", first)

    def _send(self, queue: QueuePath, frame: bytes, producer: str, first: int) -> None:
        call = calls.publish(queue, frame, calls.ProducerSeq(producer, self._batch, first))
        try:
            self._broker.ask_raw(call)
        except Conflict as error:
            if "seq" not in error.details:
                raise PipelineError(f"queue {queue} does not take batch {self._batch}: {error.message}") from None
            # The broker has this sequence number, but no longer the message id: the frame was stored.
        except PenstockError as error:
            raise PipelineError(f"queue {queue} does not take batch {self._batch}: {error.message}") from None

    def _frame(self, part: Staged) -> bytes:
        pieces: list[bytes] = []
        at, stop = part.offset, part.offset + part.pieces
        while at < stop:
            meta, batches = self._broker.ask_patiently(
                bulk.read_range(self._stage, 0, at, stop, max_bytes=limits.LEASE_REPLY_BYTES_MAX)
            )
            pieces += [payload for batch in batches for payload in batch.payloads()]
            if meta.next_offset <= at or meta.skipped:
                raise PipelineError(f"the stage {self._stage} is incomplete: another client has changed its queue")
            at = meta.next_offset
        return b"".join(pieces)

    # -- queues -------------------------------------------------------------------------------------------------------

    def _drop(self, path: QueuePath) -> None:
        """Delete a queue, if it exists."""
        confirm: str | None = None
        for _ in range(2):
            try:
                self._broker.ask_raw(calls.operation("delete_queue", dict[str, Any], queue=path, confirm=confirm))
                return
            except QueueNotFound:
                return
            except Conflict as error:
                confirm = error.details.get("confirm")
            except PenstockError:
                return  # a stage that is left over does no harm; the next commit of this batch tries again

    def _try(self, call: calls.Call[Any]) -> Any:
        try:
            return self._broker.ask_raw(call)
        except QueueNotFound:
            return None
        except PenstockError as error:
            raise PipelineError(f"the broker at {self._broker.url} says: {error.message}") from None


def stage_of(job: str, batch: int) -> QueuePath:
    return parse_queue(f"{NAMESPACE}/{job}/batch-{batch}")
