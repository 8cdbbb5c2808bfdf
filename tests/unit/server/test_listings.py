"""Answers as tables: whole ids wherever they go, and moments that people can read."""

from __future__ import annotations

import pytest

from penstock.server.tables import Listing, print_listing, print_object

ID = "01JPX3J8M5S4G7Q2V9W0E1R2T3"
LISTING = Listing("messages", ("id", "error", "dead_at_ms"))


def answer(**more):
    entry = {"id": ID, "error": "e" * 70, "dead_at_ms": 1_760_000_000_123, **more}
    return {"messages": [entry], "total": 1, "page": 1}


def test_a_pipe_gets_whole_lines(capsys):
    print_listing(answer(), LISTING)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "error", "dead_at"]
    assert line.split(maxsplit=2) == [ID, "e" * 60, "2025-10-09T08:53:20.123Z"]


def test_a_narrow_terminal_cuts_anything_but_ids(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    print_listing(answer(), LISTING)
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith(ID) and "…" in line and len(line) <= 60


@pytest.mark.parametrize(("value", "shown"), [(1_760_000_000_000, "2025-10-09T08:53:20.000Z"), (None, "-"), (0, "0")])
def test_moments_of_one_thing(capsys, value, shown):
    print_object({"opens_at_ms": value, "lease_ms": 30_000, "heartbeat_ms": 3_000})
    first, second, third = capsys.readouterr().out.splitlines()
    assert third.split() == ["heartbeat_ms", "3000"]
    assert first.strip().split(maxsplit=1) == ["opens_at", shown]
    assert second.split() == ["lease_ms", "30000"]
