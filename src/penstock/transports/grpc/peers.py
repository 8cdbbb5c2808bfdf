"""The established connections of the gRPC server, read from the tables of the kernel.

gRPC reports a stream that its client cancelled and a stream that was lost with its connection in the same way. The
kernel distinguishes them: the connection of a dead client is no longer established when gRPC reports the end.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
"""An IPv4 address in a table of IPv6 addresses begins with this."""


class Peers:
    """The connections to one port."""

    def __init__(self, port: int):
        self._line = re.compile(rb":%04X ([0-9A-F]+:[0-9A-F]{4}) 01 " % port)
        self._established: set[bytes] | None = None

    def connected(self, peer: str) -> bool:
        """True if the connection from `peer` (in gRPC's notation) is established, False if it is not or is unknown.

        The tables are read once per turn of the event loop, because streams are often lost together.
        """
        if self._established is None:
            self._established = set()
            for table in _TABLES:
                with suppress(OSError):
                    self._established.update(self._line.findall(table.read_bytes()))
            asyncio.get_running_loop().call_soon(self._forget)
        return any(name in self._established for name in _names_of(peer))

    def _forget(self) -> None:
        self._established = None


def _names_of(peer: str) -> list[bytes]:
    """The peer in the notation of the kernel: hexadecimal words in host byte order, then the port."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    family = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}.get(kind)
    if family is None or not port.isdigit():
        return []
    try:
        packed = socket.inet_pton(family, host.strip("[]"))
    except OSError:
        return []
    words = "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", packed))
    hosts = [words, _MAPPED + words] if family is socket.AF_INET else [words]
    return [f"{each}:{int(port):04X}".encode() for each in hosts]
