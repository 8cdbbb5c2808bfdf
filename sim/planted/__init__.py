"""Planted bugs: patches against `src/`, one per class of bug that systems of this kind have had.

They test the simulator itself. A bug is applied to a copy of the tree and searched for by another interpreter, so the
tree stays clean.

A patch is a unified diff whose first lines, before the diff, describe the bug. It is applied by its old lines and not
by line numbers, so that it survives unrelated changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BATCH = 10
"""Seeds per interpreter: enough to pay for its start, few enough to stop soon after the find."""


class Find(NamedTuple):
    seed: int
    violation: str


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.patch"))


def hunt(name: str, seeds: Sequence[int], minutes: float) -> Find | None:
    """The first of these seeds that finds the bug, or None."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder)
        plant(name, tree)
        for at in range(0, len(seeds), BATCH):
            find = _run(tree, seeds[at : at + BATCH], minutes, name.partition("_")[0])
            if find is not None:
                return find
    return None


def plant(name: str, tree: Path) -> None:
    """The sources in `tree`, with the bug. Files without changes are links, and compiled already."""
    texts = changed(name)
    for folder in ("src/penstock", "sim"):
        _link(ROOT / folder, tree / folder, {ROOT / path for path in texts})
    for path, text in texts.items():
        with (tree / path).open("x") as file:  # never through a link
            file.write(text)


def changed(name: str) -> dict[str, str]:
    """The content of each file that the bug changes."""
    patch = HERE / f"{name}.patch"
    if not patch.exists():
        raise SystemExit(f"there is no planted bug {name}; there are: {', '.join(names())}")
    return {
        path: _apply((ROOT / path).read_text(), hunks, f"{patch.name}: {path}")
        for path, hunks in _parse(patch.read_text()).items()
    }


def _link(folder: Path, copy: Path, left_out: set[Path]) -> None:
    """Link whole directories where possible, and file by file where a file is left out."""
    (copy / "__pycache__").mkdir(parents=True)
    for entry in folder.iterdir():
        if any(entry in path.parents for path in left_out):
            _link(entry, copy / entry.name, left_out)
        elif entry not in left_out and entry.name != "__pycache__":
            (copy / entry.name).symlink_to(entry)
            compiled = Path(cache_from_source(str(entry)))
            if compiled.parent == folder / "__pycache__" and compiled.exists():
                (copy / "__pycache__" / compiled.name).symlink_to(compiled)


SMALL_WORLDS = frozenset({"shards", "processes"})
"""Modules with a world of their own; a bug for one of them begins with its name."""


def _run(tree: Path, seeds: Sequence[int], minutes: float, kind: str) -> Find | None:
    world, call = "world", "run(seed, float(sys.argv[1])).violation"
    if kind in SMALL_WORLDS:
        world, call = kind, "run(seed)"
    script = (
        f"import sys\nfrom sim.{world} import run\n"
        "for seed in map(int, sys.argv[2:]):\n"
        f"    violation = {call}\n"
        "    if violation is not None:\n"
        "        print(seed, violation)\n        break\n"
    )
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, f"{minutes:g}", *map(str, seeds)],
        capture_output=True, text=True, cwd=tree, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if done.returncode:
        # The bug made the simulation itself fail: this counts as a find.
        last = done.stderr.strip().rpartition("\n")[2]
        return Find(seeds[0], f"the run ended with {last} (at one of {len(seeds)} seeds from here)")
    if not done.stdout.strip():
        return None
    seed, _, violation = done.stdout.strip().partition(" ")
    return Find(int(seed), violation)


Hunk = tuple[list[str], list[str]]
"""Lines before, lines after."""


def _parse(text: str) -> dict[str, list[Hunk]]:
    files: dict[str, list[Hunk]] = {}
    hunks: list[Hunk] = []
    for line in text.splitlines():
        if line.startswith("+++ "):
            hunks = files.setdefault(line[4:].split("\t")[0].removeprefix("b/"), [])
        elif line.startswith("@@"):
            hunks.append(([], []))
        elif hunks and not line.startswith(("--- ", "diff ")) and line[:1] in (" ", "-", "+", ""):
            before, after = hunks[-1]
            if line[:1] != "+":
                before.append(line[1:])
            if line[:1] != "-":
                after.append(line[1:])
    return files


def _apply(text: str, hunks: list[Hunk], where: str) -> str:
    lines = text.splitlines()
    for before, after in hunks:
        places = [at for at in range(len(lines) - len(before) + 1) if lines[at : at + len(before)] == before]
        if len(places) != 1:
            raise SystemExit(f"{where}: the lines to change are there {len(places)} times; bring the patch up to date")
        lines[places[0] : places[0] + len(before)] = after
    return "\n".join(lines) + "\n"
