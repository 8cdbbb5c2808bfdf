"""A call of the API: a request and the function that reads its answer. Without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.batch import BadBatch
from penstock.errors import Internal, PenstockError, RateLimited, Unavailable
from penstock.wire.operations import JSON, OPERATIONS
from penstock.wire.replies import ErrorReply
from penstock.wire.status import STATUS, error_from_code

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(ErrorReply).decode
_CODE_BY_STATUS = {status.http: code for code, status in reversed(STATUS.items())}


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    """Names in lower case."""
    body: bytes | bytearray
    keep_alive: bool = True


class Call(msgspec.Struct, Generic[T_co], frozen=True):
    """`read` turns a successful response into the result."""

    operation: str
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


# -- calls of operations --------------------------------------------------------------------------------------------


def operation(name: str, kind: type[T], /, *, body: Mapping[str, Any] | None = None, **fields: Any) -> Call[T]:
    """The call of an operation whose answer is JSON of this type; see `call`."""
    return call(name, _reader(kind), body=body, **fields)


def call(
    name: str, read: Callable[[Response], T], /, *, body: Mapping[str, Any] | None = None, accept: str = JSON,
    **fields: Any,
) -> Call[T]:  # fmt: skip
    """The call of an operation of the contract (`wire/operations.py`).

    The contract says which fields belong to the path, to the query and to the body; fields that are None are left out.
    A `body` is sent as it is.
    """
    method, place, parameter, in_query = _request_form(name)
    given = {field: value for field, value in fields.items() if value is not None}
    wait_ms = given.get("wait_ms", 0)
    if parameter:
        place = place.format(quote(given.pop(parameter), safe="/" if parameter == "queue" else ""))
    if in_query:
        query = {field: given.pop(field) for field in in_query if field in given}
        place = f"{place}?{urlencode(query, safe='/:')}" if query else place
    content = encode({**given, **body} if body is not None else given) if given or body is not None else b""
    return Call(name, method, place, read, content, accept=accept, wait_ms=wait_ms)


@cache
def _request_form(name: str) -> tuple[str, str, str, tuple[str, ...]]:
    """The method, the path as a format, the field in the path, and the fields of the query."""
    described = OPERATIONS[name]
    before, _, rest = described.path.partition("{")
    parameter, _, after = rest.partition("}")
    parameter = {"path": "queue"}.get(parameter, parameter)
    in_query = tuple(field for field in described.query.__struct_fields__ if field != parameter)
    return described.method, f"{before}{{}}{after}" if parameter else before, parameter, in_query


_readers: dict[Any, Callable[[Response], Any]] = {}


def _reader(kind: type[T]) -> Callable[[Response], T]:
    read = _readers.get(kind)
    if read is None:
        decode = msgspec.json.Decoder(kind).decode
        read = _readers[kind] = lambda response: decode(response.body)
    return read


# -- errors ---------------------------------------------------------------------------------------------------------


def error_of(response: Response) -> PenstockError:
    """The typed error of a response that is not a success, also if the answer is not from Penstock."""
    retry_after_ms = _retry_after_ms(response.headers.get(b"retry-after"))
    try:
        error = _decode_error(response.body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _foreign_error(response, retry_after_ms)
    return error_from_code(error.code, error.message, details=error.details, retry_after_ms=retry_after_ms)


def _foreign_error(response: Response, retry_after_ms: int | None) -> PenstockError:
    """The answer of a proxy, or of another kind of server: only the status can be trusted."""
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
    """Only the form in seconds; a date would compare two clocks."""
    try:
        seconds = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return round(seconds * 1000) if 0 <= seconds < 3600 else None
