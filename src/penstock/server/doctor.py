"""`penstock doctor`: check the requirements of the broker and of the pipeline; one line each, with a hint on
failure."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from penstock import limits
from penstock.errors import PenstockError
from penstock.server.config import Address, Settings
from penstock.server.remote import Remote

Verdict = Literal["ok", "note", "warning", "failed"]
SYNCS = 20
SLOW_SYNC_MS = 20.0
FREE_BYTES_MIN = 1024 * limits.MIB
CLOCK_AHEAD_S = 60


class Finding(NamedTuple):
    name: str
    verdict: Verdict
    found: str
    hint: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Run all checks in order. The file written to measure the disk is removed; nothing else is changed."""
    yield _python()
    yield _port("http port", settings.listen_address)
    directory = Path(settings.data_dir)
    yield _data_dir(directory)
    yield _disk_space(directory)
    yield _fsync(directory)
    yield _clock(directory)
    yield from _packages()
    yield _java()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.flags.optimize:
        return Finding("python", "failed", f"{version} -O", "assertions are part of the product: run without -O")
    return Finding("python", "ok", version)


def _port(name: str, address: Address) -> Finding:
    if not address.port:
        return Finding(name, "ok", "the server chooses a free port")
    with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return _port_in_use(name, address, error)
    return Finding(name, "ok", f"{address} is free")


def _port_in_use(name: str, address: Address, error: OSError) -> Finding:
    try:
        page = Remote(f"http://{address}").ask("front_page")
        if page.get("name") == "penstock":
            return Finding(name, "ok", f"a broker answers at {address}, version {page['version']}")
    except (PenstockError, AttributeError, ValueError):
        pass
    return Finding(
        name, "failed", f"{address}: {error.strerror or error}", "choose another address with --listen HOST:PORT"
    )


def _data_dir(directory: Path) -> Finding:
    there = _nearest_existing(directory)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding("data dir", "failed", f"{there} cannot be written to", "choose another one with --data-dir DIR")
    return Finding("data dir", "ok", str(directory) if directory.exists() else f"{directory} will be created")


def _disk_space(directory: Path) -> Finding:
    free = shutil.disk_usage(_nearest_existing(directory)).free
    found = f"{free / 1024**3:.1f} GiB free"
    if free < FREE_BYTES_MIN:
        return Finding("disk", "warning", found, "below 1 GiB a busy broker soon refuses to publish: free some space")
    return Finding("disk", "ok", found)


def _fsync(directory: Path) -> Finding:
    took = []
    try:
        with tempfile.TemporaryFile(dir=_nearest_existing(directory)) as file:
            for _ in range(SYNCS):
                file.write(bytes(4096))
                file.flush()
                begun = time.perf_counter()
                os.fdatasync(file.fileno())
                took.append((time.perf_counter() - begun) * 1000)
    except OSError as error:
        return Finding("fsync", "failed", str(error.strerror or error), "the data directory must be on a real disk")
    median = statistics.median(took)
    found = f"{median:.2f} ms"
    if median > SLOW_SYNC_MS:
        hint = "every publish waits for this: use a faster disk, or --fsync interval if losing a second is acceptable"
        return Finding("fsync", "warning", found, hint)
    return Finding("fsync", "ok", found)


def _clock(directory: Path) -> Finding:
    """Compare the clock with the newest journal file: journal time stands still until the clock has passed it."""
    newest = max((path.stat().st_mtime for path in directory.glob("shard-*/journal/*.log")), default=0.0)
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if newest > now + CLOCK_AHEAD_S:
        hint = f"the journal was written {newest - now:.0f} s in the future of this clock: set it right (NTP)"
        return Finding("clock", "failed", shown, hint)
    return Finding("clock", "ok", shown)


def _packages() -> Iterator[Finding]:
    spark = "pip install 'penstock[spark]', if you want the pipeline"
    yield _package("pyspark", lambda version: version.startswith("4.3."), "the pipeline is made for version 4.3", spark)
    yield _package("pyarrow", lambda _: True, "", spark)
    yield _package("deltalake", lambda _: True, "", spark)
    yield _package("pandas", lambda version: version < "3", "Spark does not support pandas 3: use a 2.x", spark)


def _package(name: str, is_right: Callable[[str], bool], wrong: str, missing: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "note", "not installed", missing)
    return Finding(name, "ok", version) if is_right(version) else Finding(name, "warning", version, wrong)


def _java() -> Finding:
    from penstock.pipeline.java import HINT, NoJava, ensure_java

    before = os.environ.get("JAVA_HOME")
    try:
        java = ensure_java()
    except NoJava:
        return Finding("java", "note", "no version that Spark supports", f"for the pipeline, {HINT}")
    finally:
        if before is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before
    return Finding("java", "ok", f"{java.version}, {java.home}")


def _nearest_existing(directory: Path) -> Path:
    """The directory, or its nearest existing parent."""
    directory = directory.absolute()
    while not directory.exists():
        directory = directory.parent
    return directory
