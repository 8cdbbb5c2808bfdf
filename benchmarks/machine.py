"""The machine and the commit of a run."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def notes() -> dict[str, str]:
    return {
        "cpu": _first_match(Path("/proc/cpuinfo"), r"^model name\s*:\s*(.+)$"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _first_match(Path("/proc/meminfo"), r"^MemTotal:\s*(.+)$"),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def commit() -> str:
    """The short commit, with a plus sign if the tree has uncommitted changes."""
    head = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head


def package_versions(*names: str) -> dict[str, str]:
    """Versions of the installed packages."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _first_match(path: Path, pattern: str) -> str:
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1].strip() if match else "unknown"
