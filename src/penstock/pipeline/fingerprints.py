"""Errors that differ only in numbers, ids, paths and quoted words are one kind of error. Pure."""

from __future__ import annotations

import hashlib
import re

READ_MAX = 2_000
LENGTH_MAX = 200
"""What follows says which, rarely what."""
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
"""(what, instead), one after the other."""
_COMPILED = [(re.compile(what, re.ASCII), instead) for what, instead in RULES]


def pattern_of(error: str) -> str:
    """The error without what differs from case to case."""
    error = error[:READ_MAX]
    for what, instead in _COMPILED:
        error = what.sub(instead, error)
    return error.strip()[:LENGTH_MAX]


def fingerprint(pattern: str) -> str:
    """A short name of a kind of error."""
    return hashlib.sha256(pattern.encode()).hexdigest()[:12]
