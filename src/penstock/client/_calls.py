"""Every call of the API without I/O: what to send, and how to read what comes back.

A `Call` is a request and the function that reads its answer. The asyncio shell and the blocking shell differ only in
how they carry one; which calls exist, what they mean and which errors they raise is written here, once.
"""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock import limits
from penstock.batch import BadBatch, Batch, build, layout
from penstock.client._delivery import DeliveredRun, LogBatch, StoredMessage
from penstock.client._frames import milliseconds, moment
from penstock.client._http1 import Response
from penstock.client._leased import LeasedRun
from penstock.errors import Internal, InvalidRequest, PenstockError, RateLimited, Unavailable
from penstock.ids import QueuePath, check_client_id
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, decode_delivery
from penstock.wire.readers import OffsetsReply
from penstock.wire.replies import ErrorReply, LeftReply, PublishRunsReply, SettleReply, ShareReply, TransactReply
from penstock.wire.status import STATUS, error_from_code

T_co = TypeVar("T_co", covariant=True)

JSON = "application/json"
BATCH = "application/vnd.penstock.batch"

_quoted = lru_cache(maxsize=64)(quote)
"""A producer's name, which is the same for all that it publishes."""
_encode = msgspec.json.Encoder().encode
_decode_publish_reply = msgspec.json.Decoder(PublishRunsReply).decode
_decode_settled = msgspec.json.Decoder(SettleReply).decode
_decode_offsets = msgspec.json.Decoder(OffsetsReply).decode
_decode_share = msgspec.json.Decoder(ShareReply).decode
_decode_left = msgspec.json.Decoder(LeftReply).decode
_decode_transacted = msgspec.json.Decoder(TransactReply).decode
_decode_error = msgspec.json.Decoder(ErrorReply).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Call(msgspec.Struct, Generic[T_co], frozen=True):
    """One request. `read` turns a successful response into the result; errors were raised before it is asked."""

    method: str
    target: str
    read: Callable[[Response], T_co]
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    wait_ms: int = 0
    """How long the server may hold the answer on purpose."""

    def result(self, response: Response) -> T_co:
        """The result, or the error that the server answered with. Raises PenstockError and nothing else."""
        if response.status >= 300:
            raise error_of(response)
        try:
            return self.read(response)
        except (msgspec.MsgspecError, BadBatch, UnicodeDecodeError, ValueError) as error:
            raise PenstockError(f"the answer to {self.method} {self.target} cannot be read: {error}") from error


Place: TypeAlias = str | Mapping[int, int]
"""Where a group begins: "earliest", "latest", "at:<epoch ms>", or partition -> offset."""


class ProducerSeq(NamedTuple):
    """Who publishes, and the number of a frame's first message; the server stores each number once."""

    producer: str
    epoch: int
    seq: int


class Leased(NamedTuple):
    runs: list[LeasedRun]
    results: list[Settled]
    """The outcome of the acks that went along."""
    generation: int | None = None
    """Of the group, if a member asked."""


# -- publish ----------------------------------------------------------------------------------------------------


def publish(queue: QueuePath, frame: bytes, sequence: ProducerSeq) -> Call[PublishRunsReply]:
    producer = _quoted(sequence.producer)
    target = f"/v1/publish?queue={queue}&producer={producer}&epoch={sequence.epoch}&seq={sequence.seq}"
    return Call("POST", target, _read_published, frame, BATCH)


def _read_published(response: Response) -> PublishRunsReply:
    return _decode_publish_reply(response.body)


# -- lease and settle -------------------------------------------------------------------------------------------


def lease(
    source: str,
    *,
    in_scope: bool = False,
    group: str,
    max: int,
    lease_ms: int,
    wait_ms: int = 0,
    consumer: str = "",
    ack: Sequence[str] = (),
    member: str = "",
    generation: int = 0,
) -> Call[Leased]:
    """From a queue, or from all queues of a scope."""
    place = "scope" if in_scope else "queue"
    body: dict[str, Any] = {place: source, "group": group, "max": max, "wait_ms": wait_ms, "lease_ms": lease_ms}
    if consumer:
        body["consumer"] = consumer
    if ack:
        body["ack"] = ack
    if member:
        body |= {"member": member, "generation": generation}
    return Call("POST", "/v1/lease", _read_leased, _encode(body), accept=BATCH, wait_ms=wait_ms)


