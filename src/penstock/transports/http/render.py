"""The JSON text of published and delivered messages, written by run and not by message (`columnar_json.py`).

A payload is written as the bytes that were published. Queue names, ids and receipts are ASCII and need no escaping.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from penstock.batch import Batch, layout
from penstock.broker.types import DeliveredRun, FoundLetter, PublishedRun
from penstock.ids import ULID_TAIL_BITS, ulid_tails, ulid_text, ulid_texts
from penstock.transports.http.columnar_json import ColumnarJsonWriter, numbers
from penstock.transports.publishing import Parts, rows_of_request
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, results_json
from penstock.wire.publishing import is_json

T = TypeVar("T")

_encoder = msgspec.json.Encoder()

GAP_MAX, GAP_BYTES_MAX = 8, 2_048
"""Messages, and bytes of payloads, between two runs of one frame up to which both runs are read together: a separate
read costs more."""


_END = {True: ',"duplicate":true}', False: ',"duplicate":false}'}
"""The end of a published message, by `duplicate`."""


# -- published ----------------------------------------------------------------------------------------------------


def published_items(runs: Sequence[PublishedRun], parts: Parts, count: int) -> list[str]:
    """One JSON object per message, in the order of the request, each without its opening brace.

    `parts[p]` are the rows of the request that part `p` was made of, None for all of them.
    """
    if len(parts) == 1 and parts[0] is None and all(run.rows is None for run in runs):
        return [item for run in runs for item in _published_run(run)]
    items = [""] * count
    for run, rows in rows_of_request(runs, parts):
        for row, item in zip(rows, _published_run(run), strict=True):
            items[row] = item
    return items


def published_item(run: PublishedRun, place: int) -> str:
    """One of `published_items`."""
    return f'"id":"{ulid_text(run.id + place)}{_published_middle(run)}{run.offset + place}{_END[run.duplicate]}'


def published_whole(runs: Sequence[PublishedRun], durable: bool) -> bytes | None:
    """The answer, if the messages of the request are those of the runs one after the other; otherwise None."""
    objects = []
    for run in runs:
        if run.rows is not None:
            return None
        objects.append(_published_objects(run))
    return b'{"messages":[%b],"durable":%b}' % (b",".join(objects), b"true" if durable else b"false")


def published_answer(items: Sequence[str], durable: bool) -> bytes:
    return f'{{"messages":[{{{",{".join(items)}],"durable":{"true" if durable else "false"}}}'.encode()


def transact_answer(acked: Sequence[str], items: Sequence[str], durable: bool) -> bytes:
    messages = f"{{{',{'.join(items)}" if items else ""
    return b'{"acked":%b,"messages":[%b],"durable":%b}' % (
        _encoder.encode(acked),
        messages.encode(),
        b"true" if durable else b"false",
    )


def with_ignored(body: bytes, ignored: Sequence[str]) -> bytes:
    """The answer to a publish with the options that have no effect, if there are any."""
    return b'%b,"ignored":%b}' % (body[:-1], _encoder.encode(ignored)) if ignored else body


def published_runs(runs: Sequence[PublishedRun], durable: bool) -> bytes:
    """The answer to a published frame: as many entries as there are runs, not as there are messages."""
    entries = [
        {
            "queue": run.queue,
            "partition": run.partition,
            "offset": run.offset,
            "count": run.count,
            "id": ulid_text(run.id),
            "duplicate": run.duplicate,
            "rows": run.rows,
        }
        for run in runs
    ]
    return _encoder.encode({"runs": entries, "durable": durable})


def _published_objects(run: PublishedRun) -> bytes:
    if run.count == 1:
        return f"{{{published_item(run, 0)}".encode()
    shared, tails = ulid_tails(run.id, run.count)
    writer = ColumnarJsonWriter(f'{{"id":"{shared}')
    writer.column(tails)
    writer.text(_published_middle(run))
    writer.column(numbers(range(run.offset, run.offset + run.count)))
    writer.text(_END[run.duplicate])
    return writer.objects()


def _published_middle(run: PublishedRun) -> str:
    return f'","queue":"{run.queue}","partition":{run.partition},"offset":'


def _published_run(run: PublishedRun) -> list[str]:
    middle, end = _published_middle(run), _END[run.duplicate]
    offsets = range(run.offset, run.offset + run.count)
    return [
        f'"id":"{text}{middle}{offset}{end}'
        for text, offset in zip(ulid_texts(run.id, run.count), offsets, strict=True)
    ]


# -- delivered ----------------------------------------------------------------------------------------------------


def delivered_messages(runs: Sequence[DeliveredRun], *, leased: bool) -> bytes:
    """A JSON array of the messages. Without a lease they have no receipt and no deadline."""
    if len(runs) == 1 and runs[0].count == 1:
        return b"[%b]" % _message(runs[0], leased=leased)
    return b"[%b]" % b",".join([_messages(alike, leased=leased) for alike in _alike(runs)])


def dead_letter(found: FoundLetter) -> bytes:
    """A dead letter, with its last attempt and the reason."""
    letter = found.letter
    message = _message(found.run, leased=False)
    why = {
        "group": found.group,
        "reason": letter.reason,
        "error": letter.error,
        "consumer": letter.consumer,
        "first_at_ms": letter.first_at,
        "last_at_ms": letter.last_at,
        "dead_at_ms": letter.dead_at,
        "redriven": letter.redriven,
    }
    return message[:-1] + b"," + _encoder.encode(why)[1:]


def lease_answer(
    runs: Sequence[DeliveredRun], results: Sequence[Settled] | None, generation: int | None = None
) -> bytes:
    more = b"" if results is None else b',"results":%b' % results_json(results)
    if generation is not None:
        more += b',"generation":%d' % generation
    return b'{"messages":%b%b}' % (delivered_messages(runs, leased=True), more)


def wire_runs(runs: Sequence[DeliveredRun]) -> list[Run]:
    """The description of the frames of a binary delivery."""
    return [
        Run(
            queue=run.queue,
            partition=run.partition,
            offset=run.offset,
            count=run.count,
            id=ulid_text(run.id),
            published_at_ms=run.published_at_ms,
            length=len(run.batch.frame),
            attempt=run.attempt,
            receipt=run.receipt,
            deadline_at_ms=run.deadline_at_ms,
            lease_ms=run.lease_ms,
        )
        for run in runs
    ]


def lease_meta(
    runs: Sequence[DeliveredRun], results: Sequence[Settled] | None, generation: int | None = None
) -> LeaseMeta:
    return LeaseMeta(wire_runs(runs), None if results is None else list(results), generation)


def read_meta(
    runs: Sequence[DeliveredRun], next_offset: int, end_offset: int, start_offset: int, skipped: int
) -> ReadMeta:
    return ReadMeta(wire_runs(runs), next_offset, end_offset, start_offset, skipped)


class _Part:
    """Runs of one frame that are close together: columns are read once, without the rows between the runs."""

    __slots__ = ("_gaps", "_last", "_rows", "run")

    def __init__(self, run: DeliveredRun):
        self.run = run
        """The first one."""
        self._last = run
        self._rows = run.batch.count
        """From the first to the last message."""
        self._gaps: list[slice] = []
        """Rows that are in none of the runs."""

    def takes(self, run: DeliveredRun) -> bool:
        """Add the run if it belongs to the same frame and has the same shared fields; False if it does not."""
        gap = self._last.batch.gap_to(run.batch)
        if gap is None or gap[0] > GAP_MAX or gap[1] > GAP_BYTES_MAX:
            return False
        first, rows = self.run, self._rows + gap[0]
        # The ids of a frame that was published twice are not consecutive; those of a frame that was split are.
        if run.id - first.id != rows or run.partition != first.partition or run.queue != first.queue:
            return False
        # With one receipt it is one lease.
        if run.attempt != first.attempt or run.receipt != first.receipt:
            return False
        after = rows + run.batch.count
        if first.id + after - 1 >> ULID_TAIL_BITS != first.id >> ULID_TAIL_BITS:
            return False
        if gap[0]:
            self._gaps.append(slice(self._rows, rows))
        self._rows = after
        self._last = run
        return True

    @property
    def is_one(self) -> bool:
        """A single message."""
        return self._rows == 1

    def batch(self) -> Batch:
        """All rows."""
        return self.run.batch.up_to(self._last.batch)

    def offsets(self) -> list[int]:
        return self.without(list(range(self.run.offset, self.run.offset + self._rows)))

    def without(self, values: list[T]) -> list[T]:
        """The values of the rows that are messages of the runs."""
        for gap in reversed(self._gaps):
            del values[gap]
        return values


def _alike(runs: Sequence[DeliveredRun]) -> list[list[_Part]]:
    """Adjacent runs with the same shared fields, grouped: a lease that skips messages has many short runs."""
    groups: list[list[_Part]] = []
    known: tuple[object, ...] = ()
    for run in runs:
        if groups and groups[-1][-1].takes(run):
            continue
        what = _what_all_have(run)
        if what == known:
            groups[-1].append(_Part(run))
        else:
            groups.append([_Part(run)])
            known = what
    return groups


def _what_all_have(run: DeliveredRun) -> tuple[object, ...]:
    """The fields that all messages of a run share."""
    batch = run.batch
    return (
        run.queue, run.partition, run.published_at_ms, run.attempt, run.receipt, run.deadline_at_ms, batch.flags,
        batch.columns, run.id >> ULID_TAIL_BITS, run.id + batch.count - 1 >> ULID_TAIL_BITS,
    )  # fmt: skip


def _messages(parts: Sequence[_Part], *, leased: bool) -> bytes:
    """The messages of these parts, separated by commas."""
    run = parts[0].run
    if len(parts) == 1 and parts[0].is_one:
        return _message(run, leased=leased)
    batches = [part.batch() for part in parts]
    batch = run.batch

    def all_of(read: Callable[[Batch], list[T]]) -> list[T]:
        """A column of all messages."""
        return _joined([part.without(read(each)) for part, each in zip(parts, batches, strict=True)])

    tails = [ulid_tails(part.run.id, each.count) for part, each in zip(parts, batches, strict=True)]
    offsets = numbers(_joined([part.offsets() for part in parts]))
    writer = ColumnarJsonWriter(f'{{"id":"{tails[0][0]}')
    writer.column(_joined([part.without(texts) for part, (_, texts) in zip(parts, tails, strict=True)]))
    if leased and run.receipt is not None:
        writer.text(f'","receipt":"{run.receipt}')
        writer.column(offsets)
        writer.text('",')
    else:
        writer.text('","receipt":null,' if leased else '",')
    writer.text(f'"queue":"{run.queue}","partition":{run.partition},"offset":')
    writer.column(offsets)
    if batch.checked and batch.flags & layout.KIND_MASK == layout.KIND_JSON:
        writer.text(',"payload":')
        writer.column(all_of(Batch.payloads))
    else:
        writer.text(",")
        kinds = all_of(lambda each: list(each.kinds()))
        writer.column(_payload_fields(all_of(Batch.payloads), kinds, checked=batch.checked))
    # An absent column has the same value for all messages.
    if batch.has(layout.KEY):
        writer.text(',"key":')
        writer.column([_text_or_null(key) for key in all_of(lambda each: each.strings(layout.KEY))])
    else:
        writer.text(',"key":null')
    if batch.has(layout.PRIORITY):
        writer.text(',"priority":')
        writer.column(numbers(all_of(lambda each: each.integers(layout.PRIORITY).tolist())))
    else:
        writer.text(',"priority":0')
    if batch.has(layout.HEADERS):
        writer.text(',"headers":')
        writer.column([each or b"{}" for each in all_of(lambda each: each.strings(layout.HEADERS))])
    else:
        writer.text(',"headers":{}')
    if batch.has(layout.TENANT):
        writer.text(',"tenant":')
        writer.column([_text_or_null(name) for name in all_of(lambda each: each.strings(layout.TENANT))])
    writer.text(f',"attempt":{run.attempt},"published_at_ms":{run.published_at_ms}')
    if leased:
        writer.text(f',"deadline_at_ms":{"null" if run.deadline_at_ms is None else run.deadline_at_ms}')
    writer.text("}")
    return writer.objects()


def _message(run: DeliveredRun, *, leased: bool) -> bytes:
    """The only message of a run, in the form of `_messages`, at a quarter of the cost of columns."""
    batch = run.batch
    columns = batch.columns
    if batch.checked and batch.flags & layout.KIND_MASK == layout.KIND_JSON:
        payload = b'"payload":' + batch.payload(0)
    else:
        payload = _payload_fields([batch.payload(0)], batch.kinds(), checked=batch.checked)[0]
    key = headers = None
    priority = 0
    tenant = receipt = deadline = b""
    if columns:
        if columns & layout.KEY:
            key = batch.string(layout.KEY, 0)
        if columns & layout.PRIORITY:
            priority = batch.integers(layout.PRIORITY)[0]
        if columns & layout.HEADERS:
            headers = batch.string(layout.HEADERS, 0)
        if columns & layout.TENANT:
            tenant = b',"tenant":%b' % _text_or_null(batch.string(layout.TENANT, 0))
    if leased:
        if run.receipt is None:
            receipt = b'"receipt":null,'
        else:
            receipt = b'"receipt":"%b%d",' % (run.receipt.encode(), run.offset)
        deadline = b',"deadline_at_ms":null'
        if run.deadline_at_ms is not None:
            deadline = b',"deadline_at_ms":%d' % run.deadline_at_ms
    return (
        b'{"id":"%b",%b"queue":"%b","partition":%d,"offset":%d,%b,"key":%b,"priority":%d,"headers":%b%b,"attempt":%d,'
        b'"published_at_ms":%d%b}'
    ) % (
        ulid_text(run.id).encode(), receipt, run.queue.encode(), run.partition, run.offset, payload,
        _text_or_null(key), priority, headers or b"{}", tenant, run.attempt, run.published_at_ms, deadline,
    )  # fmt: skip


def _text_or_null(text: bytes | None) -> bytes:
    return _encoder.encode(text.decode()) if text else b"null"


def _joined(lists: list[list[T]]) -> list[T]:
    return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))


def _payload_fields(payloads: Sequence[bytes], kinds: Sequence[int], *, checked: bool) -> list[bytes]:
    """`"payload":…` or `"payload_b64":…` per message. A payload that the client declared as JSON is checked first."""
    return [
        b'"payload":%b' % payload
        if kind == layout.KIND_JSON and (checked or is_json(payload))
        else b'"payload_b64":"%b"' % b2a_base64(payload, newline=False)
        for payload, kind in zip(payloads, kinds, strict=True)
    ]
