"""A short run of every fuzz target, and proof that the fuzzer finds something where there is something."""

from __future__ import annotations

import pytest

from fuzz.driver import Finding, fuzz, inputs
from fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("name", TARGETS)
def test_the_invariant_holds(name):
    fuzz(TARGETS[name], 1_000, seed=1)


def test_a_broken_invariant_is_found_with_its_input():
    def refuses_zeros(data):
        assert b"\x00\x00\x00\x00" not in data

    with pytest.raises(Finding) as caught:
        fuzz(Target(refuses_zeros, [b"abc"]), 10_000, seed=1)
    assert b"\x00\x00\x00\x00" in caught.value.data


def test_one_seed_gives_the_same_inputs():
    first, second = (list(inputs([b"abc", b"{}"], 200, seed=7)) for _ in range(2))
    assert first == second and len(set(first)) > 100
