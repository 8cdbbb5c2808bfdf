"""A frame is believed whole or not at all (docs/formats/journal.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.frame import BODY_BYTES_MAX, CHAIN_START, HEADER, BadFrame, FrameWriter, find_frame, read_frame

NODE = bytes(range(16))
bodies = st.lists(st.lists(st.binary(max_size=20), max_size=4), min_size=1, max_size=6)


def written(commits: list[list[bytes]], first: int = 1) -> list[bytes]:
    writer = FrameWriter(NODE, 7, first)
    return [writer.seal(1000 + number, parts) + b"".join(parts) for number, parts in enumerate(commits)]


@given(bodies)
def test_what_was_sealed_is_read_back_in_its_place(commits):
    chain, at, view = CHAIN_START, 0, memoryview(b"".join(written(commits)))
    for number, parts in enumerate(commits):
        frame = read_frame(view, at, (number + 1, chain))
        assert (frame.index, frame.term, frame.at_ms, frame.node) == (number + 1, 7, 1000 + number, NODE)
        assert bytes(frame.body) == b"".join(parts)
        at, chain = at + frame.size, frame.chain
    assert at == len(view)


def test_every_single_bit_is_covered():
    data = written([[b"some", b"thing"]])[0]
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrame):
            read_frame(memoryview(damaged), 0, (1, CHAIN_START))


def test_every_cut_is_noticed():
    data = written([[b"something"]])[0]
    for size in range(len(data)):
        with pytest.raises(BadFrame, match="ends after"):
            read_frame(memoryview(data)[:size], 0)


@pytest.mark.parametrize("length", [0, 1, 8, 10, BODY_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_wrong_length_is_known_before_it_is_believed(length):
    data = bytearray(written([[b"something"]])[0])
    data[12:16] = length.to_bytes(4, "little")
    with pytest.raises(BadFrame, match="header's checksum"):
        read_frame(memoryview(data), 0)


def test_a_frame_of_another_place_or_history_does_not_fit():
    one, two, three = written([[b"1"], [b"2"], [b"3"]])
    other = written([[b"x"], [b"2"]])[1]
    chain_one = one[HEADER.size - 16 : HEADER.size]
    read_frame(memoryview(two), 0, (2, chain_one))
    with pytest.raises(BadFrame, match="found frame 3 where frame 2 is expected"):
        read_frame(memoryview(three), 0, (2, chain_one))
    with pytest.raises(BadFrame, match="chain is broken"):
        read_frame(memoryview(other), 0, (2, chain_one))


def test_a_version_from_the_future_is_refused_not_guessed():
    data = bytearray(written([[b"1"]])[0])
    data[2] = 2
    with pytest.raises(BadFrame, match="version 2"):
        read_frame(memoryview(data), 0)


@given(bodies, st.binary(max_size=200), st.integers(0, 60))
def test_the_next_whole_frame_is_found_behind_any_noise(commits, noise, cut):
    frames = written(commits)
    torn = frames[0][: min(cut, len(frames[0]) - 1)]
    view = memoryview(torn + noise + frames[-1])
    found = find_frame(view, 0, newer_than=len(commits) - 1)
    assert found is not None
    assert found <= len(torn) + len(noise)
    assert find_frame(view, found + 1, newer_than=len(commits) - 1) is None or found < len(torn) + len(noise)


@given(st.binary(max_size=300).map(lambda noise: b"PJ" + noise + b"PJ\x01\x00"))
def test_noise_holds_no_frame(noise):
    assert find_frame(memoryview(noise), 0, newer_than=0) is None


@given(bodies, bodies, st.binary(max_size=200))
def test_frames_of_the_former_use_of_a_file_are_skipped(before, commits, noise):
    older, newer = written(before), written(commits, first=len(before) + 1)
    view = memoryview(b"".join(older) + noise + newer[0])
    found = find_frame(view, 0, newer_than=len(before))
    assert found is not None and read_frame(view, found).index == len(before) + 1
    assert find_frame(view[: -len(newer[0])], 0, newer_than=len(before)) is None
