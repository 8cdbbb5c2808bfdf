"""The JSON text of published and delivered messages, written by the run rather than by the message (`weave.py`).

The payload is put in as the bytes that were published. Everything that is not a payload, a key or a
header is ASCII by its own rules (queue names, ids, receipts) and needs no escaping.
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
from penstock.transports.http.weave import Weave, numbers
from penstock.transports.publishing import Parts, rows_of_request
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, results_json
from penstock.wire.publishing import is_json

T = TypeVar("T")

_encoder = msgspec.json.Encoder()

GAP_MAX, GAP_BYTES_MAX = 8, 2_048
"""Messages, and bytes of their payloads, between two runs of one frame that are read along and left out: reading a run
by itself costs more."""


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
    return f'"id":"{ulid_text(run.id + place)}{_published_middle(run)}{run.offset + place}{_published_end(run)}'


def published_whole(runs: Sequence[PublishedRun], durable: bool) -> bytes | None:
    """The answer, if the messages of the request are those of the runs one after the other; otherwise None."""
    if any(run.rows is not None for run in runs):
        return None
    messages = b",".join([_published_objects(run) for run in runs])
    return b'{"messages":[%b],"durable":%b}' % (messages, b"true" if durable else b"false")


def published_answer(items: Sequence[str], durable: bool) -> bytes:
    return f'{{"messages":[{{{",{".join(items)}],"durable":{"true" if durable else "false"}}}'.encode()


def transact_answer(acked: Sequence[str], items: Sequence[str], durable: bool) -> bytes:
    messages = f"{{{',{'.join(items)}" if items else ""
    return b'{"acked":%b,"messages":[%b],"durable":%b}' % (
        _encoder.encode(acked),
        messages.encode(),
        b"true" if durable else b"false",
    )


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
    weave = Weave(f'{{"id":"{shared}')
    weave.column(tails)
    weave.text(_published_middle(run))
    weave.column(numbers(range(run.offset, run.offset + run.count)))
    weave.text(_published_end(run))
    return weave.objects()


def _published_middle(run: PublishedRun) -> str:
    return f'","queue":"{run.queue}","partition":{run.partition},"offset":'


def _published_end(run: PublishedRun) -> str:
    return ',"duplicate":true}' if run.duplicate else ',"duplicate":false}'


def _published_run(run: PublishedRun) -> list[str]:
    middle, end = _published_middle(run), _published_end(run)
    offsets = range(run.offset, run.offset + run.count)
    return [
        f'"id":"{text}{middle}{offset}{end}'
        for text, offset in zip(ulid_texts(run.id, run.count), offsets, strict=True)
    ]


# -- delivered ----------------------------------------------------------------------------------------------------


def leased_messages(runs: Sequence[DeliveredRun]) -> bytes:
    """A JSON array of the messages of a lease."""
    return b"[%b]" % b",".join([_messages(alike, leased=True) for alike in _alike(runs)])


def read_messages(runs: Sequence[DeliveredRun]) -> bytes:
    """A JSON array of messages without a lease: no receipt, no deadline."""
    return b"[%b]" % b",".join([_messages(alike, leased=False) for alike in _alike(runs)])


def dead_letter(found: FoundLetter) -> bytes:
    """A message that was given up, with its last attempt and why."""
    letter = found.letter
    message = _messages([_Part(found.run)], leased=False)
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
    return b'{"messages":%b%b}' % (leased_messages(runs), more)


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
    """Runs of one frame that lie close together: columns are read in one go, and what lies between is left out."""

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
        """True if it is in here from now on: it goes on with the same frame, and is written alike."""
        gap = self._last.batch.gap_to(run.batch)
        if gap is None or gap[0] > GAP_MAX or gap[1] > GAP_BYTES_MAX:
            return False
        first, rows = self.run, self._rows + gap[0]
        # One frame may have been published twice: then the ids of its messages do not go on. Or in parts, to several
        # places: then they do.
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
        """One value for each row becomes one for each message."""
        for gap in reversed(self._gaps):
            del values[gap]
        return values


def _alike(runs: Sequence[DeliveredRun]) -> list[list[_Part]]:
    """Neighbours that are written alike together: what a lease skips makes many short runs of one batch."""
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
    """Everything of a run that is the same in each of its messages."""
    batch = run.batch
    return (
        run.queue, run.partition, run.published_at_ms, run.attempt, run.receipt, run.deadline_at_ms, batch.flags,
        batch.columns, run.id >> ULID_TAIL_BITS, run.id + batch.count - 1 >> ULID_TAIL_BITS,
    )  # fmt: skip


def _messages(parts: Sequence[_Part], *, leased: bool) -> bytes:
    """The messages of parts that are alike, with commas between."""
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
    weave = Weave(f'{{"id":"{tails[0][0]}')
    weave.column(_joined([part.without(texts) for part, (_, texts) in zip(parts, tails, strict=True)]))
    if leased and run.receipt is not None:
        weave.text(f'","receipt":"{run.receipt}')
        weave.column(offsets)
        weave.text('",')
    else:
        weave.text('","receipt":null,' if leased else '",')
    weave.text(f'"queue":"{run.queue}","partition":{run.partition},"offset":')
    weave.column(offsets)
    if batch.checked and batch.flags & layout.KIND_MASK == layout.KIND_JSON:
        weave.text(',"payload":')
        weave.column(all_of(Batch.payloads))
    else:
        weave.text(",")
        kinds = all_of(lambda each: list(each.kinds()))
        weave.column(_payload_fields(all_of(Batch.payloads), kinds, checked=batch.checked))
    # A column that the batch does not have is the same for all.
    if batch.has(layout.KEY):
        weave.text(',"key":')
        weave.column([_text_or_null(key) for key in all_of(lambda each: each.strings(layout.KEY))])
    else:
        weave.text(',"key":null')
    if batch.has(layout.PRIORITY):
        weave.text(',"priority":')
        weave.column(numbers(all_of(lambda each: each.integers(layout.PRIORITY).tolist())))
    else:
        weave.text(',"priority":0')
    if batch.has(layout.HEADERS):
        weave.text(',"headers":')
        weave.column([each or b"{}" for each in all_of(lambda each: each.strings(layout.HEADERS))])
    else:
        weave.text(',"headers":{}')
    if batch.has(layout.TENANT):
        weave.text(',"tenant":')
        weave.column([_text_or_null(name) for name in all_of(lambda each: each.strings(layout.TENANT))])
    weave.text(f',"attempt":{run.attempt},"published_at_ms":{run.published_at_ms}')
    if leased:
        weave.text(f',"deadline_at_ms":{"null" if run.deadline_at_ms is None else run.deadline_at_ms}')
    weave.text("}")
    return weave.objects()


def _message(run: DeliveredRun, *, leased: bool) -> bytes:
    """The only message of a run, as `_messages` would write it: laying out columns of one costs four times as much."""
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
