"""The master keys of a server: from a file of mode 0600, or from an environment variable (`env:NAME`)."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from penstock.encryption.key_tree import KEY_BYTES
from penstock.encryption.master_keys import EncryptionKeyError, MasterKeys, key_line
from penstock.server.secret_file import replace_secret_file

_FILE_BYTES_MAX = 16 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_master_keys(source: str) -> MasterKeys:
    """Raises EncryptionKeyError with what to do."""
    if source.startswith("env:"):
        name = source.removeprefix("env:")
        text = os.environ.get(name)
        if text is None:
            raise EncryptionKeyError(f"encryption_key: there is no environment variable {name}")
        return MasterKeys.parse(text.replace(",", "\n"), f"encryption_key: variable {name}")
    try:
        with Path(source).open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise EncryptionKeyError(f"encryption_key: {source} can be read by others; chmod 600 it")
            data = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise EncryptionKeyError(
            f"encryption_key: cannot read {source}: {error.strerror or error}. Restore the file; without it encrypted "
            "messages cannot be read. For a new server make one with `penstock encryption new-key FILE`"
        ) from None
    return MasterKeys.parse(data.decode("ascii", "replace"), f"encryption_key: {source}")


def add_master_key(path: Path) -> tuple[str, int]:
    """Put a new key in front of those of the file, which is created if it does not exist. Returns the id of the new key
    and the number of keys. The file is replaced as a whole, durably."""
    former = read_lines(path)
    key = secrets.token_bytes(KEY_BYTES)
    text = "".join([key_line(key), *(f"{line}\n" for line in former)])
    masters = MasterKeys.parse(text, str(path))  # before anything is written
    replace_secret_file(path, text.encode())
    return masters.first.id, len(former) + 1


def read_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    read_master_keys(str(path))
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]
