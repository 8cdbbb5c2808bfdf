"""A process tree in the background: out of the way, and never starved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from penstock.pipeline.background import Use, Watch, belongs_back, use_of

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE") or not use_of(os.getpid()), reason="this kernel does not tell what threads get"
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
        (True, 1.0, 2.0, True),
        (True, 0.1, 1.9, True),
        (True, 0.1, 2.1, False),
        (True, 0.0, 0.3, False),
        (False, 0.1, 1.9, False),  # fed only because it has stepped forward
        (False, 1.0, 2.9, True),
        (False, 0.0, 0.0, True),
    ],
)
def test_who_waits_too_long_steps_forward(is_back, ran_s, waited_s, belongs):
    assert belongs_back(is_back, Use(ran_s, waited_s)) is belongs


def test_a_process_is_sent_back_with_all_it_has_started(started):
    parent = started(PARENT)
    until(lambda: len(use_of(parent.pid)) == 2)
    Watch(parent.pid, lambda: False).look()
    assert [os.sched_getscheduler(thread) for thread in use_of(parent.pid)] == [os.SCHED_IDLE] * 2


def test_where_all_cores_are_busy_it_steps_forward(started):
    starving = started(PARENT)
    until(lambda: len(use_of(starving.pid)) == 2)
    watch = Watch(starving.pid, lambda: False)
    watch.look()
    for _ in os.sched_getaffinity(0):
        started(BUSY)

    def stepped_forward():
        watch.look()
        return not watch.in_background

    until(stepped_forward, pause_s=1.0)
    assert {os.sched_getscheduler(thread) for thread in use_of(starving.pid)} == {os.SCHED_OTHER}


def test_the_watch_ends_with_what_it_watches():
    watch = Watch(os.getpid(), lambda: True)
    watch.run()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def kill_with_children(pid):
    for thread in use_of(pid):  # of processes that have no other threads
        os.kill(thread, signal.SIGKILL)


def until(condition, pause_s=0.01):
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(pause_s)
