"""The requirements admit no version below the floors of `floors.txt`, and none is installed."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = dict(
    line.split(">=") for line in (ROOT / "floors.txt").read_text().splitlines() if line and not line.startswith("#")
)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@pytest.mark.parametrize("name", FLOORS)
def test_installed_version_is_at_least_the_floor(name):
    assert numbers(version(name)) >= numbers(FLOORS[name])


@pytest.mark.parametrize("name", FLOORS)
def test_requirement_is_at_least_the_floor(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [each for extra in project["optional-dependencies"].values() for each in extra]
    found = [each for each in (*project["dependencies"], *required) if each.lower().startswith(f"{name.lower()}>=")]
    assert found and all(numbers(each.partition(">=")[2].split(",")[0]) >= numbers(FLOORS[name])[:2] for each in found)
