"""Spark for tests and campaigns, whose JVMs live for a minute: most of what they would do in it is compiling."""

from __future__ import annotations

import os

_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ENVIRONMENT = {
    "SPARK_SUBMIT_OPTS": _JAVA,
    "SPARK_LAUNCHER_OPTS": _JAVA,
    # Other tests never rest: whoever stands back for them waits for ever.
    "PENSTOCK_SPARK_NICE": "0",
}


def be_quick() -> None:
    """For every session that this process, or what it starts, will make."""
    os.environ.update(_ENVIRONMENT)
