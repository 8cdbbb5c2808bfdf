"""`penstock doctor`: what it finds on this machine, and what it says where something is wrong."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from penstock.pipeline import java
from penstock.server.config import Settings
from penstock.server.doctor import examine


def findings(**settings):
    return {finding.name: finding for finding in examine(Settings(**settings))}


def test_a_healthy_machine(tmp_path):
    found = findings(data_dir=str(tmp_path / "data"), listen="127.0.0.1:0")
    assert {name for name, finding in found.items() if finding.verdict == "failed"} == set()
    assert {"python", "http port", "data dir", "disk", "fsync", "clock", "java", "pyspark", "pyarrow"} <= set(found)
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


def test_port_in_use_is_reported(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        taken.close()
        with socket.socket() as other:
            other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
            found = findings(data_dir=str(tmp_path), listen=address)["http port"]
    assert found.verdict == "failed" and "--listen" in found.hint


def test_a_directory_that_cannot_be_written_to(tmp_path):
    file, closed = tmp_path / "file", tmp_path / "closed"
    file.touch(0o700)
    closed.mkdir(0o500)
    for place in [file, *([closed] if os.geteuid() else [])]:  # root may write to any directory
        found = findings(data_dir=str(place / "data"), listen="127.0.0.1:0")["data dir"]
        assert found.verdict == "failed" and "--data-dir" in found.hint


def test_a_clock_behind_the_journal(tmp_path):
    file = tmp_path / "shard-0" / "journal" / "1.log"
    file.parent.mkdir(parents=True)
    file.touch()
    os.utime(file, (2**33, 2**33))
    found = findings(data_dir=str(tmp_path), listen="127.0.0.1:0")["clock"]
    assert found.verdict == "failed" and "future" in found.hint


# -- Java ---------------------------------------------------------------------------------------------------------


def a_java(directory, version: str):
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("25", 25), ("21.0.8+1", 21)])
def test_the_java_of_java_home_is_taken(tmp_path, monkeypatch, nowhere, version, number):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "jdk", version)))
    assert java.ensure_java() == java.Java(tmp_path / "jdk", number)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_is_rejected(tmp_path, monkeypatch, nowhere, version):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "jdk", version)))
    with pytest.raises(java.NoJava, match=r"penstock\[jre\]"):
        java.ensure_java()


def test_missing_java_is_reported_with_a_hint(nowhere):
    with pytest.raises(java.NoJava, match="17 or newer"):
        java.ensure_java()
