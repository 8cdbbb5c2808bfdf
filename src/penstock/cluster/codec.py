"""The form of each method of the facade on a link: arguments and reply as JSON, or as MessagePack if it has messages.

The forms follow from the signatures of the rooms: a method that has types needs nothing here. Requests and replies of
the public contract have JSON as their own form. Messages are sent as the frames that they are stored in, which is
MessagePack's part; it has no integers of 128 bits, so ids of runs are 16 bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from penstock.batch import Batch
from penstock.broker import service
from penstock.broker.events import Bulk
from penstock.broker.routing import Arguments, Options
from penstock.broker.types import (
    DeliveredRun,
    FoundLetter,
    LeaseReply,
    LetterPage,
    PublishedRun,
    PublishPart,
    PublishReply,
    ReadReply,
    RedriveReply,
    TransactReply,
)
from penstock.core.state.letter_chunks import DeadLetter
from penstock.errors import BY_CODE, Internal, PenstockError
from penstock.ids import QueuePath
from penstock.pending import PendingReply
from penstock.security.principal import Principal
from penstock.security.scopes import parse_scopes
from penstock.wire.delivery import Settled
from penstock.wire.events import EventsMeta

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


# -- runs of messages ---------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    queue: str
    frame: memoryview


class _Published(msgspec.Struct, array_like=True, gc=False):
    part: int
    queue: str
    partition: int
    offset: int
    count: int
    id: bytes
    duplicate: bool
    rows: list[int] | None


class _Delivered(msgspec.Struct, array_like=True, gc=False):
    queue: str
    partition: int
    offset: int
    count: int
    id: bytes
    published_at_ms: int
    frame: memoryview
    attempt: int
    receipt: str | None
    deadline_at_ms: int | None
    lease_ms: int | None


class _Publish(NamedTuple):
    runs: list[_Published]
    durable: bool
    ignored: tuple[str, ...]


class _Transact(NamedTuple):
    acked: list[str]
    runs: list[_Published]
    durable: bool
    ignored: tuple[str, ...]


class _Lease(NamedTuple):
    runs: list[_Delivered]
    results: list[Settled]
    generation: int | None


class _Read(NamedTuple):
    runs: list[_Delivered]
    next_offset: int
    end_offset: int
    start_offset: int
    skipped: int


class _Letter(NamedTuple):
    run: _Delivered
    group: str
    letter: DeadLetter


class _Bulk(NamedTuple):
    meta: EventsMeta
    records: list[memoryview]


class _Principal(NamedTuple):
    kind: str
    id: str
    name: str
    scopes: list[str]
    expires_at_ms: int


def _pack_published(run: PublishedRun) -> _Published:
    return _Published(
        run.part, run.queue, run.partition, run.offset, run.count, run.id.to_bytes(16, "big"), run.duplicate, run.rows
    )


def _unpack_published(run: _Published) -> PublishedRun:
    message_id = int.from_bytes(run.id, "big")
    return PublishedRun(run.part, run.queue, run.partition, run.offset, run.count, message_id, run.duplicate, run.rows)


def _pack_delivered(run: DeliveredRun) -> _Delivered:
    return _Delivered(
        run.queue, run.partition, run.offset, run.count, run.id.to_bytes(16, "big"), run.published_at_ms,
        memoryview(run.batch.frame), run.attempt, run.receipt, run.deadline_at_ms, run.lease_ms,
    )  # fmt: skip


def _unpack_delivered(run: _Delivered) -> DeliveredRun:
    # The frame was checked when it was stored, and the link is a connection between two processes of one store.
    return DeliveredRun(
        run.queue, run.partition, run.offset, run.count, int.from_bytes(run.id, "big"), run.published_at_ms,
        Batch.open(run.frame, known=True), run.attempt, run.receipt, run.deadline_at_ms, run.lease_ms,
    )  # fmt: skip


class Form(NamedTuple):
    """A type of the facade that has another one on the link."""

    type: Any
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    has_messages: bool = True


def _pack_letters(letters: list[FoundLetter]) -> list[_Letter]:
    return [_Letter(_pack_delivered(run), group, letter) for run, group, letter in letters]


def _unpack_letters(letters: list[_Letter]) -> list[FoundLetter]:
    return [FoundLetter(_unpack_delivered(run), group, letter) for run, group, letter in letters]


_decode_letters = msgspec.msgpack.Decoder(list[_Letter]).decode


def _with_letters(name: str) -> Form:
    """A dictionary with letters under this name."""

    def pack(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, name: _encode(_pack_letters(found[name]))} if name in found else found

    def unpack(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, name: _unpack_letters(_decode_letters(found[name]))} if name in found else found

    return Form(dict[str, Any], pack, unpack)


_FORMS: dict[Any, Form] = {
    Sequence[PublishPart]: Form(
        list[_Part],
        lambda parts: [_Part(part.queue, memoryview(part.batch.frame)) for part in parts],
        lambda parts: [PublishPart(QueuePath(part.queue), Batch.open(part.frame, known=True)) for part in parts],
    ),
    PublishReply: Form(
        _Publish,
        lambda reply: _Publish(list(map(_pack_published, reply.runs)), *reply[1:]),
        lambda reply: PublishReply(list(map(_unpack_published, reply.runs)), *reply[1:]),
    ),
    TransactReply: Form(
        _Transact,
        lambda reply: _Transact(reply.acked, list(map(_pack_published, reply.runs)), *reply[2:]),
        lambda reply: TransactReply(reply.acked, list(map(_unpack_published, reply.runs)), *reply[2:]),
    ),
    LeaseReply: Form(
        _Lease,
        lambda reply: _Lease(list(map(_pack_delivered, reply.runs)), list(reply.results), reply.generation),
        lambda reply: LeaseReply(list(map(_unpack_delivered, reply.runs)), *reply[1:]),
    ),
    ReadReply: Form(
        _Read,
        lambda reply: _Read(list(map(_pack_delivered, reply.runs)), *reply[1:]),
        lambda reply: ReadReply(list(map(_unpack_delivered, reply.runs)), *reply[1:]),
    ),
    list[DeliveredRun]: Form(
        list[_Delivered],
        lambda runs: list(map(_pack_delivered, runs)),
        lambda runs: list(map(_unpack_delivered, runs)),
    ),
    Sequence[Settled]: Form(list[Settled], list, lambda results: results, has_messages=False),
    Bulk: Form(_Bulk, lambda bulk: _Bulk(*bulk), lambda bulk: Bulk(*bulk)),
    LetterPage: _with_letters("dead_letters"),
    RedriveReply: _with_letters("sample"),
    Principal | None: Form(
        _Principal | None,
        lambda by: by and _Principal(by.kind, by.id, by.name, list(map(str, by.scopes)), by.expires_at_ms),
        lambda by: by and Principal(by.kind, by.id, by.name, parse_scopes(by.scopes), by.expires_at_ms),
        has_messages=False,
    ),
}
_NO_FORM = Form(None, lambda value: value, lambda value: value, has_messages=False)


# -- methods ------------------------------------------------------------------------------------------------------


class MethodCodec:
    """Encodes and decodes the arguments and the reply of one method."""

    def __init__(self, method: Callable[..., Any]):
        hints = get_type_hints(method)
        reply = _reply_type(hints.pop("return"))
        fields, self._forms, self._places = [], {}, []
        for name, parameter in inspect.signature(method).parameters.items():
            if name == "self":
                continue
            form = self._forms[name] = _FORMS.get(hints[name], _NO_FORM._replace(type=hints[name]))
            fields.append((name, form.type | msgspec.UnsetType, msgspec.UNSET))
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                self._places.append(name)
        self._arguments = msgspec.defstruct("Arguments", fields)
        self._reply = _FORMS.get(reply, _NO_FORM._replace(type=reply))
        has_messages = any(form.has_messages for form in (self._reply, *self._forms.values()))
        self._encode: Callable[[Any], bytes] = _encode if has_messages else _encode_json
        decoder = msgspec.msgpack.Decoder if has_messages else msgspec.json.Decoder
        self._decode_arguments = decoder(self._arguments).decode
        self._decode_reply = decoder(self._reply.type).decode

    def encode_arguments(self, arguments: Arguments, options: Options) -> bytes:
        given = {**dict(zip(self._places, arguments, strict=False)), **options}
        return self._encode(self._arguments(**{name: self._forms[name].pack(value) for name, value in given.items()}))

    def decode_arguments(self, body: bytes) -> tuple[Arguments, Options]:
        """The arguments by place, as the routes expect them, and the others by name."""
        found = self._decode_arguments(body)
        given = {
            name: form.unpack(value)
            for name, form in self._forms.items()
            if (value := getattr(found, name)) is not msgspec.UNSET
        }
        arguments = []
        for name in self._places:
            if name not in given:
                break
            arguments.append(given.pop(name))
        return tuple(arguments), given

    def encode_reply(self, reply: Any) -> bytes:
        return self._encode(self._reply.pack(reply))

    def decode_reply(self, body: bytes) -> Any:
        return self._reply.unpack(self._decode_reply(body))


def _reply_type(hint: Any) -> Any:
    """The hint of a coroutine function is the type of its result already."""
    return get_args(hint)[0] if get_origin(hint) is PendingReply else hint


@cache
def codec_of(method: str) -> MethodCodec:
    """The codec of `<room>.<method>`."""
    room, _, name = method.partition(".")
    return MethodCodec(getattr(service.ROOMS[room], name))


# -- errors -------------------------------------------------------------------------------------------------------


class _Error(NamedTuple):
    code: str
    message: str
    details: dict[str, Any]
    retry_after_ms: int | None


_decode_error = msgspec.msgpack.Decoder(_Error).decode


def encode_error(error: Exception) -> bytes:
    """An error that is not of the interface is a bug: only its kind leaves the process that has it in its log."""
    if not isinstance(error, PenstockError):
        error = Internal(
            f"the process that serves the shard failed with {type(error).__name__}; its log has the details"
        )
    return _encode(_Error(error.code, error.message, error.details, error.retry_after_ms))


def decode_error(body: bytes) -> PenstockError:
    found = _decode_error(body)
    kind = BY_CODE.get(found.code, PenstockError)
    return kind(found.message, details=found.details, retry_after_ms=found.retry_after_ms)
