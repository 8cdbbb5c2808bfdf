"""Name the choices of a field in the error about a value that is none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_NOT_A_CHOICE = "Invalid enum value"


def with_choices(reason: str, path: str, kind: Any) -> str:
    """The reason of a msgspec error about the field at `path` (`$.backoff.kind`) of a `kind`, with the field's choices.

    Other reasons are returned as they are.
    """
    if not reason.startswith(_NOT_A_CHOICE):
        return reason
    types = [msgspec.inspect.type_info(kind)]
    for name in re.findall(r"[A-Za-z_]\w*", path):
        types = [
            field.type
            for each in types
            for inner in _parts(each)
            if isinstance(inner, msgspec.inspect.StructType)
            for field in inner.fields
            if field.encode_name == name
        ]
    choices = [
        str(value)
        for each in types
        for inner in _parts(each)
        if isinstance(inner, msgspec.inspect.LiteralType)
        for value in inner.values
    ]
    return f"{reason.removeprefix(_NOT_A_CHOICE).strip()} is not one of {', '.join(choices)}" if choices else reason


def _parts(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """The type itself without metadata, the members of a union, the items of a list."""
    if isinstance(kind, msgspec.inspect.Metadata):
        yield from _parts(kind.type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _parts(each)
    elif isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        yield from _parts(kind.item_type)
    else:
        yield kind
