"""Decode request bodies and query strings into structs.

The outcome is a struct or an `InvalidRequest` that names the field. Malformed JSON, text that is not UTF-8, numbers out
of range and too deep nesting raise no other error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from penstock import ids
from penstock.choices import with_choices
from penstock.errors import InvalidRequest
from penstock.wire import patterns
from penstock.wire.messages import Request

T = TypeVar("T")
Q = TypeVar("Q", bound=Request)

_PATH = re.compile(r"^(?P<reason>.*?) - at `(key` in `)?(?P<path>.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`|missing required field `(?P<missing>.*)`", re.DOTALL)
# The decoder's text for a violated pattern -> a readable one.
_FORMS = {f"Expected `str` matching regex {form!r}": f"expected {words}" for form, words in patterns.WORDS.items()}
_NAME = re.compile(r"[A-Za-z_]\w*")
_ROW = re.compile(r"\[(\d+)\]")
_QUERY_FIELDS_MAX = 32
_REASON_CHARS_MAX = 300

# The cache holds valid names only, as lru_cache does not store exceptions; invalid requests cannot fill it.
parse_queue = lru_cache(maxsize=4096)(ids.parse_queue)


def parse_json(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode the body as the decoder's type. Raises InvalidRequest."""
    try:
        # The decoder does not validate the UTF-8 inside raw values.
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise named_error(error, kind=decoder.type) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}" if body else "the body is empty") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def parse_query(kind: type[Q], query: bytes, in_path: Mapping[str, str] = MappingProxyType({})) -> Q:
    """Decode the query string, and parameters of the path, as a struct. A repeated name is ambiguous and refused."""
    values = dict(in_path)
    if query:
        for name, value in _pairs(query):
            if name in values:
                raise InvalidRequest(f"{name[:64]} is given twice", details={"field": name[:64]})
            values[name] = value
    try:
        asked = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise named_error(error, kind=kind) from None
    for name, text in values.items():
        value = getattr(asked, name)
        # The decoder takes more for null and for truth values than the schema does.
        if value is None or (isinstance(value, bool) and text not in ("true", "false")):
            expected = "leave it out instead" if value is None else "expected true or false"
            raise InvalidRequest(f"{name}: {text[:64]!r} is not a value, {expected}", details={"field": name})
    return asked


def _pairs(query: bytes) -> Sequence[tuple[str, str]]:
    try:
        text = query.decode()
        if not ("%" in text or "+" in text):
            # Most query strings have no escapes; splitting takes a tenth of the time of a full parse.
            fields = [tuple(field.split("=", 1)) for field in text.split("&", _QUERY_FIELDS_MAX)]
            if len(fields) <= _QUERY_FIELDS_MAX and all(len(field) == 2 for field in fields):
                return cast("list[tuple[str, str]]", fields)
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError:
        raise InvalidRequest("the query string is not percent-encoded UTF-8") from None


def named_error(error: msgspec.DecodeError, row: int | None = None, kind: Any = None) -> InvalidRequest:
    """An InvalidRequest that names the field and the row of the message, from the path that the decoder reports.

    With the `kind` that was decoded it also names the choices of a field that has choices.
    """
    text = str(error)
    at = _PATH.match(text)
    path = at["path"].removeprefix("$").lstrip(".") if at else ""
    details: dict[str, Any] = {}
    if row is None and (found := _ROW.search(path)):
        row = int(found[1])
    if row is not None:
        details["row"] = row
    reason = at["reason"] if at else text
    reason = with_choices(_FORMS.get(reason, reason), path, kind)
    unknown = _UNKNOWN.search(reason)
    names = _NAME.findall(path)
    field = (unknown["name"] or unknown["missing"]) if unknown else names[-1] if names else ""
    if field:
        details["field"] = field[:64]
    # The name of an unknown field can be as long as the body, so it is cut.
    reason = reason[:_REASON_CHARS_MAX]
    return InvalidRequest(f"{path}: {reason}" if path else reason, details=details)
