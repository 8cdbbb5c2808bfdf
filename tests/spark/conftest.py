"""One Spark session for all tests here, and a real broker for each file of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.sync import Client
from tests.acceptance.http_server import Server, running
from tests.spark.quick import be_quick

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Spark warns about itself.
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session", autouse=True)
def quick() -> None:
    be_quick()


@pytest.fixture(scope="session")
def spark(quick: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")
    from penstock.pipeline.java import NoJava
    from penstock.pipeline.session import spark_session

    try:
        session = spark_session(
            "tests",
            master="local[2]",
            spark_sql_shuffle_partitions="2",
            spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("warehouse")),
        )
    except NoJava as error:
        pytest.skip(str(error))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as connected:
        yield connected


@pytest.fixture
def read(spark: Any, server: Server) -> Callable[..., Any]:
    """A DataFrame with these options."""

    def load(**options: Any) -> Any:
        return spark.read.format("penstock").options(url=server.url, **options).load()

    return load


@pytest.fixture
def stream(spark: Any, server: Server) -> Callable[..., Any]:
    def load(**options: Any) -> Any:
        return spark.readStream.format("penstock").options(url=server.url, **options).load()

    return load


@pytest.fixture
def write(server: Server) -> Callable[..., None]:
    def save(frame: Any, **options: Any) -> None:
        frame.write.format("penstock").options(url=server.url, **options).mode("append").save()

    return save
