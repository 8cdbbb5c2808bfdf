"""The data source in SQL: temporary views have options, catalog tables do not."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException


@pytest.fixture
def orders(client, request):
    name = request.node.name.replace("_", "-")[:60]
    client.create_queue(name, retention={"mode": "keep"}).publish_many([{"n": n} for n in range(10)])
    return name


@pytest.fixture
def view(spark, server):
    names = []

    def create(name, queue, columns=""):
        names.append(name)
        spark.sql(
            f"CREATE TEMPORARY VIEW {name} {columns} USING penstock OPTIONS (url '{server.url}', queue '{queue}')"
        )

    yield create
    for name in names:
        spark.catalog.dropTempView(name)


def test_view_is_read(spark, view, orders):
    view("v1", orders)
    assert spark.sql("SELECT count(*), sum(offset) FROM v1").first()[:] == (10, 45)


def test_view_is_written(spark, view, client, orders):
    view("v2", orders, "(payload string, key string)")
    spark.sql("INSERT INTO v2 VALUES ('{\"n\": 10}', 'k')")
    assert client.queue(orders).stats().totals["published"] == 11


def test_create_table_error_suggests_a_view(spark, server, orders):
    options = f"USING penstock OPTIONS (url '{server.url}', queue '{orders}')"
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE t1 {options}")
    assert not spark.catalog.tableExists("t1")


def test_table_with_columns_fails_when_it_is_used(spark, server, orders):
    """Spark creates such a table without a question to the data source."""
    options = f"USING penstock OPTIONS (url '{server.url}', queue '{orders}')"
    spark.sql(f"CREATE TABLE t2 (offset bigint, payload binary) {options}")
    try:
        with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM t2").collect()
        with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
            spark.sql("INSERT INTO t2 SELECT 1L, cast('a' as binary)")
        named = spark.sql(f"SELECT count(*) FROM t2 WITH (url = '{server.url}', queue = '{orders}')")
        assert named.first()[0] == 10
    finally:
        spark.sql("DROP TABLE t2")
