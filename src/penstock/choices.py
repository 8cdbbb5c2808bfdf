"""Name the choices of a field in the error about a value that is none of them, and the field that is nearest to an
unknown one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

_NOT_A_CHOICE = "Invalid enum value"
_UNKNOWN = re.compile(r"Object contains unknown field `(\w{1,64})`")


def with_choices(reason: str, path: str, kind: Any) -> str:
    """The reason of a msgspec error about the field at `path` (`$.backoff.kind`) of a `kind`, with the field's choices;
    or about an unknown field of the object at `path`, with the field that is nearest to it.

    Other reasons are returned as they are.
    """
    if reason.startswith(_NOT_A_CHOICE):
        literals = [inner for inner in _types_at(path, kind) if isinstance(inner, msgspec.inspect.LiteralType)]
        choices = [str(value) for each in literals for value in each.values]
        return f"{reason.removeprefix(_NOT_A_CHOICE).strip()} is not one of {', '.join(choices)}" if choices else reason
    if unknown := _UNKNOWN.fullmatch(reason):
        names = [field.encode_name for field in _fields(_types_at(path, kind))]
        near = difflib.get_close_matches(unknown[1], names, n=1)
        return f"{reason}; did you mean '{near[0]}'?" if near else reason
    return reason


def _types_at(path: str, kind: Any) -> list[msgspec.inspect.Type]:
    types = list(_parts(msgspec.inspect.type_info(kind)))
    for name in re.findall(r"[A-Za-z_]\w*", path):
        types = [inner for field in _fields(types) if field.encode_name == name for inner in _parts(field.type)]
    return types


def _fields(types: list[msgspec.inspect.Type]) -> list[msgspec.inspect.Field]:
    return [field for each in types if isinstance(each, msgspec.inspect.StructType) for field in each.fields]


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
