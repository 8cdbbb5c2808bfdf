"""Lines of transcripts about API keys and people."""

from __future__ import annotations

from typing import Any

from penstock.core import commands
from penstock.core.state import Shard


class AccessLines:
    """A part of `Script`, which has the loop."""

    shard: Shard
    now_ms: int
    _entropy: int
    _out: list[str]

    def _submit(self, command: commands.Command) -> Any:
        raise NotImplementedError

    def _time(self, ms: int) -> str:
        raise NotImplementedError

    def _do_key(self, words: list[str], options: dict[str, str]) -> None:
        self._entropy += 1
        expires = self.now_ms + int(options["expires_in"]) if "expires_in" in options else 0
        hash = b"hash %d" % self._entropy
        self._submit(commands.CreateKey(words[0], words[0], words[1:], hash, expires, options.get("rate", "")))

    def _do_rotate_key(self, words: list[str], options: dict[str, str]) -> None:
        self._entropy += 1
        self._submit(commands.RotateKey(words[0], b"hash %d" % self._entropy, int(options["overlap_ms"])))

    def _do_revoke_key(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.RevokeKey(words[0]))

    def _do_keys(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        for id, key in sorted(self.shard.keys.items()):
            secrets = [
                secret.hash.decode() + (f" until {self._time(secret.until)}" if secret.until else "")
                for secret in key.secrets
            ]
            self._out.append(f"{id} may {' '.join(key.scopes)}, secrets: {', '.join(secrets)}")

    def _do_user(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._entropy += 1
        self._submit(commands.AddUser(words[0], words[1], f"hash {self._entropy}"))

    def _do_change_user(self, words: list[str], options: dict[str, str]) -> None:
        self._entropy += 1
        hash = f"hash {self._entropy}" if "password" in options else ""
        self._submit(commands.ChangeUser(words[0], options.get("role", ""), hash))

    def _do_remove_user(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        self._submit(commands.RemoveUser(words[0]))

    def _do_users(self, words: list[str], options: dict[str, str]) -> None:  # noqa: ARG002  one shape for all
        for email, user in sorted(self.shard.users.items()):
            times = f"since {self._time(user.created_at)}, changed {self._time(user.changed_at)}"
            self._out.append(f"{email} is {user.role}, {user.hash}, {times}")
