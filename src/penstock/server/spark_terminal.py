"""Shared by the pipeline commands: the Spark session, and the translation of Spark errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import PenstockError
from penstock.server.times import duration_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master  \\[default: all cores of this machine]", show_default=False),
]
EveryOption = Annotated[
    float, duration_option("With --follow: the interval between batches.", least_s=0.1, default="10s")
]
RemoteOption = Annotated[str | None, typer.Option(metavar="URL", help="Spark Connect endpoint, sc://HOST:PORT.")]


def session(name: str, master: str | None, remote: str | None) -> SparkSession:
    """A session that logs errors only, with few shuffle partitions on one machine; a cluster keeps its own settings."""
    from penstock.pipeline.session import spark_session

    if master is None and remote is None:
        spark = spark_session(name, spark_sql_shuffle_partitions="4")
    else:
        spark = spark_session(name, master=master, remote=remote)
    if remote is None:
        spark.sparkContext.setLogLevel("OFF")
    return spark


@contextlib.contextmanager
def pipeline_errors() -> Iterator[None]:
    """Translate errors of the pipeline and of Spark into errors that the command line prints in one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "deltalake", "numpy"):
            raise
        raise PenstockError("the pipeline is not installed: pip install 'penstock[server,spark]'") from None
    except (PenstockError, typer.Exit):
        raise
    except Exception as error:
        from penstock.pipeline.java import NoJava
        from penstock.pipeline.options import PipelineError

        if isinstance(error, NoJava | PipelineError):
            raise PenstockError(str(error)) from None
        # Spark wraps an error raised in an executor; the PipelineError is the last line of its text.
        said = [line for line in str(error).splitlines() if "PipelineError: " in line]
        if not said:
            raise
        raise PenstockError(said[-1].partition("PipelineError: ")[2]) from None
