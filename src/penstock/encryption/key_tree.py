"""A tree of keys from which single keys can be destroyed.

Every key of the tree follows from its parent by HKDF-Expand, so the root alone stands for all of them and nothing is
stored for a key that is used. To destroy a key, the keys on the way from the root to it are replaced by their other
children: every other key can still be derived, and the destroyed one cannot, from nothing that is left.

A place in the tree is a text of hexadecimal digits, one for each level. A destroyed place takes the places below it
along.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

KEY_BYTES = 32
_DIGITS = "0123456789abcdef"
_SHA256 = SHA256()


def derive(key: bytes, info: bytes) -> bytes:
    """A key that follows from this key and this text."""
    return HKDFExpand(_SHA256, KEY_BYTES, info).derive(key)


_STEPS = {digit: b"penstock tree " + digit.encode() for digit in _DIGITS}


class KeyTree:
    """The keys that can be derived from `nodes`: place -> key. No node is below another one."""

    def __init__(self, nodes: dict[str, bytes]):
        self.nodes = nodes

    def key_at(self, place: str) -> bytes | None:
        """None if the key was destroyed, or if one of the keys below it was."""
        found = self._above(place)
        if found is None:
            return None
        key = self.nodes[found]
        for digit in place[len(found) :]:
            key = derive(key, _STEPS[digit])
        return key

    def without(self, place: str) -> KeyTree:
        """The tree from which this key, and all below it, cannot be derived."""
        nodes = {each: key for each, key in self.nodes.items() if not each.startswith(place)}
        above = self._above(place)
        if above is not None:
            key = self.nodes[above]
            nodes.pop(above, None)
            for depth in range(len(above), len(place)):
                for digit in _DIGITS:
                    if digit != place[depth]:
                        nodes[place[:depth] + digit] = derive(key, _STEPS[digit])
                key = derive(key, _STEPS[place[depth]])
        return KeyTree(nodes)

    def _above(self, place: str) -> str | None:
        """The node at this place, or the one above it."""
        for depth in range(len(place), -1, -1):
            if place[:depth] in self.nodes:
                return place[:depth]
        return None