def _read_leased(response: Response) -> Leased:
    meta, batches = decode_delivery(response.body, LeaseMeta)
    runs = [LeasedRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)]
    return Leased(runs, meta.results or [], meta.generation)


def ack(receipts: Sequence[str]) -> Call[list[Settled]]:
    return _settle("ack", receipts, {})


def nack(receipts: Sequence[str], *, delay_ms: int | None, error: str) -> Call[list[Settled]]:
    return _settle("nack", receipts, {"delay_ms": delay_ms, "error": error})


def reject(receipts: Sequence[str], *, error: str) -> Call[list[Settled]]:
    return _settle("reject", receipts, {"error": error})


def extend(receipts: Sequence[str], *, lease_ms: int) -> Call[list[Settled]]:
    return _settle("extend", receipts, {"lease_ms": lease_ms})


def release(receipts: Sequence[str]) -> Call[list[Settled]]:
    """Give back what was leased ahead and never handled; it does not count as an attempt."""
    return _settle("release", receipts, {})


def _settle(verb: str, receipts: Sequence[str], more: dict[str, Any]) -> Call[list[Settled]]:
    return Call("POST", f"/v1/{verb}", _read_results, _encode({"receipts": receipts, **more}))


def _read_results(response: Response) -> list[Settled]:
    return _decode_settled(response.body).results


def transact(receipts: Sequence[str], items: Sequence[dict[str, Any]]) -> Call[TransactReply]:
    return Call("POST", "/v1/transact", _read_transacted, _encode({"ack": receipts, "publish": items}))


def _read_transacted(response: Response) -> TransactReply:
    return _decode_transacted(response.body)


# -- members of groups -------------------------------------------------------------------------------------------


def join_group(
    queue: QueuePath, *, group: str, member: str, session_ms: int, drain_ms: int
) -> Call[ShareReply]:  # fmt: skip
    body = {"queue": queue, "group": group, "member": member, "session_ms": session_ms, "drain_ms": drain_ms}
    return Call("POST", "/v1/groups/join", _read_share, _encode(body))


def heartbeat(
    queue: QueuePath, *, group: str, member: str, generation: int, released: Sequence[int] = ()
) -> Call[ShareReply]:
    body: dict[str, Any] = {"queue": queue, "group": group, "member": member, "generation": generation}
    if released:
        body["released"] = released
    return Call("POST", "/v1/groups/heartbeat", _read_share, _encode(body))


def leave_group(queue: QueuePath, *, group: str, member: str, generation: int | None) -> Call[LeftReply]:
    body = {"queue": queue, "group": group, "member": member, "generation": generation}
    return Call("POST", "/v1/groups/leave", lambda response: _decode_left(response.body), _encode(body))


def _read_share(response: Response) -> ShareReply:
    return _decode_share(response.body)


# -- look into the log ------------------------------------------------------------------------------------------


def read(
    queue: QueuePath, *, partition: int, offset: int | str | None, max: int, wait_ms: int, client_id: str | None = None
) -> Call[LogBatch]:
    if offset is None:
        offset = "earliest" if client_id is None else "kept"
    values = {"queue": queue, "partition": partition, "offset": offset, "max": max, "wait_ms": wait_ms}
    if client_id is not None:
        values["client_id"] = check_client_id(client_id)
    return Call("GET", f"/v1/read?{urlencode(values, safe='/:')}", _read_log, accept=BATCH, wait_ms=wait_ms)


def offsets(queue: QueuePath, client_id: str) -> Call[dict[int, int]]:
    return Call("GET", _offsets_of(queue, client_id), _read_offsets)


