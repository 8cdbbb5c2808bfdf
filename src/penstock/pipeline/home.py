"""A SPARK_HOME whose Python workers import the PySpark that is installed.

The path of every worker begins with SPARK_HOME/python/lib/pyspark.zip, and what is in a zip is compiled anew in each of
them: 1.5 s before their first line instead of 0.5, and a streaming query has seven kinds of them. Where there is no
such file they go on to the installed package, which was compiled once. So this home has everything but that.
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
    """Set SPARK_HOME, unless somebody has; where no home can be made Spark finds its own."""
    if "SPARK_HOME" in os.environ:
        return
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if installed is None or not (installed / "jars").is_dir():
        return  # the client alone, without a Spark
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "penstock" / f"spark-{zlib.crc32(os.fsencode(installed)):08x}"
        if not _is_for(home, installed):
            _make(home, installed)
    except (OSError, RuntimeError):  # nowhere to write; or nobody's home
        return
    os.environ["SPARK_HOME"] = str(home)


def _is_for(home: Path, installed: Path) -> bool:
    try:
        return all((home / part).readlink() == installed / part for part in _present(installed))
    except OSError:  # not there, or no link
        return False


def _make(home: Path, installed: Path) -> None:
    """All of it or nothing; and what another process has made meanwhile stays, as it may be in use."""
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
            # Of another version, or half deleted.
            home.rename(fresh / "before")
            fresh.rename(home)
            shutil.rmtree(home / "before")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _present(installed: Path) -> list[str]:
    return [part for part in _PARTS if (installed / part).exists()]
