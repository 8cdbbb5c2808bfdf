"""A call of the API: a request and the function that reads its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock.batch import BadBatch
from penstock.errors import Internal, PenstockError, RateLimited, Unavailable
from penstock.wire.replies import ErrorReply
from penstock.wire.status import STATUS, error_from_code

T_co = TypeVar("T_co", covariant=True)

JSON = "application/json"
BATCH = "application/vnd.penstock.batch"

encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(ErrorReply).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_CODE_BY_STATUS = {status.http: code for code, status in reversed(STATUS.items())}


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    """Names in lower case."""
    body: bytes | bytearray
    keep_alive: bool = True


class Call(msgspec.Struct, Generic[T_co], frozen=True):
    """`read` turns a successful response into the result."""

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


# -- calls that answer a JSON object --------------------------------------------------------------------------------


def get(path: str, **query: object) -> Call[dict[str, Any]]:
    """Parameters that are None are left out."""
    return Call("GET", target(path, **query), read_object)


def post(path: str, body: dict[str, Any] | None = None, **query: object) -> Call[dict[str, Any]]:
    return Call("POST", target(path, **query), read_object, b"" if body is None else encode(body))


def put(path: str, body: dict[str, Any], **query: object) -> Call[dict[str, Any]]:
    return Call("PUT", target(path, **query), read_object, encode(body))


def patch(path: str, body: dict[str, Any], **query: object) -> Call[dict[str, Any]]:
    return Call("PATCH", target(path, **query), read_object, encode(body))


def delete(path: str, **query: object) -> Call[dict[str, Any]]:
    return Call("DELETE", target(path, **query), read_object)


def target(path: str, **query: object) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, safe='/:')}" if given else path


def read_object(response: Response) -> dict[str, Any]:
    return _decode_object(response.body)


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
