"""A SPARK_HOME whose Python workers import the PySpark that is installed.

The path of every worker begins with SPARK_HOME/python/lib/pyspark.zip, and each worker compiles the modules of a zip
again: it starts in 1.5 s instead of 0.5 s, and a streaming query has seven kinds of workers. Without that file a worker
imports the installed package, which is compiled once. So this home has all parts of Spark except that file.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zlib
from pathlib import Path

_PARTS = ("bin", "conf", "data", "jars", "licenses", "sbin")


def ensure_home() -> None:
    """Set SPARK_HOME unless it is set. If no directory can be written, Spark uses its own."""
    if "SPARK_HOME" in os.environ:
        return
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if installed is None or not (installed / "jars").is_dir():
        return  # the client of Spark Connect, without Spark
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "penstock" / f"spark-{zlib.crc32(os.fsencode(installed)):08x}"
        if not _is_for(home, installed):
            _make(home, installed)
    except (OSError, RuntimeError):  # the cache cannot be written, or the user has no home directory
        return
    os.environ["SPARK_HOME"] = str(home)


def _is_for(home: Path, installed: Path) -> bool:
    try:
        return all((home / part).readlink() == installed / part for part in _present(installed))
    except OSError:  # not there, or no link
        return False


def _make(home: Path, installed: Path) -> None:
    """Atomic. The home that another process has made meanwhile stays, as it may be in use."""
    home.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for part in _present(installed):
            (fresh / part).symlink_to(installed / part)
        try:
            fresh.rename(home)
        except OSError:
            if _is_for(home, installed):
                return
            # The home is of another version, or incomplete.
            home.rename(fresh / "before")
            fresh.rename(home)
            shutil.rmtree(home / "before")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _present(installed: Path) -> list[str]:
    return [part for part in _PARTS if (installed / part).exists()]
