"""Group errors by pattern: errors that differ only in numbers, ids, paths and quoted words have one pattern. Pure."""

from __future__ import annotations

import hashlib
import re

READ_MAX = 2_000
LENGTH_MAX = 200
"""The beginning of an error decides its pattern."""
RULES: tuple[tuple[str, str], ...] = (
    (r"\s+", " "),
    (r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?::[0-9]+)?\b", "<address>"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}(?::[0-9]{2}){2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?", "<time>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<id>"),
    (r"\b0x[0-9a-fA-F]+\b", "<number>"),
    (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "<id>"),
    (r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", "<url>"),
    (r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", "<email>"),
    (r"'[^']*'|\"[^\"]*\"|`[^`]*`", "<text>"),
    (r"(?:^|(?<=[\s(=:,]))(?:~|\.{1,2})?(?:/[^\s/:,()<>]+)+/?", "<path>"),
    (r"\b[A-Za-z]:\\\\?[^\s:,()<>]+", "<path>"),
    (r"[-+]?(?<![A-Za-z<])\b[0-9]+(?:[.,][0-9]+)*", "<number>"),
)  # fmt: skip
"""(regular expression, replacement), applied in this order."""
_COMPILED = [(re.compile(expression, re.ASCII), replacement) for expression, replacement in RULES]


def pattern_of(error: str) -> str:
    """The error with its variable parts replaced."""
    error = error[:READ_MAX]
    for expression, replacement in _COMPILED:
        error = expression.sub(replacement, error)
    return error.strip()[:LENGTH_MAX]


def fingerprint(pattern: str) -> str:
    """A short hash of a pattern."""
    return hashlib.sha256(pattern.encode()).hexdigest()[:12]
