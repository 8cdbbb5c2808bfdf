"""Conversion between protobuf messages and structs of `wire/`, by field name.

A request becomes the same struct that HTTP decodes from JSON, so that both have the same checks and error texts.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.unknown_fields import UnknownFieldSet

from penstock import limits
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.v1 import broker_pb2 as pb
from penstock.wire.messages import PublishMessage
from penstock.wire.parse import named_error
from penstock.wire.publishing import is_json

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=msgspec.Struct)


# -- requests -----------------------------------------------------------------------------------------------------


def parse(kind: type[M], data: bytes, size_max: int = limits.REQUEST_BYTES_MAX) -> M:
    """Parse and check a message. Raises InvalidRequest, TooLarge."""
    if len(data) > size_max:
        raise TooLarge(f"a body of more than {size_max} bytes is not taken here; send it in parts")
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"this is not a {kind.DESCRIPTOR.name}: {error}") from None
    check_known(message)
    return message


def check_known(message: Message) -> None:
    """Refuse unknown fields, because a newer client expects them to have an effect."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise InvalidRequest(
            f"{message.DESCRIPTOR.name}: field number {unknown[0].field_number} is not known to this server",
            details={"field": str(unknown[0].field_number)},
        )


def convert(values: Mapping[str, Any], shape: type[S], row: int | None = None) -> S:
    """The values as a struct. Raises InvalidRequest."""
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise named_error(error, row, shape) from None


def values_of(message: Message, row: int = 0) -> dict[str, Any]:
    """The values of the message by field name, without absent optional fields and empty lists.

    The content of a message to publish has the form of `wire/`; `row` is its row in the request, for errors.
    """
    check_known(message)
    values = dict(_plain_defaults(message.DESCRIPTOR))
    for field, value in message.ListFields():
        values[field.name] = _value_of(field, value)
    if isinstance(message, pb.NewMessage | pb.ScheduleMessage):
        _convert_content(values, row)
    return values


def _value_of(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return {key: _value_in(each) for key, each in value.items()}
    if field.is_repeated:
        return [values_of(each, row) for row, each in enumerate(value)]
    return _value_in(value)


def _value_in(value: Any) -> Any:
    if isinstance(value, pb.HeldOffsets):
        return dict(value.offsets)
    if isinstance(value, pb.RetryDelays):
        return list(value.ms)  # a message of its own, so that an empty list differs from an absent field
    return values_of(value) if isinstance(value, Message) else value


def _convert_content(values: dict[str, Any], row: int) -> None:
    if "json" in values:
        text = values.pop("json").encode()
        if not is_json(text):
            raise InvalidRequest(
                f"message {row}, json: is not JSON, or nested deeper than {limits.JSON_DEPTH_MAX} levels",
                details={"row": row, "field": "json"},
            )
        values["payload"] = msgspec.Raw(text)
    elif "payload" in values:
        # Bytes are converted to base64 as in JSON; clients avoid that cost with frames.
        values["payload_b64"] = b64encode(values.pop("payload")).decode()


@cache
def _plain_defaults(descriptor: Descriptor) -> dict[str, Any]:
    """Fields without presence have their default value; the checks of `wire/` decide whether it is valid."""
    return {
        field.name: field.default_value
        for field in descriptor.fields
        if not field.has_presence and not field.is_repeated
    }


def in_frames(form: int) -> bool:
    """True for the form FRAMES, False for MESSAGES. Raises InvalidRequest."""
    if form not in (pb.MESSAGES, pb.FRAMES):
        raise InvalidRequest(f"form: {form} is neither MESSAGES (0) nor FRAMES (1)", details={"field": "form"})
    return form == pb.FRAMES


class _Each(msgspec.Struct):
    messages: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]


def messages_each(messages: Sequence[pb.NewMessage]) -> list[PublishMessage | PenstockError]:
    """Each message, or its error."""
    parsed: list[PublishMessage | PenstockError] = []
    for row, each in enumerate(convert({"messages": list(messages)}, _Each).messages):
        try:
            parsed.append(convert(values_of(each, row), PublishMessage, row))
        except PenstockError as error:
            parsed.append(error)
    return parsed


# -- replies ------------------------------------------------------------------------------------------------------


def fill_message(message: M, values: Any) -> M:
    """Set the fields of the message by name and return it; None is left out. Sequences set fields by their order."""
    fields = message.DESCRIPTOR.fields_by_name
    if isinstance(values, msgspec.Struct):
        values = msgspec.structs.asdict(values)
    if not isinstance(values, Mapping):
        values = dict(zip(fields, values, strict=True))
    for name, value in values.items():
        if value is None or value is msgspec.UNSET or name not in fields:
            continue
        field = fields[name]
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        elif field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, name), value)
        elif field.is_repeated:
            for each in value:
                _fill_one(getattr(message, name).add(), each)
        else:
            getattr(message, name).SetInParent()
            _fill_one(getattr(message, name), value)
    return message


def _fill_map(entries: Any, values: Mapping[Any, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            entries[key].offsets.update(value)
        else:
            entries[key] = value


def _fill_one(message: Message, values: Any) -> None:
    if isinstance(message, Struct):
        message.update(values)
    elif isinstance(message, pb.ScheduleMessage):
        fill_message(message, {**msgspec.structs.asdict(values), "payload": None})
        if isinstance(values.payload_b64, str):
            message.payload = b64decode(values.payload_b64)
        else:
            message.json = bytes(values.payload).decode()
    else:
        fill_message(message, values)
