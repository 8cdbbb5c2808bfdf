"""Errors that are the same but for details."""

from __future__ import annotations

import pytest

from penstock.fingerprints import fingerprint, pattern_of

CASES = {
    "order 4711 is broken": "order <number> is broken",
    "timeout after 30.5 s, tried 3 times": "timeout after <number> s, tried <number> times",
    "KeyError: 'user-42'": "KeyError: <text>",
    'no column "a b" in `t`': "no column <text> in <text>",
    "cannot open /var/lib/app/file.txt: denied": "cannot open <path>: denied",
    "user 5f0c954e-3b1a-4f0e-9d6b-0a4c8e3f2b11 is gone": "user <id> is gone",
    "message 01M7H7MX135N6GYATTNKHWCHK8 is gone": "message <id> is gone",
    "commit deadbeef0123456789 not found": "commit <id> not found",
    "object at 0x7f87a3f94850": "object at <number>",
    "connect to 10.0.0.7:5432 failed": "connect to <address> failed",
    "GET https://example.com/a?b=1 said 503": "GET <url> said <number>",
    "mail to ada@example.com bounced": "mail to <email> bounced",
    "at 2026-11-16T03:28:39.123Z": "at <time>",
    "two\n   lines": "two lines",
    "HTTP/2 error in v2api": "HTTP/<number> error in v2api",
    "": "",
}


@pytest.mark.parametrize("error", CASES)
def test_what_differs_is_left_out(error):
    assert pattern_of(error) == CASES[error]


def test_a_name_for_each_kind():
    one, same, other = (
        fingerprint(pattern_of(f"order {what} is {how}")) for what, how in ((1, "a"), (2, "a"), (3, "b"))
    )
    assert one == same != other
    assert len(one) == 12


def test_long_errors_are_cut():
    assert len(pattern_of("word " * 1_000)) <= 200
