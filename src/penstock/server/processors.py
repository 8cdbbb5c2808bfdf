"""How many processors this process may use, by what the system and its container allow."""

from __future__ import annotations

import os
from pathlib import Path


def processors(root: Path = Path("/")) -> float:
    """May be a fraction: containers are given shares of time. `root` is where the system's own files are."""
    try:
        count: float = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        count = os.cpu_count() or 1
    return min([count, *(_quota(group) for group in _groups(root))])


def _groups(root: Path) -> list[Path]:
    """The control groups that this process is in, as far as can be seen from here; a limit of any of them holds."""
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [top]
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group = top / own
    return [group, *(parent for parent in group.parents if parent.is_relative_to(top))] if own else [top]


def _quota(group: Path) -> float:
    """Of time, in processors; infinite where there is none, or where nobody says."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return float("inf") if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")
