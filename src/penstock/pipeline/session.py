"""A Spark session that works where it is started: the right Java, the right Python, this machine's own address."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.home import ensure_home
from penstock.pipeline.java import ensure_java
from penstock.pipeline.options import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NICENESS = 10
"""A tenth of the CPU beside one other busy process, all of it where nobody else is."""
_NICENESS_MAX = 19
NICENESS_VARIABLE = "PENSTOCK_SPARK_NICE"
"""In the environment: another one; 0 for sessions that do not stand back."""


def prepare() -> None:
    """What must be in the environment before Spark starts. Settings that are there already stay. Raises NoJava."""
    _niceness()
    ensure_java()
    if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        ensure_home()  # another Python may have no PySpark but that of Spark's own home
    # Otherwise workers run whatever `python3` is on the PATH, and fail without saying why.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def spark_session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    background: bool | None = None,
    **conf: str,
) -> SparkSession:
    """A session: on this machine, on any Spark `master`, or at a Spark Connect endpoint (`remote`).

    With `background`, which is meant if nothing is said and the session is on this machine, its JVM and workers leave
    the CPU to whoever else wants it, such as a broker; where nobody does, they are as fast as ever.
    `conf` is what Spark calls it with dots, written with underscores: `spark_sql_shuffle_partitions="2"`.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        prepare()
        builder = builder.master(master or "local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        builder = builder.config(key.replace("_", "."), value)
    session = builder.getOrCreate()
    is_here = remote is None and str(session.sparkContext.master).startswith("local")
    if background or (background is None and is_here):
        stand_back(session)
    return session


def stand_back(session: SparkSession) -> None:
    """Lower the priority of this session's JVM, and of the workers it will start. There is no way back up."""
    niceness = _niceness()
    jvm = getattr(session.sparkContext._gateway, "proc", None)
    if jvm is None or not niceness:
        return  # without a process of ours somebody else has started it, such as spark-submit
    pid = jvm.pid
    # Priority belongs to a thread; what a thread starts has the same.
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # Who stands further back already may not come forward.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)


def _niceness() -> int:
    asked = os.environ.get(NICENESS_VARIABLE) or str(NICENESS)
    if not asked.isdecimal() or int(asked) > _NICENESS_MAX:
        raise PipelineError(f"{NICENESS_VARIABLE} is {asked!r}: give 0 (do not stand back) to {_NICENESS_MAX}")
    return int(asked)
