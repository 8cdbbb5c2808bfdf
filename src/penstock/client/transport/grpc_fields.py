"""Messages of the gRPC contract to and from the JSON of HTTP, field by field. Without I/O."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, TypeAlias

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from msgspec.inspect import AnyType, ListType, Metadata, NoneType, StructType, Type, UnionType, type_info

from penstock.v1 import broker_pb2 as pb

Values: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


# -- requests -----------------------------------------------------------------------------------------------------


def fill(message: Message, values: Values) -> None:
    """Set fields by name. None is left out; text of a query is converted to the type of the field."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if value is None:
            continue
        field = fields[name]
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = getattr(message, name)
            inner.SetInParent()
            # A list stands for a message with one repeated field: so an empty list differs from no list.
            fill(inner, {inner.DESCRIPTOR.fields[0].name: value} if isinstance(value, list) else value)
        elif field.message_type is not None:
            getattr(message, name).update(value)
        elif field.is_repeated:
            getattr(message, name).extend(value)
        else:
            setattr(message, name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return value if isinstance(value, bytes) else str(value)
    if isinstance(value, str):
        return float(value) if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else int(value)
    return value


def fill_with_content(message: Any, values: dict[str, msgspec.Raw]) -> None:
    """A message to publish; its payload is copied as it is, text or bytes."""
    fields = {name: _decode(raw) for name, raw in values.items() if name != "payload"}
    encoded = fields.pop("payload_b64", None)
    fill(message, fields)
    if encoded is not None:
        message.payload = b64decode(encoded)
    else:
        message.json = bytes(values["payload"]).decode()


# -- replies ------------------------------------------------------------------------------------------------------


def plain(message: Message) -> Any:
    """The fields of the message by name, as JSON has them: an optional field that is not set is None."""
    if isinstance(message, Struct):
        return {name: _number(value) for name, value in message.items()}
    if isinstance(message, pb.OffsetRange):
        return [message.first, message.stop]
    if isinstance(message, pb.DeadLetter):
        return _letter(message)
    values: Values = {}
    for field in message.DESCRIPTOR.fields:
        values[field.name] = _value(message, field)
    if "json" in values and "payload" in values:
        _put_content(values, message)
    return values


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [plain(each) for each in value] if field.message_type is not None else list(value)
    if field.has_presence and not message.HasField(field.name):
        return None
    return plain(value) if field.message_type is not None else value


def _put_content(values: Values, message: Message) -> None:
    text, content = values.pop("json"), values.pop("payload")
    if message.WhichOneof("content") == "json":
        values["payload"] = msgspec.Raw(text.encode())
    else:
        values["payload_b64"] = content


def _letter(letter: pb.DeadLetter) -> Values:
    values = {field.name: _value(letter, field) for field in letter.DESCRIPTOR.fields if field.name != "message"}
    message = plain(letter.message)
    del message["receipt"], message["deadline_at_ms"]
    return {**message, **values}


def _number(value: Any) -> Any:
    """Numbers of a Struct are all floats; whole ones become integers again."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Struct):
        return plain(value)
    return [_number(each) for each in value] if not isinstance(value, str | bool | float | None) else value


def as_json(message: Message) -> bytes:
    return _encode(plain(message))


def without_nulls(value: Any, kind: Any) -> Any:
    """The values without fields that are null where the type of the reply has no null: they are left out there.

    A field of protobuf that is not set stands for both.
    """
    return _fitting(value, type_info(kind)) if kind is not None else value


def _fitting(value: Any, kind: Type) -> Any:
    if isinstance(kind, Metadata):
        return _fitting(value, kind.type)
    if isinstance(kind, UnionType):
        return _fitting(value, next((each for each in kind.types if _is_container(each)), AnyType()))
    if isinstance(kind, ListType) and isinstance(value, list):
        return [_fitting(each, kind.item_type) for each in value]
    if isinstance(kind, StructType) and isinstance(value, dict):
        fields = ((field.name, field.type) for field in kind.fields if field.name in value)
        return {name: _fitting(value[name], of) for name, of in fields if value[name] is not None or _has_null(of)}
    return value


def _is_container(kind: Type) -> bool:
    return isinstance(kind.type if isinstance(kind, Metadata) else kind, ListType | StructType)


def _has_null(kind: Type) -> bool:
    if isinstance(kind, Metadata):
        return _has_null(kind.type)
    return isinstance(kind, AnyType | NoneType) or (isinstance(kind, UnionType) and any(map(_has_null, kind.types)))
