"""A Spark session with the right Java, the right Python and the address of this machine."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from penstock.pipeline.background import asked_niceness, run_in_background
from penstock.pipeline.java import ensure_java
from penstock.pipeline.spark_home import ensure_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[[^\]]*\])?")


def prepare(master: str | None = None) -> None:
    """Set the environment variables that Spark needs before it starts, unless they are set. Raises NoJava.

    Without a `master` the session is on this machine.
    """
    asked_niceness()
    ensure_java()
    if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        ensure_home()  # another Python may only have the PySpark of Spark's own home
    # The default is the `python3` on the PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None or _LOCAL.fullmatch(master):
        # Executors of a cluster must reach the driver, so there Spark chooses the address itself.
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

    With `background`, the default for a session on this machine, its JVM and workers use the CPU time that other
    processes, such as a broker, leave. `conf` has Spark's settings, with underscores instead of dots:
    `spark_sql_shuffle_partitions="2"`.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        prepare(master)
        builder = builder.master(master or "local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        builder = builder.config(key.replace("_", "."), value)
    session = builder.getOrCreate()
    is_here = remote is None and str(session.sparkContext.master).startswith("local")
    if background or (background is None and is_here):
        run_in_background(session)
    return session
