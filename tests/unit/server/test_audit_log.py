from __future__ import annotations

import asyncio
import json
import threading

import pytest

from penstock.broker.audit import ORIGIN, Origin
from penstock.clock import SystemClock
from penstock.errors import Unavailable
from penstock.security.principal import Principal
from penstock.server import audit_log
from penstock.server.audit_log import FIRST, AuditLog, verify

ACTOR = Principal("key", "k1", "billing", ())


def write(path, *objects: str) -> None:
    async def run() -> None:
        log = AuditLog(path, SystemClock())
        ORIGIN.set(Origin("10.0.0.1", "r1"))
        await asyncio.gather(*(log.write(ACTOR, "queues.delete", each, "ok") for each in objects))
        await log.close()

    asyncio.run(run())


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "audit.log", "a", "b", "c")
    write(tmp_path / "audit.log", "d")
    return tmp_path / "audit.log"


def test_entries_are_chained_over_restarts(path):
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(entry["sequence"], entry["object"]) for entry in entries] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert [entry["previous"] for entry in entries] == [FIRST, *(entry["hash"] for entry in entries[:-1])]
    assert (entries[0]["actor"], entries[0]["address"], entries[0]["request"]) == ("k1", "10.0.0.1", "r1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert verify(path) == (4, entries[3]["hash"], "")


def test_every_changed_byte_is_found(path):
    whole = path.read_bytes()
    for position in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert verify(path).problem, position


@pytest.mark.parametrize("line", [0, 1, 2])
def test_removed_repeated_and_moved_entries_are_found(path, line):
    lines = path.read_bytes().splitlines(keepends=True)
    for others in (lines[:line] + lines[line + 1 :], [lines[line], *lines], [*lines[line + 1 :], *lines[: line + 1]]):
        path.write_bytes(b"".join(others))
        assert verify(path).problem


def test_cut_trail_has_another_newest_hash(path):
    newest = verify(path).newest
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    found = verify(path)
    assert not found.problem and found.newest != newest


def test_torn_line_is_removed_and_the_chain_goes_on(path):
    whole = path.read_bytes()
    for cut in (1, 30, len(whole.splitlines()[-1])):
        path.write_bytes(whole[:-cut])
        write(path, "e")
        assert verify(path).problem == "" and verify(path).entries == 4


def test_end_that_is_no_entry_is_refused(path):
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(Unavailable, match="not an audit entry"):
        AuditLog(path, SystemClock())


def test_failed_write_fails_all_later_ones(tmp_path, monkeypatch):
    async def run() -> None:
        log = AuditLog(tmp_path / "audit.log", SystemClock())
        await log.write(ACTOR, "queues.delete", "a", "ok")

        def full(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(audit_log.os, "fsync", full)
        for _ in range(2):
            with pytest.raises(Unavailable, match="audit trail"):
                await log.write(ACTOR, "queues.delete", "b", "ok")
        monkeypatch.undo()
        with pytest.raises(Unavailable):
            await log.write(ACTOR, "queues.delete", "c", "ok")
        await log.close()

    asyncio.run(run())


def test_refusals_are_sampled(tmp_path):
    async def run() -> None:
        log = AuditLog(tmp_path / "audit.log", SystemClock())
        for _ in range(500):
            log.note(None, "authenticate", "", "unauthenticated")
        await log.close()

    asyncio.run(run())
    assert 100 <= verify(tmp_path / "audit.log").entries <= 102


def test_a_read_decodes_what_it_returns(tmp_path, monkeypatch):
    path = tmp_path / "audit.log"
    write(path, *(f"queue-{number:0{1 + number % 9}}" for number in range(3_000)))
    decoded, decode = [], audit_log._decode
    monkeypatch.setattr(audit_log, "_decode", lambda line: decoded.append(line) or decode(line))
    log = AuditLog(path, SystemClock())
    assert log._sequence == 3_000 and len(decoded) == 1
    for after, limit in ((None, 1), (None, 7), (0, 10), (1, 1), (2_995, 3), (2_999, 10), (3_000, 10), (9_999, 10)):
        decoded.clear()
        expected = range(3_001 - limit, 3_001) if after is None else range(after + 1, min(after + limit, 3_000) + 1)
        assert [entry.sequence for entry in log.read(after, limit)] == list(expected)
        assert len(decoded) <= limit + 20
    assert [entry.sequence for entry in log.read(None, 5_000)] == list(range(1, 3_001))
    asyncio.run(log.close())


def test_an_empty_trail_has_no_entries(tmp_path):
    log = AuditLog(tmp_path / "audit.log", SystemClock())
    assert log.read(None, 5) == log.read(0, 5) == []
    asyncio.run(log.close())


def test_a_writer_that_goes_away_does_not_let_the_next_entry_overtake(tmp_path, monkeypatch):
    sync, began, go_on = AuditLog._sync, threading.Event(), threading.Event()

    def slow(self, data: bytes) -> None:
        if b'"first"' in data:
            began.set()
            assert go_on.wait(30)
        sync(self, data)

    monkeypatch.setattr(AuditLog, "_sync", slow)

    async def run() -> None:
        log = AuditLog(tmp_path / "audit.log", SystemClock())
        first = asyncio.ensure_future(log.write(ACTOR, "queues.delete", "first", "ok"))
        await asyncio.to_thread(began.wait, 30)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.ensure_future(log.write(ACTOR, "queues.delete", "second", "ok"))
        for _ in range(10):
            await asyncio.to_thread(lambda: None)
        go_on.set()
        await second
        await log.close()

    asyncio.run(run())
    assert verify(tmp_path / "audit.log").problem == ""
    assert [each.object for each in AuditLog(tmp_path / "audit.log", SystemClock()).read(0, 10)] == ["first", "second"]
