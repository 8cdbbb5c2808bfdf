"""A Spark session that works where it is started: the right Java, the right Python, this machine's own address."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from penstock.pipeline.background import asked_niceness, stand_back
from penstock.pipeline.home import ensure_home
from penstock.pipeline.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[[^\]]*\])?")


def prepare(master: str | None = None) -> None:
    """Set the environment variables that Spark needs before it starts; those that are set stay. Raises NoJava.

    Without a `master` the session is on this machine.
    """
    asked_niceness()
    ensure_java()
    if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        ensure_home()  # another Python may have no PySpark but that of Spark's own home
    # Otherwise workers run the `python3` that is on the PATH, and fail without saying why.
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

    With `background`, which is meant if nothing is said and the session is on this machine, its JVM and workers leave
    the CPU to whoever else wants it, such as a broker; where nobody does, they are as fast as ever.
    `conf` is what Spark calls it with dots, written with underscores: `spark_sql_shuffle_partitions="2"`.
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
        stand_back(session)
    return session
