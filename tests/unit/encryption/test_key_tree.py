"""The tree of keys: every key but the destroyed ones can be derived, and those cannot."""

from __future__ import annotations

import os
from itertools import pairwise

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from penstock.encryption.key_tree import KeyTree

ROOT = bytes(range(32))
places = st.text("0123456789abcdef", min_size=6, max_size=6)
prefixes = st.text("0123456789abcdef", min_size=1, max_size=6)


def test_keys_follow_from_the_root_by_hkdf():
    key = ROOT
    for digit in "0a7":
        key = HKDFExpand(SHA256(), 32, b"penstock tree " + digit.encode()).derive(key)
    assert KeyTree({"": ROOT}).key_at("0a7") == key


@given(st.lists(prefixes, max_size=6), places)
def test_destroyed_keys_are_gone_and_all_others_are_unchanged(destroyed, place):
    whole = tree = KeyTree({"": ROOT})
    for prefix in destroyed:
        tree = tree.without(prefix)
    expected = None if any(place.startswith(prefix) for prefix in destroyed) else whole.key_at(place)
    assert tree.key_at(place) == expected


@given(st.lists(prefixes, min_size=1, max_size=6))
def test_nothing_is_stored_at_or_above_a_destroyed_place(destroyed):
    tree = KeyTree({"": ROOT})
    for prefix in destroyed:
        tree = tree.without(prefix)
    for prefix in destroyed:
        assert not [place for place in tree.nodes if prefix.startswith(place) or place.startswith(prefix)]
    ordered = sorted(tree.nodes)
    assert not [(a, b) for a, b in pairwise(ordered) if b.startswith(a)]


def test_a_key_is_destroyed_once():
    tree = KeyTree({"": os.urandom(32)}).without("abc")
    assert tree.without("abc").nodes == tree.nodes
    assert len(tree.nodes) == 3 * 15
