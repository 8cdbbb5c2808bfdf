"""The filter language of dead letters: `reason = "max_retries" and error ~ "timeout" and age > 1h`.

    filter      = or
    or          = and { "or" and }
    and         = not { "and" not }
    not         = "not" not | "(" or ")" | comparison
    comparison  = field operator value
    field       = "reason" | "error" | "key" | "id" | "group" | "consumer" | "attempts" | "redriven" | "age"
                | "header" "." name | "payload" { "." name | "[" index "]" }
    operator    = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
    value       = "text in double quotes" | number | number unit | "true" | "false" | "null"
    unit        = "ms" | "s" | "m" | "h" | "d"                     a duration, for age only

Text is compared as text, numbers as numbers; `~` tests for a substring, ignoring case. A missing field is `null`:
`header.tenant != null` means that the header exists. Comparisons of different types are false, and their negations
true. Names with other characters than letters, digits, `_` and `-` are written in quotes.

The length of the text, its nesting depth and the cost of one comparison (a scan of one value) are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock import limits
from penstock.durations import UNITS_MS
from penstock.errors import InvalidRequest

Value = str | int | float | bool | None


class Filterable(Protocol):
    """The values that a filter reads. A comparison reads one value, once, and only if the result depends on it."""

    def field(self, name: str) -> Value: ...

    def header(self, name: str) -> str | None: ...

    def payload(self) -> Any:
        """The decoded payload, or None if it is not JSON."""


class Filter(NamedTuple):
    text: str
    matches: Callable[[Filterable], bool]


def parse_filter(text: str) -> Filter:
    """Compile a filter; an empty one matches every dead letter.

    Raises InvalidRequest, with the field `filter` and the position, for a syntax error.
    """
    if len(text) > limits.FILTER_CHARS_MAX:
        raise InvalidRequest(
            f"a filter of {len(text)} characters is over the limit of {limits.FILTER_CHARS_MAX}",
            details={"field": "filter", "position": limits.FILTER_CHARS_MAX},
        )
    return Filter(text, _Parser(text).parse())


# -- tokens -------------------------------------------------------------------------------------------------------

FIELDS = frozenset({"age", "attempts", "consumer", "error", "group", "id", "key", "reason", "redriven"})
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<duration>[0-9]{1,15}(?:ms|s|m|h|d)\b)
      | (?P<number>-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?(?![A-Za-z0-9_]))
      | (?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")
      | (?P<sign><=|>=|!=|!~|[=<>~()\[\].])
    )""",
    re.VERBOSE,
)
_decode_text = msgspec.json.Decoder(str).decode


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """A recursive-descent parser with one token of lookahead. It builds closures, so matching does not parse again."""

    def __init__(self, text: str):
        self._text = text
        self._end = 0
        """The position of the current token."""
        self._token = self._next()

    def parse(self) -> Callable[[Filterable], bool]:
        if self._token.kind == "end":
            return lambda _: True
        found = self._or(0)
        if self._token.kind != "end":
            raise self._refused("expected 'and', 'or' or the end")
        return found

    def _or(self, depth: int) -> Callable[[Filterable], bool]:
        choices = [self._and(depth)]
        while self._take_word("or"):
            choices.append(self._and(depth))
        if len(choices) == 1:
            return choices[0]
        return lambda candidate: any(choice(candidate) for choice in choices)

    def _and(self, depth: int) -> Callable[[Filterable], bool]:
        terms = [self._not(depth)]
        while self._take_word("and"):
            terms.append(self._not(depth))
        if len(terms) == 1:
            return terms[0]
        return lambda candidate: all(term(candidate) for term in terms)

    def _not(self, depth: int) -> Callable[[Filterable], bool]:
        if depth > limits.FILTER_DEPTH_MAX:
            raise self._refused(f"nested deeper than {limits.FILTER_DEPTH_MAX} levels")
        if self._take_word("not"):
            term = self._not(depth + 1)
            return lambda candidate: not term(candidate)
        if self._take_sign("("):
            inside = self._or(depth + 1)
            if not self._take_sign(")"):
                raise self._refused("expected ')'")
            return inside
        return self._comparison()

    def _comparison(self) -> Callable[[Filterable], bool]:
        is_age = self._token.text == "age"
        get = self._field()
        operator = self._token
        if operator.kind != "sign" or operator.text not in _COMPARE:
            raise self._refused("expected one of = != < <= > >= ~ !~")
        self._advance()
        value_token, value = self._token, self._value()
        if (value_token.kind == "duration") != is_age:
            raise self._refused("only age is compared with a duration, like 30m or 7d", value_token)
        if operator.text in ("~", "!~") and not isinstance(value, str):
            raise self._refused(f"{operator.text} needs a text in double quotes", value_token)
        if operator.text in _ORDERED and (value is None or isinstance(value, bool)):
            raise self._refused(f"{operator.text} needs a number or a text", value_token)
        compare = _COMPARE[operator.text]
        if operator.text in ("~", "!~") and isinstance(value, str):
            value = value.casefold()
        return lambda candidate: compare(get(candidate), value)

    def _field(self) -> Callable[[Filterable], Any]:
        token = self._token
        if token.kind != "name":
            raise self._refused("expected the name of a field")
        self._advance()
        if token.text == "payload":
            return self._payload_path()
        if token.text == "header":
            if not self._take_sign("."):
                raise self._refused("expected '.' and the name of a header")
            header = self._name()
            return lambda candidate: candidate.header(header)
        if token.text not in FIELDS:
            raise self._refused(f"there is no field {token.text[:64]!r}; there are {_ALL_FIELDS}", token)
        return lambda candidate: candidate.field(token.text)

    def _payload_path(self) -> Callable[[Filterable], Any]:
        steps: list[str | int] = []
        while True:
            if self._take_sign("."):
                steps.append(self._name())
            elif self._take_sign("["):
                index = self._token
                if index.kind != "number" or not index.text.isdigit():
                    raise self._refused("expected the position of an element")
                steps.append(int(index.text))
                self._advance()
                if not self._take_sign("]"):
                    raise self._refused("expected ']'")
            else:
                break
            if len(steps) > limits.FILTER_DEPTH_MAX:
                raise self._refused(f"a path of more than {limits.FILTER_DEPTH_MAX} steps")
        return lambda candidate: _walk(candidate.payload(), steps)

    def _name(self) -> str:
        token = self._token
        if token.kind not in ("name", "text"):
            raise self._refused("expected a name, in double quotes if it has unusual characters")
        self._advance()
        return self._unquoted(token) if token.kind == "text" else token.text

    def _value(self) -> Value:
        token = self._token
        self._advance()
        if token.kind == "text":
            return self._unquoted(token)
        if token.kind == "number":
            return int(token.text) if token.text.lstrip("-").isdigit() else float(token.text)
        if token.kind == "duration":
            number = token.text.rstrip("mshd")
            return int(number) * UNITS_MS[token.text[len(number) :]]
        if token.kind == "name" and token.text in _WORDS:
            return _WORDS[token.text]
        raise self._refused("expected a text in double quotes, a number, a duration, true, false or null", token)

    def _unquoted(self, token: _Token) -> str:
        try:
            return _decode_text(token.text)
        except msgspec.DecodeError:
            raise self._refused("this text is not a valid JSON string", token) from None

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _next(self) -> _Token:
        at = self._end
        found = _TOKEN.match(self._text, at)
        if found is None:
            at += len(self._text) - at - len(self._text[at:].lstrip())
            if at < len(self._text):
                raise self._refused("unexpected character", _Token("", "", at))
            return _Token("end", "", at)
        self._end = found.end()
        kind = found.lastgroup or ""
        return _Token(kind, found[kind], found.start(kind))

    def _advance(self) -> None:
        self._token = self._next()

    def _take_word(self, word: str) -> bool:
        if (self._token.kind, self._token.text) == ("name", word):
            self._advance()
            return True
        return False

    def _take_sign(self, sign: str) -> bool:
        if (self._token.kind, self._token.text) == ("sign", sign):
            self._advance()
            return True
        return False

    def _refused(self, reason: str, token: _Token | None = None) -> InvalidRequest:
        at = (token or self._token).at
        return InvalidRequest(f"filter, at position {at}: {reason}", details={"field": "filter", "position": at})


# -- comparing ----------------------------------------------------------------------------------------------------

_ALL_FIELDS = ", ".join([*sorted(FIELDS), "header.NAME", "payload.PATH"])
_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}
_ORDERED = frozenset({"<", "<=", ">", ">="})


def _walk(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _comparable(left: Any, right: Any) -> bool:
    return (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))


def _equal(left: Any, right: Any) -> bool:
    return (_comparable(left, right) or type(left) is type(right)) and bool(left == right)


def _contains(left: Any, right: Any) -> bool:
    return isinstance(left, str) and right in left.casefold()


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _comparable(left, right) and left < right,
    "<=": lambda left, right: _comparable(left, right) and left <= right,
    ">": lambda left, right: _comparable(left, right) and left > right,
    ">=": lambda left, right: _comparable(left, right) and left >= right,
    "~": _contains,
    "!~": lambda left, right: not _contains(left, right),
}
