"""An ext4 file system in a file, whose power can be cut, and a tmpfs of a given size. Both need root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""Nothing more reaches the disk: neither cached data nor the file system's own journal."""


def unusable() -> str:
    """Why no file system can be mounted here; empty: one can."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return "" if Path("/dev/loop-control").exists() else "there are no loop devices"


class CuttableDisk:
    def __init__(self, image: Path, mount_point: Path, size_bytes: int = 256 << 20):
        self._image = image
        self.path = mount_point
        with image.open("wb") as file:
            file.truncate(size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        mount_point.mkdir()
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.path)], check=True)

    def cut(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def restore(self) -> None:
        """After a cut, when nothing uses the disk any more. The mount replays the file system's journal."""
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True)


@contextlib.contextmanager
def tmpfs(path: Path, size_bytes: int) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
