"""Messages of the contract <-> values of `wire/`. Both have the same names, which is all that is needed in between.

A request becomes the struct that the HTTP edge makes of its JSON, so that the same rules are kept in the same words.
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


# -- coming in ----------------------------------------------------------------------------------------------------


def parse(kind: type[M], data: bytes, size_max: int = limits.REQUEST_BYTES_MAX) -> M:
    """Raises InvalidRequest for bytes that are not such a message, and TooLarge."""
    if len(data) > size_max:
        raise TooLarge(f"a body of more than {size_max} bytes is not taken here; send it in parts")
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"this is not a {kind.DESCRIPTOR.name}: {error}") from None
    check_known(message)
    return message


def check_known(message: Message) -> None:
    """Refuse fields that only a newer server would understand: what they ask for would silently not be done."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise InvalidRequest(
            f"{message.DESCRIPTOR.name}: field number {unknown[0].field_number} is not known to this server",
            details={"field": str(unknown[0].field_number)},
        )


def asked(message: Message, shape: type[S], **more: Any) -> S:
    """The message as this struct; `more` are values that it has in another form. Raises InvalidRequest."""
    return convert({**values_of(message), **more}, shape)


def convert(values: Mapping[str, Any], shape: type[S], row: int | None = None) -> S:
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise named_error(error, row) from None


def values_of(message: Message) -> dict[str, Any]:
    """What the message says, by name. What is optional and not there, or an empty list, is left out."""
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
    """Fields that cannot be left out: zero is what they say then, and whether that will do is for the rules to say."""
    return {
        field.name: field.default_value
        for field in descriptor.fields
        if not field.has_presence and not field.is_repeated
    }


def in_frames(form: int) -> bool:
    """Which of the two forms is asked for."""
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
    """All of them; raises InvalidRequest for the first that is wrong."""
    values, contents = _parted(messages)
    return _joined(convert({"messages": values}, _Messages).messages, contents)


def messages_of_transaction(messages: Sequence[pb.NewMessage]) -> list[PublishMessage]:
    values, contents = _parted(messages)
    return _joined(convert({"publish": values}, _Publish).publish, contents)


def messages_each(messages: Sequence[pb.NewMessage]) -> list[PublishMessage | PenstockError]:
    """Each of them, or its own error in its place."""
    values, contents = _parted(messages)
    parsed: list[PublishMessage | PenstockError] = []
    for row, each in enumerate(convert({"messages": values}, _Each).messages):
        try:
            parsed.append(_with_content(convert(each, PublishMessage, row), contents[row], row))
        except PenstockError as error:
            parsed.append(error)
    return parsed


def _parted(messages: Sequence[pb.NewMessage]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Their values, and what they carry: that has another form here than the rules know."""
    values = [values_of(message) for message in messages]
    return values, [_content(each) for each in values]


def _joined(messages: list[PublishMessage], contents: list[dict[str, Any]]) -> list[PublishMessage]:
    for row, message in enumerate(messages):
        _with_content(message, contents[row], row)
    return messages


def scheduled_message(message: pb.ScheduleMessage) -> ScheduleMessage:
    values = values_of(message)
    content = _content(values)
    return _with_content(convert(values, ScheduleMessage), content, 0)


C = TypeVar("C", PublishMessage, ScheduleMessage)


def _content(values: dict[str, Any]) -> dict[str, Any]:
    """What the message carries, taken out of its values."""
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
        # The way that bytes take through JSON; who minds the detour sends a frame.
        message.payload_b64 = b64encode(content["payload"]).decode()
    return message


# -- going out ----------------------------------------------------------------------------------------------------


def filled(message: M, values: Any) -> M:
    """The message with these values, by name; None is left out. Lists stand for messages by the order of fields."""
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
        filled(message, values)
