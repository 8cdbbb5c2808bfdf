"""What the commands of the pipeline share: a quiet session, and how what goes wrong in Spark looks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None, typer.Option(metavar="URL", help="A Spark master, instead of all cores here.", show_default=False)
]
Remote = Annotated[str | None, typer.Option(metavar="URL", help="A Spark Connect endpoint, sc://HOST:PORT.")]


def session(name: str, master: str | None, remote: str | None) -> SparkSession:
    """A quiet session, with few shuffle partitions on one machine; a cluster has settings of its own."""
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
    """What can go wrong in the pipeline as what the command line knows how to say."""
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
        # What is raised on the way to an executor comes back as Spark's, with ours as the last line of its story.
        said = [line for line in str(error).splitlines() if "PipelineError: " in line]
        if not said:
            raise
        raise PenstockError(said[-1].partition("PipelineError: ")[2]) from None
