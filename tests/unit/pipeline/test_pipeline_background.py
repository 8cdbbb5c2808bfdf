"""A process tree in the background: out of the way, and never starved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from penstock.pipeline import background
from penstock.pipeline.background import (
    CpuMonitor,
    CpuUse,
    cpu_use,
    may_leave_idle_class,
    run_in_background,
    should_be_idle,
)

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE") or not cpu_use(os.getpid()), reason="this kernel does not tell what threads get"
)

BUSY = "while True: pass"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{BUSY}']).wait()"
GIVE_UP_S = 60


@pytest.fixture
def started():
    with ExitStack() as stack:

        def start(code):
            # In one session with all others: the kernel may share the CPU between sessions first.
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", code]))
            stack.callback(kill_with_children, process.pid)
            return process

        yield start


@pytest.mark.parametrize(
    ("is_back", "ran_s", "waited_s", "belongs"),
    [
        (True, 0.0, 0.0, True),  # it does nothing
        (True, 0.01, 0.1, True),
        (True, 0.3, 5.0, True),
        (True, 0.1, 0.3, False),
        (True, 0.0, 4.0, False),
        (False, 0.3, 3.0, False),  # fed only because it has stepped forward
        (False, 1.2, 3.0, True),
        (False, 4.0, 100.0, True),  # its threads wait for each other
        (False, 0.0, 0.0, True),
    ],
)
def test_starved_process_leaves_the_idle_class(is_back, ran_s, waited_s, belongs):
    assert should_be_idle(is_back, CpuUse(ran_s, waited_s), 2.0) is belongs


class Session:
    """As much of a Spark session as is looked at."""

    def __init__(self, process):
        self.sparkContext = self._gateway = self
        self.proc = process


@pytest.fixture
def session(started, monkeypatch):
    monkeypatch.delenv(background.NICENESS_VARIABLE, raising=False)
    monkeypatch.setattr(background, "_monitored", set())
    parent = started(PARENT)
    until(lambda: len(cpu_use(parent.pid)) == 2)
    return Session(parent)


def watches():
    return [thread for thread in threading.enumerate() if thread.name == "penstock-background"]


def test_session_uses_the_idle_class_only_if_it_can_leave_it(session, monkeypatch):
    def forbidden(thread, policy, parameters):
        raise PermissionError

    before = len(watches())
    with monkeypatch.context() as without_rights:
        without_rights.setattr(os, "sched_setscheduler", forbidden)
        run_in_background(session)
    threads = cpu_use(session.proc.pid)
    assert [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads] == [background.NICENESS] * 2
    assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_OTHER} and len(watches()) == before


@pytest.mark.skipif(not may_leave_idle_class(), reason="needs root, or a limit `nice`, to leave the idle class")
def test_a_session_that_is_asked_for_again_is_watched_once(session):
    before = len(watches())
    for _ in range(3):
        run_in_background(session)
    assert len(watches()) == before + 1
    assert {os.sched_getscheduler(thread) for thread in cpu_use(session.proc.pid)} == {os.SCHED_IDLE}


def test_a_process_is_sent_back_with_all_it_has_started(started):
    parent = started(PARENT)
    until(lambda: len(cpu_use(parent.pid)) == 2)
    CpuMonitor(parent.pid, lambda: False).check()
    assert [os.sched_getscheduler(thread) for thread in cpu_use(parent.pid)] == [os.SCHED_IDLE] * 2


@pytest.mark.skipif(not may_leave_idle_class(), reason="needs root, or a limit `nice`, to leave the idle class")
def test_where_all_cores_are_busy_it_steps_forward(started):
    starving = started(PARENT)
    until(lambda: len(cpu_use(starving.pid)) == 2)
    over = threading.Event()
    watch = CpuMonitor(starving.pid, over.is_set, every_s=0.5)
    watch.check()
    for _ in os.sched_getaffinity(0):
        started(BUSY)
    watching = threading.Thread(target=watch.run)
    watching.start()
    try:
        until(lambda: {os.sched_getscheduler(thread) for thread in cpu_use(starving.pid)} == {os.SCHED_OTHER})
        assert not watch.in_background
    finally:
        over.set()
        watching.join()


def test_the_watch_ends_with_what_it_watches():
    watch = CpuMonitor(os.getpid(), lambda: True)
    watch.run()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def kill_with_children(pid):
    for thread in cpu_use(pid):  # of processes that have no other threads
        os.kill(thread, signal.SIGKILL)


def until(condition):
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
