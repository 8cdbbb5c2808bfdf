"""How many processors there are, where a container says so."""

from __future__ import annotations

import os

import pytest

from penstock.server.processors import processors

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, HERE),
        ({"": "max 100000\n"}, HERE),
        ({"": "50000 100000\n"}, 0.5),
        ({"system.slice/penstock.service": "100000 100000\n"}, 1),
        ({"system.slice": "150000 100000\n", "system.slice/penstock.service": "max 100000\n"}, min(1.5, HERE)),
        ({"": "what is this"}, HERE),
        ({"": "100000 0"}, HERE),
    ],
)
def test_the_smallest_limit_holds(tmp_path, limits, expected):
    top = tmp_path / "sys/fs/cgroup"
    (top / "system.slice/penstock.service").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/penstock.service\n")
    for group, text in limits.items():
        (top / group / "cpu.max").write_text(text)
    assert processors(tmp_path) == expected


def test_without_control_groups_it_is_what_the_system_allows(tmp_path):
    assert processors(tmp_path) == HERE


def test_in_a_container_its_own_group_is_the_top(tmp_path):
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("25000 100000\n")
    assert processors(tmp_path) == 0.25