def keep_offsets(queue: QueuePath, client_id: str, offsets: Mapping[int, int]) -> Call[dict[int, int]]:
    named = {str(partition): offset for partition, offset in offsets.items()}
    body = {"queue": queue, "client_id": check_client_id(client_id), "offsets": named}
    return Call("POST", "/v1/offsets", _read_offsets, _encode(body))


def forget_offsets(queue: QueuePath, client_id: str) -> Call[dict[int, int]]:
    return Call("DELETE", _offsets_of(queue, client_id), _read_offsets)


def _offsets_of(queue: QueuePath, client_id: str) -> str:
    return f"/v1/offsets?{urlencode({'queue': queue, 'client_id': check_client_id(client_id)}, safe='/:')}"


def _read_offsets(response: Response) -> dict[int, int]:
    return {int(partition): offset for partition, offset in _decode_offsets(response.body).offsets.items()}


def follow_poll_s(wait_s: float | None, waited_s: float) -> float:
    """How long the next read of someone who follows the log may wait."""
    most = limits.WAIT_MS_MAX / 1000
    return most if wait_s is None else max(0.0, min(wait_s - waited_s, most))


def _read_log(response: Response) -> LogBatch:
    meta, batches = decode_delivery(response.body, ReadMeta)
    return LogBatch(
        [DeliveredRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)],
        next_offset=meta.next_offset,
        end_offset=meta.end_offset,
        start_offset=meta.start_offset,
        skipped=meta.skipped,
    )


def peek(queue: QueuePath, *, max: int, group: str) -> Call[list[StoredMessage]]:
    return Call("GET", f"/v1/peek?{urlencode({'queue': queue, 'max': max, 'group': group}, safe='/')}", _read_peeked)


class _JsonMessage(msgspec.Struct):
    id: str
    queue: str
    partition: int
    offset: int
    published_at_ms: int
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_b64: str | None = None
    key: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    tenant: str | None = None
    attempt: int = 1


class _Peeked(msgspec.Struct):
    messages: list[_JsonMessage]


_decode_peeked = msgspec.json.Decoder(_Peeked).decode


def _read_peeked(response: Response) -> list[StoredMessage]:
    return [StoredMessage(_run_of(message), 0) for message in _decode_peeked(response.body).messages]


def _run_of(message: _JsonMessage) -> DeliveredRun:
    """A message that came as JSON, in the shape of one that came in a frame: one kind of message for the user."""
    is_json = message.payload_b64 is None
    payload = bytes(message.payload) if is_json else b64decode(message.payload_b64 or "")
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if message.key:
        columns[layout.KEY] = [message.key.encode()]
    if message.priority:
        columns[layout.PRIORITY] = [message.priority]
    if message.headers:
        columns[layout.HEADERS] = [_encode(message.headers)]
    if message.tenant:
        columns[layout.TENANT] = [message.tenant.encode()]
    frame = build([payload], kind=layout.KIND_JSON if is_json else layout.KIND_BYTES, columns=columns)
    meta = Run(
        message.queue, message.partition, message.offset, 1, message.id, message.published_at_ms, len(frame),
        attempt=message.attempt,
    )  # fmt: skip
    return DeliveredRun(meta, Batch.open(frame))


# -- scheduled messages -----------------------------------------------------------------------------------------


def cancel(queue: QueuePath, *, ids: Iterable[str] | None, key: str | None) -> Call[dict[str, Any]]:
    return _act("/v1/cancel", {"queue": queue, **_which(ids, key)})


def reschedule(
    queue: QueuePath, *, ids: Iterable[str] | None, key: str | None, delay: float | None,
    deliver_at: datetime | float | None,
) -> Call[dict[str, Any]]:  # fmt: skip
    if (delay is None) == (deliver_at is None):
        raise InvalidRequest("reschedule needs either delay or deliver_at", details={"field": "delay"})
    when = {"deliver_at_ms": moment(deliver_at)} if deliver_at is not None else {}
    if delay is not None:
        when = {"delay_ms": milliseconds("delay", delay, limits.DELAY_MS_MAX)}
    return _act("/v1/reschedule", {"queue": queue, **_which(ids, key), **when})


