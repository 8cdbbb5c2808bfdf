"""A value that must not be shown: not by `repr`, not in a log line, not in an error, not in a pickle."""

from __future__ import annotations

import hmac
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T", bound=str | bytes)


class Secret(Generic[T]):
    """Holds a secret text or secret bytes. `reveal` is the only way to the value."""

    __slots__ = ("_value",)

    def __init__(self, value: T):
        self._value = value

    def reveal(self) -> T:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        """Compares in constant time."""
        return isinstance(other, Secret) and hmac.compare_digest(_bytes(self._value), _bytes(other._value))

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
