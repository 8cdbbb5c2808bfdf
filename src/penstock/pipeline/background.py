"""CPU scheduling of Spark beside a broker on one machine: Spark gets the CPU time that the broker leaves.

A nice value is not enough: a broker and its clients wake up thousands of times a second, and find each core taken by a
nice thread that runs to the end of its time slice. Threads of the class `SCHED_IDLE` are preempted at once, and a core
that runs only them counts as idle. If all cores are busy, however, they get 0.3 % of one, and an archive that does not
advance fills the disk. So a monitor thread measures their CPU time, and moves them to `SCHED_OTHER` with a nice value
while they starve. Leaving `SCHED_IDLE` needs root or a resource limit `nice`; without it only the nice value is set.
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
"""Of threads outside `SCHED_IDLE`: a tenth of the CPU beside one other busy process."""
_NICENESS_MAX = 19
NICENESS_VARIABLE = "PENSTOCK_SPARK_NICE"
"""The environment variable for a fixed nice value instead; 0 leaves the priority of sessions as it is."""

CHECK_EVERY_S = 2.0
_STARVED = 0.1
"""The CPU share of one core below which the JVM counts as starved."""
_FED = 0.5
"""The CPU share of one core above which the JVM goes back to `SCHED_IDLE`."""
_WAITED = 0.1
"""The share of time, over all threads, that the JVM must have waited for a core to count as starved."""


class CpuUse(NamedTuple):
    """CPU time of threads, and the time that they waited for a core."""

    ran_s: float
    waited_s: float


def run_in_background(session: SparkSession) -> None:
    """Lower the CPU priority of this session's JVM, and of the workers that it starts."""
    asked = asked_niceness()
    jvm = getattr(session.sparkContext._gateway, "proc", None)
    if jvm is None or asked == 0:
        return  # without a `proc` another program has started the JVM, such as spark-submit
    _set_niceness(jvm.pid, NICENESS if asked is None else asked)
    if asked is None and jvm.pid not in _monitored and may_leave_idle_class() and cpu_use(jvm.pid):
        _monitored.add(jvm.pid)
        monitor = CpuMonitor(jvm.pid, lambda: jvm.poll() is not None)
        monitor.check()

        def run_to_the_end() -> None:
            monitor.run()
            _monitored.discard(jvm.pid)

        threading.Thread(target=run_to_the_end, name="penstock-background", daemon=True).start()


_monitored: set[int] = set()
"""Process ids of JVMs with a monitor thread."""


def may_leave_idle_class() -> bool:
    """True if the kernel permits a thread to leave `SCHED_IDLE`. Tried with a thread that ends afterwards."""
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
    """The value of `PENSTOCK_SPARK_NICE`, None if it is not set. Raises PipelineError for an invalid value."""
    asked = os.environ.get(NICENESS_VARIABLE)
    if not asked:
        return None
    if not asked.isdecimal() or int(asked) > _NICENESS_MAX:
        raise PipelineError(f"{NICENESS_VARIABLE} is {asked!r}: give 0 (normal priority) to {_NICENESS_MAX}")
    return int(asked)


class CpuMonitor:
    """Keeps the threads of a process tree in `SCHED_IDLE`, except while they starve there."""

    def __init__(self, pid: int, is_over: Callable[[], bool], every_s: float = CHECK_EVERY_S):
        self._pid = pid
        self._is_over = is_over
        self._every_s = every_s
        self._seen: dict[int, CpuUse] = {}
        self._seen_at = 0.0
        self._pause = threading.Event()
        self.in_background = True

    def run(self) -> None:
        while not self._is_over():
            self._pause.wait(self._every_s)
            self.check()

    def check(self) -> None:
        now = cpu_use(self._pid)
        before = self._seen
        ran_s = sum(use.ran_s - before.get(thread, use).ran_s for thread, use in now.items())
        waited_s = sum(use.waited_s - before.get(thread, use).waited_s for thread, use in now.items())
        at = time.monotonic()
        self.in_background = should_be_idle(self.in_background, CpuUse(ran_s, waited_s), at - self._seen_at)
        self._seen, self._seen_at = now, at
        policy = os.SCHED_IDLE if self.in_background else os.SCHED_OTHER
        for thread in now:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.sched_getscheduler(thread) != policy:
                    os.sched_setscheduler(thread, policy, os.sched_param(0))


def should_be_idle(is_idle: bool, use: CpuUse, elapsed_s: float) -> bool:
    """True unless the threads waited and got too little CPU time. They also wait for cores that they use themselves."""
    waited = use.waited_s >= _WAITED * elapsed_s
    return not waited or use.ran_s >= (_STARVED if is_idle else _FED) * elapsed_s


def cpu_use(pid: int) -> dict[int, CpuUse]:
    """By thread, since the start of each. Empty if the kernel has no `schedstat`."""
    found = {}
    for thread in _threads(pid):
        with contextlib.suppress(OSError, ValueError):
            ran, waited, _ = Path(f"/proc/{thread}/schedstat").read_text().split()
            found[thread] = CpuUse(int(ran) / 1e9, int(waited) / 1e9)
    return found


def _set_niceness(pid: int, niceness: int) -> None:
    # On Linux each thread has a priority of its own, and passes it to the threads that it starts.
    for thread in list(_threads(pid)) or [pid]:
        # A thread with a higher nice value may not lower it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread, niceness)


def _threads(pid: int) -> Iterator[int]:
    """The threads of the process and of its descendants, without those that end meanwhile."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            yield int(thread.name)
            children = []
            with contextlib.suppress(OSError):
                children = (thread / "children").read_text().split()
            for child in children:
                yield from _threads(int(child))
