"""Errors in gRPC: status, text, and the error message in trailing metadata.

gRPC libraries have helpers for `grpc-status-details-bin`; `penstock-code` is for clients without such a helper.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from penstock import limits
from penstock.errors import PenstockError
from penstock.v1 import broker_pb2 as pb
from penstock.wire.status import STATUS

DOMAIN = "penstock"
CODE_KEY = "penstock-code"
DETAILS_KEY = "grpc-status-details-bin"
_SHORT = ("field", "row", "position", "confirm")
"""Details that are kept if not all of them fit."""
_MESSAGE_CHARS_MAX = 1_000


def status_of(error: PenstockError) -> grpc.StatusCode:
    code: grpc.StatusCode = grpc.StatusCode[STATUS[error.code].grpc]
    return code


def error_message(error: PenstockError) -> pb.Error:
    """The error as a message of the contract, bounded to the size of metadata."""
    message = pb.Error(
        code=error.code,
        message=_text(error),
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )
    message.details.update(error.details)
    if message.ByteSize() > limits.ERROR_BYTES_MAX:
        message.details.Clear()
        message.details.update({name: error.details[name] for name in _SHORT if name in error.details})
    return message


def trailing_metadata(error: PenstockError) -> tuple[tuple[str, str | bytes], ...]:
    details = [
        _packed(error_details_pb2.ErrorInfo(reason=error.code.upper(), domain=DOMAIN)),
        _packed(error_message(error)),
    ]
    if error.retry_after_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(error.retry_after_ms)
        details.append(_packed(retry))
    status = status_pb2.Status(code=status_of(error).value[0], message=_text(error), details=details)
    return (CODE_KEY, error.code), (DETAILS_KEY, status.SerializeToString())


async def abort_with(context: grpc.aio.ServicerContext[Any, Any], error: PenstockError) -> None:
    """End the call with the status of the error. Raises gRPC's abort exception."""
    await context.abort(status_of(error), _text(error), trailing_metadata(error))


def _text(error: PenstockError) -> str:
    # A Python string may contain lone surrogates, which UTF-8 cannot encode.
    return error.message[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
