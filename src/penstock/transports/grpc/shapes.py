"""Conversion between protobuf messages and structs of `wire/`, by field name.

A request becomes the same struct that HTTP decodes from JSON, so that both have the same checks and error texts.
"""

from __future__ import annotations

from base64 import b64encode
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
from penstock.wire.schedules import ScheduleMessage

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


def request_of(message: Message, shape: type[S], **more: Any) -> S:
    """The message as a struct; `more` replaces values that have another form in the message. Raises InvalidRequest."""
    return convert({**values_of(message), **more}, shape)


def convert(values: Mapping[str, Any], shape: type[S], row: int | None = None) -> S:
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise named_error(error, row) from None


def values_of(message: Message) -> dict[str, Any]:
    """The values of the message by field name, without absent optional fields and empty lists."""
    check_known(message)
    values = dict(_plain_defaults(message.DESCRIPTOR))
    for field, value in message.ListFields():
        values[field.name] = _value_of(field, value)
    return values


def _value_of(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return dict(value)
    return [values_of(each) for each in value] if field.is_repeated else values_of(value)


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


class _Messages(msgspec.Struct):
    messages: Annotated[list[PublishMessage], msgspec.Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]


class _Publish(msgspec.Struct):
    publish: Annotated[list[PublishMessage], msgspec.Meta(max_length=limits.BATCH_MESSAGES_MAX)]


class _Each(msgspec.Struct):
    messages: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]


def messages_to_publish(messages: Sequence[pb.NewMessage]) -> list[PublishMessage]:
    """All messages. Raises InvalidRequest for the first invalid one."""
    values, contents = _split_content(messages)
    return _join_content(convert({"messages": values}, _Messages).messages, contents)


def messages_of_transaction(messages: Sequence[pb.NewMessage]) -> list[PublishMessage]:
    values, contents = _split_content(messages)
    return _join_content(convert({"publish": values}, _Publish).publish, contents)


def messages_each(messages: Sequence[pb.NewMessage]) -> list[PublishMessage | PenstockError]:
    """Each message, or its error."""
    values, contents = _split_content(messages)
    parsed: list[PublishMessage | PenstockError] = []
    for row, each in enumerate(convert({"messages": values}, _Each).messages):
        try:
            parsed.append(_with_content(convert(each, PublishMessage, row), contents[row], row))
        except PenstockError as error:
            parsed.append(error)
    return parsed


def _split_content(messages: Sequence[pb.NewMessage]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The values of messages without content, and their contents, which have another form in `wire/`."""
    values = [values_of(message) for message in messages]
    return values, [_content(each) for each in values]


def _join_content(messages: list[PublishMessage], contents: list[dict[str, Any]]) -> list[PublishMessage]:
    for row, message in enumerate(messages):
        _with_content(message, contents[row], row)
    return messages


def scheduled_message(message: pb.ScheduleMessage) -> ScheduleMessage:
    values = values_of(message)
    content = _content(values)
    return _with_content(convert(values, ScheduleMessage), content, 0)


C = TypeVar("C", PublishMessage, ScheduleMessage)


def _content(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the content (`payload` or `json`) from the values and return it."""
    return {name: values.pop(name) for name in ("payload", "json") if name in values}


def _with_content(message: C, content: dict[str, Any], row: int) -> C:
    if "json" in content:
        text = content["json"].encode()
        if not is_json(text):
            raise InvalidRequest(
                f"message {row}, json: is not JSON, or nested deeper than {limits.JSON_DEPTH_MAX} levels",
                details={"row": row, "field": "json"},
            )
        message.payload = msgspec.Raw(text)
    elif "payload" in content:
        # Bytes are converted to base64 as in JSON; clients avoid that cost with frames.
        message.payload_b64 = b64encode(content["payload"]).decode()
    return message


# -- replies ------------------------------------------------------------------------------------------------------


def fill_message(message: M, values: Any) -> M:
    """Set the fields of the message by name and return it; None is left out. Sequences set fields by their order."""
    if isinstance(values, msgspec.Struct):
        values = msgspec.to_builtins(values)
    fields = message.DESCRIPTOR.fields_by_name
    if isinstance(values, Mapping):
        pairs = [(name, value) for name, value in values.items() if value is not None and name in fields]
    else:
        pairs = list(zip(fields, values, strict=True))
    for name, value in pairs:
        field = fields[name]
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        elif field.message_type.GetOptions().map_entry:
            getattr(message, name).update(value)
        elif field.is_repeated:
            for each in value:
                _fill_one(getattr(message, name).add(), each)
        else:
            getattr(message, name).SetInParent()
            _fill_one(getattr(message, name), value)
    return message


def _fill_one(message: Message, values: Any) -> None:
    if isinstance(message, Struct):
        message.update(values)
    else:
        fill_message(message, values)
