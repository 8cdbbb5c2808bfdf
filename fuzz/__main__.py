"""`python -m fuzz [TARGET…] [--runs N] [--seed S]`, or `python -m fuzz TARGET --replay FILE`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzz.driver import Finding, fuzz
from fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Any bytes parse, or raise the documented error."
    )
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is named")
    parser.add_argument("--runs", type=int, default=100_000, help="mutated inputs per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="run one saved input through the one named target")
    parser.add_argument("--list", action="store_true", help="name the targets with their invariants")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if options.list:
        for name, target in TARGETS.items():
            print(f"{name:16} {target.check.__doc__}")
        return 0
    if options.replay:
        TARGETS[options.targets[0]].check(options.replay.read_bytes())
        print("the invariant holds")
        return 0
    for name in options.targets or TARGETS:
        started = time.monotonic()
        try:
            fuzz(TARGETS[name], options.runs, options.seed)
        except Finding as finding:
            saved = Path(f"fuzz-{name}.bin")
            saved.write_bytes(finding.data)
            print(f"{name}: {finding.cause!r}\nreplay with: python -m fuzz {name} --replay {saved}", file=sys.stderr)
            return 1
        print(f"{name:16} {options.runs} inputs in {time.monotonic() - started:.1f} s, the invariant held")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