def _which(ids: Iterable[str] | None, key: str | None) -> dict[str, Any]:
    if (ids is None) == (key is None):
        raise InvalidRequest("name the messages either by ids or by key", details={"field": "ids"})
    return {"key": key} if ids is None else {"ids": list(ids)}


# -- queues -----------------------------------------------------------------------------------------------------


def list_queues(*, prefix: str, page: int, limit: int) -> Call[dict[str, Any]]:
    return _look("/v1/queues", prefix=prefix, page=page, limit=limit)


def get_queue(queue: QueuePath) -> Call[dict[str, Any]]:
    return _look(f"/v1/queues/{queue}")


def put_queue(queue: QueuePath, config: dict[str, Any], *, confirm: str | None = None) -> Call[dict[str, Any]]:
    return Call("PUT", f"/v1/queues/{queue}{_confirmed(confirm)}", _read_object, _encode(config))


def patch_queue(queue: QueuePath, changes: dict[str, Any], *, confirm: str | None = None) -> Call[dict[str, Any]]:
    return Call("PATCH", f"/v1/queues/{queue}{_confirmed(confirm)}", _read_object, _encode(changes))


def delete_queue(queue: QueuePath, *, confirm: str | None) -> Call[dict[str, Any]]:
    return Call("DELETE", f"/v1/queues/{queue}{_confirmed(confirm)}", _read_object)


def purge_queue(queue: QueuePath, *, confirm: str | None) -> Call[dict[str, Any]]:
    return Call("POST", f"/v1/queues/{queue}/purge{_confirmed(confirm)}", _read_object)


def _confirmed(token: str | None) -> str:
    return "" if token is None else f"?{urlencode({'confirm': token})}"


def stats(queue: QueuePath) -> Call[dict[str, Any]]:
    return _look("/v1/stats", queue=queue)


def summary() -> Call[dict[str, Any]]:
    return _look("/v1/stats/summary")


def groups(queue: QueuePath) -> Call[dict[str, Any]]:
    return _look("/v1/groups", queue=queue)


def put_group(queue: QueuePath, group: str, *, start: Place) -> Call[dict[str, Any]]:
    body = {"queue": queue, "group": group, "start": _place(start)}
    return Call("PUT", "/v1/groups", _read_object, _encode(body))


def seek_group(queue: QueuePath, group: str, *, to: Place, dry_run: bool) -> Call[dict[str, Any]]:
    return _act("/v1/groups/seek", {"queue": queue, "group": group, "to": _place(to), "dry_run": dry_run})


def delete_group(queue: QueuePath, group: str, *, confirm: str | None) -> Call[dict[str, Any]]:
    query = {"queue": queue, "group": group, **({} if confirm is None else {"confirm": confirm})}
    return Call("DELETE", f"/v1/groups?{urlencode(query, safe='/:')}", _read_object)


def _place(place: Place) -> str | dict[str, int]:
    return place if isinstance(place, str) else {str(partition): offset for partition, offset in place.items()}


# -- dead letters -----------------------------------------------------------------------------------------------


def dead_letters(
    queue: QueuePath, *, filter: str | None, group: str | None, page: int, limit: int, after: str | None
) -> Call[dict[str, Any]]:
    query = {"queue": queue, "filter": filter, "group": group, "page": page, "limit": limit, "after": after}
    return _look("/v1/dlq", **{name: value for name, value in query.items() if value is not None})


def redrive(
    queue: QueuePath, *, filter: str | None, ids: Iterable[str] | None, group: str | None, target: str | None,
    delay: float, priority: int | None, rate: int, dry_run: bool, redrive_id: str | None,
) -> Call[dict[str, Any]]:  # fmt: skip
    # Always with an id: an answer that is lost must not make the repetition a second redrive.
    name = redrive_id or f"sdk-{secrets.token_hex(12)}"
    delay_ms = milliseconds("delay", delay, limits.DELAY_MS_MAX)
    terms = {
        "group": group, "target": target, "delay_ms": delay_ms, "priority": priority, "rate_per_s": rate,
        "dry_run": dry_run, "redrive_id": name,
    }  # fmt: skip
    return _act("/v1/dlq/redrive", {"queue": queue, **_letters(filter, ids), **terms})


