"""The examples of the guides run: every block of Python and SQL, in order, each guide with a broker of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from penstock.pipeline import session
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from tests.acceptance.http_server import running
from tests.spark.recreate import create

DOCS = Path(__file__).parents[2] / "docs"
SHOWN_ADDRESS = "http://127.0.0.1:7400"


def blocks(name):
    """(line, language, code) of each block."""
    text = (DOCS / name).read_text()
    return [
        (text[: found.start(2)].count("\n"), found[1], found[2])
        for found in re.finditer(r"^```(python|sql)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


@pytest.fixture
def broker(tmp_path, monkeypatch, spark):
    """With a queue `orders`. Every session of the examples is the one of these tests."""
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    with running(tmp_path / "data") as started:
        create(started, "orders", *({"order": n, "total": n / 2} for n in range(400)), partitions=2)
        yield started
    for query in spark.streams.active:
        query.stop()
    spark.catalog.dropTempView("orders")


def execute(code, path, namespace):
    """Statement by statement; a DataFrame that an example only shows is computed."""
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), path, "eval"), namespace)
            if hasattr(value, "toLocalIterator"):
                value.collect()
        else:
            exec(compile(ast.Module([statement], []), path, "exec"), namespace)


def run(name, spark, server, directory):
    """Returns the names that the examples have defined. Relative paths are below the directory."""
    namespace = {"spark": spark, "url": server.url}
    for line, language, code in blocks(name):
        code = re.sub(r"(?<=[\"'])(lake|checkpoints)(?=[/\"'])", f"{directory}/\\1", code)
        code = code.replace(SHOWN_ADDRESS, server.url)
        if language == "sql":
            for statement in filter(str.strip, code.split(";")):
                spark.sql(statement).collect()
            continue
        execute("\n" * line + code, DOCS / name, namespace)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    return namespace


def test_examples_of_the_guide_to_spark_run(spark, broker, tmp_path):
    namespace = run("spark.md", spark, broker, tmp_path)
    assert spark.read.parquet(str(tmp_path / "lake/orders")).count() == 400
    assert namespace["lifecycles"].where("published_at is not null").count() == 400  # those before the writes
    published = broker.ask("GET", "/v1/stats?queue=orders").json["totals"]["published"]
    copied = broker.ask("GET", "/v1/stats?queue=copy").json["totals"]["published"]
    assert (published, copied) == (1_400, 1_400)


def test_examples_of_the_guide_to_the_lake_run(spark, broker, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    pytest.importorskip("polars", reason="Polars is not installed")
    Archive(spark, Lake.open_or_create(tmp_path / "lake"), BrokerCalls(broker.url, None, 20.0)).once()
    # DuckDB would fetch its extension over the network.
    duckdb.sql(f"CREATE OR REPLACE MACRO delta_scan(path) AS TABLE FROM read_parquet('{tmp_path}/lake/messages/*/*/*')")
    broker.publish("orders", {"order": 400})
    assert run("lake.md", spark, broker, tmp_path)["orders"].count() == 401


def test_examples_of_the_guide_to_analytics_run(spark, broker, tmp_path):
    assert run("analytics.md", spark, broker, tmp_path)["events"].count() > 0
