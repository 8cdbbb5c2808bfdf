"""`python -m torture`: run campaigns, print what they found, and append it to results.jsonl."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

from torture import campaign, disk, fences, full

RESULTS = Path(__file__).parent / "results.jsonl"
LIVES = {"cut": 1_000, "kill": 2_000, "error": 200, "stop": 50}
FENCES = {"race": 10_000, "zombie": 200}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", default=[*LIVES, "full", *FENCES], help="cut, kill, error, stop, full, race, zombie"
    )
    parser.add_argument("--lives", type=int, help="lives of each kind, instead of the usual number")
    parser.add_argument("--seconds", type=float, default=3600, help="about the longest time for each kind")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--cycles", type=int, default=20, help="times that the disk is filled")
    parser.add_argument("--idle", type=float, default=60, help="seconds before the disk is measured")
    chosen = parser.parse_args()
    os.nice(10)
    bad = 0
    for kind in chosen.kinds:
        reason = disk.unusable() if kind in ("cut", "full") else campaign.unusable(kind)
        if reason:
            print(f"SKIPPED {kind}: {reason}")
            continue
        began = time.monotonic()
        if kind in FENCES:
            count = chosen.lives or FENCES[kind]
            for each in fences.measure(kind, count=count, seconds=chosen.seconds, seed=chosen.seed):
                bad += _report(each)
            continue
        with tempfile.TemporaryDirectory(prefix="torture-") as root:
            if kind == "full":
                found = full.measure(Path(root), chosen.cycles, chosen.idle)
            else:
                lives = chosen.lives or LIVES[kind]
                found = campaign.Campaign(kind, Path(root), chosen.seed).run(lives, chosen.seconds)
        bad += _report(found | {"took_s": round(time.monotonic() - began)})
    return 1 if bad else 0


def _report(found: dict[str, object]) -> int:
    """The number of violations."""
    found |= _machine()
    print(json.dumps(found), flush=True)
    with RESULTS.open("a") as results:
        results.write(json.dumps(found) + "\n")
    return len(found["violations"])  # type: ignore[arg-type]


def _machine() -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d"), "commit": commit.stdout.strip(), "kernel": platform.release(),
        "python": platform.python_version(), "cores": os.cpu_count(),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