def redrives(queue: QueuePath, redrive_id: str | None) -> Call[dict[str, Any]]:
    return _look("/v1/dlq/redrives", queue=queue, **({} if redrive_id is None else {"redrive_id": redrive_id}))


def stop_redrive(queue: QueuePath, redrive_id: str) -> Call[dict[str, Any]]:
    return _act("/v1/dlq/redrive/stop", {"queue": queue, "redrive_id": redrive_id})


def delete_dead_letters(
    queue: QueuePath, *, filter: str | None, ids: Iterable[str] | None, group: str | None, confirm: str | None
) -> Call[dict[str, Any]]:
    body = {"queue": queue, "group": group, **_letters(filter, ids)}
    return _act(f"/v1/dlq/delete{_confirmed(confirm)}", body)


def _letters(filter: str | None, ids: Iterable[str] | None) -> dict[str, Any]:
    if (filter is None) == (ids is None):
        raise InvalidRequest("choose dead letters either by filter or by ids", details={"field": "filter"})
    return {"filter": filter} if ids is None else {"ids": list(ids)}


# -- the server -------------------------------------------------------------------------------------------------


def explain(queue: QueuePath, *, id: str | None, group: str) -> Call[dict[str, Any]]:
    return _look("/v1/explain", queue=queue, group=group, **({} if id is None else {"id": id}))


def history(queue: QueuePath, id: str) -> Call[dict[str, Any]]:
    return _look("/v1/history", queue=queue, id=id)


def autoscale(
    queue: QueuePath, *, group: str, target_drain: float, min_workers: int, max_workers: int | None
) -> Call[dict[str, Any]]:
    query: dict[str, object] = {
        "queue": queue, "group": group, "target_drain_s": target_drain, "min_workers": min_workers,
    }  # fmt: skip
    return _look("/v1/autoscale", **query, **({} if max_workers is None else {"max_workers": max_workers}))


def ready() -> Call[bool]:
    return Call("GET", "/readyz", lambda response: response.status == 200)


def _look(path: str, **query: object) -> Call[dict[str, Any]]:
    return Call("GET", f"{path}?{urlencode(query, safe='/')}" if query else path, _read_object)


def _act(path: str, body: dict[str, Any]) -> Call[dict[str, Any]]:
    return Call("POST", path, _read_object, _encode(body))


def _read_object(response: Response) -> dict[str, Any]:
    return _decode_object(response.body)


# -- errors -----------------------------------------------------------------------------------------------------


_CODE_BY_STATUS = {status.http: code for code, status in reversed(STATUS.items())}


def error_of(response: Response) -> PenstockError:
    """The typed error of a response that is not a success, also if something other than Penstock answered."""
    retry_after_ms = _retry_after_ms(response.headers.get(b"retry-after"))
    try:
        error = _decode_error(response.body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _error_of_stranger(response, retry_after_ms)
    return error_from_code(error.code, error.message, details=error.details, retry_after_ms=retry_after_ms)


def _error_of_stranger(response: Response, retry_after_ms: int | None) -> PenstockError:
    """A proxy in between, or a server that is not ours: only the status can be trusted."""
    text = response.body[:200].decode("utf-8", "replace").strip()
    message = f"HTTP {response.status}, which is not an answer of Penstock: {text!r}"
    if response.status in (502, 503, 504):
        return Unavailable(message, retry_after_ms=retry_after_ms)
    if response.status == 429:
        return RateLimited(message, retry_after_ms=retry_after_ms)
    if response.status >= 500:
        return Internal(message)
    return error_from_code(_CODE_BY_STATUS.get(response.status, ""), message)


def _retry_after_ms(value: bytes | None) -> int | None:
    """Only the seconds form; a date is not worth trusting two clocks for."""
    try:
        seconds = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return round(seconds * 1000) if 0 <= seconds < 3600 else None
