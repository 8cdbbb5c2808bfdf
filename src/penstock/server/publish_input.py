"""Input of `penstock publish`: an argument, a file or standard input, read whole or line by line in bounded memory."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from penstock import limits
from penstock.errors import InvalidRequest, TooLarge

PIECE_BYTES = 256 * limits.KIB
Raw = Annotated[bool, typer.Option("--raw", help="Publish the bytes as they are, even if they look like JSON.")]


def payload_of(content: bytes, *, raw: bool, name: str = "the payload") -> Any:
    """The JSON value, or the bytes if they are not JSON or `raw`.

    Raises InvalidRequest for bytes that begin like JSON and are not: a publisher that meant JSON would find out only in
    its consumers.
    """
    if raw:
        return content
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if content.lstrip()[:1] in (b"{", b"[", b'"'):
            raise InvalidRequest(
                f"{name} begins like JSON and is not: {error}; correct it, or publish it as plain bytes with --raw"
            ) from None
        return content


@contextlib.contextmanager
def open_input(payload: str | None, file: Path | None) -> Iterator[BinaryIO]:
    """Open the argument's text, the file, or standard input for `-`."""
    if file is not None:
        try:
            opened = file.open("rb")
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
        with opened:
            yield opened
    elif payload == "-":
        yield sys.stdin.buffer
    else:
        yield io.BytesIO((payload or "").encode())


def read_single(source: BinaryIO, *, raw: bool) -> Any:
    """Read the whole input as one payload. Raises TooLarge as soon as the limit is exceeded, and as `payload_of`."""
    content = source.read(limits.PAYLOAD_BYTES_MAX + 1)
    if len(content) > limits.PAYLOAD_BYTES_MAX:
        raise TooLarge(
            f"no queue takes a payload of more than {limits.PAYLOAD_BYTES_MAX} bytes; --lines publishes line by line"
        )
    return payload_of(content, raw=raw)


class LineReader:
    """Iterates over lists of payloads, one per non-empty line. A list holds the lines that one read returned, so lines
    of a pipe are published as they arrive."""

    LARGE_BYTES = 4 * limits.MIB
    """Input size from which a progress bar is shown."""

    def __init__(self, source: BinaryIO, *, raw: bool):
        self._source = source
        self._raw = raw
        self._number = 0
        self.size = _size_of(source)
        """Size of the input in bytes; 0 if unknown."""
        self.done = 0
        """Bytes read."""

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the lines of each read. Raises TooLarge for a line above the payload limit, and as `payload_of`."""
        rest = b""
        while data := _available(self._source):
            self.done += len(data)
            *lines, rest = (rest + data).split(b"\n")
            if payloads := list(self._payloads(lines)):
                yield payloads
            self._check(rest, self._number + 1)
        if payloads := list(self._payloads([rest])):
            yield payloads

    def _payloads(self, lines: list[bytes]) -> Iterator[Any]:
        for line in lines:
            self._number += 1
            text = line.removesuffix(b"\r")
            self._check(text, self._number)
            if text.strip():
                yield payload_of(text, raw=self._raw, name=f"line {self._number}")

    @staticmethod
    def _check(text: bytes, number: int) -> None:
        if len(text) > limits.PAYLOAD_BYTES_MAX:
            raise TooLarge(
                f"line {number} is longer than {limits.PAYLOAD_BYTES_MAX} bytes, which no queue takes; the lines "
                "before it may have been published"
            )


def _available(source: Any) -> bytes:
    """Read the available bytes, one chunk at most; wait if there are none yet."""
    data: bytes = source.read1(PIECE_BYTES)
    return data


def _size_of(source: BinaryIO) -> int:
    if isinstance(source, io.BytesIO):
        return source.getbuffer().nbytes
    try:
        found = os.fstat(source.fileno())
    except (OSError, io.UnsupportedOperation):
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
