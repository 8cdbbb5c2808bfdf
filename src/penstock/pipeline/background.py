"""Spark beside a broker on one machine: it takes the CPU that is left over, and steps forward where that is nothing.

Being nice is not enough. A broker and its clients wake up thousands of times a second, and find each core taken by a
nice thread that runs on to the end of its slice. Threads of the class `SCHED_IDLE` make way at once, and a core that
runs nothing else counts as free. But where every core is busy they get a three-hundredth of one, and an archive that
stands still fills the disk; so a watch looks at what they get, and lets them be merely nice while that is too little.
The kernel lets only some come back (root, or who has a limit `nice` that allows it); all others are just nice.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.pipeline.options import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NICENESS = 10
"""Of those who have stepped forward: a tenth of the CPU beside one other busy process."""
_NICENESS_MAX = 19
NICENESS_VARIABLE = "PENSTOCK_SPARK_NICE"
"""In the environment: be nice by this much and no more, always; 0 for sessions that do not stand back."""

WATCH_EVERY_S = 2.0
_STARVED = 0.1
"""Whoever wants more and had less than this of one core starves."""
_FED = 0.5
"""Whoever has this much of one core although merely nice will have enough in the background too."""
_WAITED = 0.1
"""Who has waited for a core for a smaller part of the time than this, all its threads together, wants no more."""


class Use(NamedTuple):
    """What threads got of the cores, and how long they stood in line for one."""

    ran_s: float
    waited_s: float


def stand_back(session: SparkSession) -> None:
    """Let this session's JVM, and the workers it starts, leave the CPU to whoever else wants it."""
    asked = asked_niceness()
    jvm = getattr(session.sparkContext._gateway, "proc", None)
    if jvm is None or asked == 0:
        return  # without a process of ours somebody else has started it, such as spark-submit
    _be_nice(jvm.pid, NICENESS if asked is None else asked)
    if asked is None and jvm.pid not in _watched and may_come_back() and use_of(jvm.pid):
        _watched.add(jvm.pid)
        watch = Watch(jvm.pid, lambda: jvm.poll() is not None)
        watch.look()

        def watch_to_the_end() -> None:
            watch.run()
            _watched.discard(jvm.pid)

        threading.Thread(target=watch_to_the_end, name="penstock-background", daemon=True).start()


_watched: set[int] = set()
"""Processes. A session may be asked for many times; its JVM is watched once."""


def may_come_back() -> bool:
    """True if what was put in the background can be taken out of it again. Tried out by a thread that then ends."""
    if not hasattr(os, "SCHED_IDLE"):
        return False
    outcome: list[bool] = []

    def try_it() -> None:
        thread = threading.get_native_id()
        try:
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            return
        outcome.append(True)

    trial = threading.Thread(target=try_it, name="penstock-background-trial")
    trial.start()
    trial.join()
    return bool(outcome)


def asked_niceness() -> int | None:
    """What the environment says, or None if it says nothing. Raises PipelineError for what is no niceness."""
    asked = os.environ.get(NICENESS_VARIABLE)
    if not asked:
        return None
    if not asked.isdecimal() or int(asked) > _NICENESS_MAX:
        raise PipelineError(f"{NICENESS_VARIABLE} is {asked!r}: give 0 (do not stand back) to {_NICENESS_MAX}")
    return int(asked)


class Watch:
    """Keeps a tree of processes in the background as long as it gets on there."""

    def __init__(self, pid: int, is_over: Callable[[], bool], every_s: float = WATCH_EVERY_S):
        self._pid = pid
        self._is_over = is_over
        self._every_s = every_s
        self._seen: dict[int, Use] = {}
        self._seen_at = 0.0
        self._pause = threading.Event()
        self.in_background = True

    def run(self) -> None:
        while not self._is_over():
            self._pause.wait(self._every_s)
            self.look()

    def look(self) -> None:
        now = use_of(self._pid)
        before = self._seen
        ran_s = sum(use.ran_s - before.get(thread, use).ran_s for thread, use in now.items())
        waited_s = sum(use.waited_s - before.get(thread, use).waited_s for thread, use in now.items())
        at = time.monotonic()
        self.in_background = belongs_back(self.in_background, Use(ran_s, waited_s), at - self._seen_at)
        self._seen, self._seen_at = now, at
        policy = os.SCHED_IDLE if self.in_background else os.SCHED_OTHER
        for thread in now:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.sched_getscheduler(thread) != policy:
                    os.sched_setscheduler(thread, policy, os.sched_param(0))


def belongs_back(is_back: bool, use: Use, elapsed_s: float) -> bool:
    """By what it got in this time. That it waits alone says little: its threads also wait for each other's cores."""
    wants_more = use.waited_s >= _WAITED * elapsed_s
    return not wants_more or use.ran_s >= (_STARVED if is_back else _FED) * elapsed_s


def use_of(pid: int) -> dict[int, Use]:
    """By thread, since each began. Empty where the kernel does not tell."""
    found = {}
    for thread in _threads(pid):
        with contextlib.suppress(OSError, ValueError):
            ran, waited, _ = Path(f"/proc/{thread}/schedstat").read_text().split()
            found[thread] = Use(int(ran) / 1e9, int(waited) / 1e9)
    return found


def _be_nice(pid: int, niceness: int) -> None:
    # On Linux priority belongs to a thread; what a thread starts has the same.
    for thread in list(_threads(pid)) or [pid]:
        # Who stands further back already may not come forward.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread, niceness)


def _threads(pid: int) -> Iterator[int]:
    """Of the process and of all that descend from it. Who ends meanwhile is passed over."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            yield int(thread.name)
            children = []
            with contextlib.suppress(OSError):
                children = (thread / "children").read_text().split()
            for child in children:
                yield from _threads(int(child))
