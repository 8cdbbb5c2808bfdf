"""A stream that starts while its broker is away waits for it, as a stream that runs does."""

from __future__ import annotations

import logging
import threading

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from pyspark.sql.types import LongType, StructField, StructType

from penstock.pipeline import connect
from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.stream import EventsStreamReader, MessagesStreamReader
from tests.acceptance.http_server import Server
from tests.spark.recreate import create

SCHEMA = StructType([StructField("offset", LongType())])


@pytest.fixture
def away(tmp_path):
    """A broker with ten messages that was stopped, and how to start it again at the same address."""
    connect._calls.cache_clear()
    server = Server(tmp_path / "data")
    create(server, "orders", *range(10))
    assert server.terminate() == 0
    started = []

    def start():
        started.append(Server(tmp_path / "data", "--listen", f"127.0.0.1:{server.port}"))

    yield server.url, start
    for each in started:
        each.kill()


class _Setter(logging.Handler):
    """Sets an event with the first log entry."""

    def __init__(self, event):
        super().__init__()
        self._event = event

    def emit(self, record):
        self._event.set()


@pytest.mark.parametrize(
    ("kind", "options"), [(MessagesStreamReader, {"queue": "orders"}), (EventsStreamReader, {"table": "events"})]
)
def test_reader_waits_for_its_broker(away, caplog, monkeypatch, kind, options):
    url, start = away
    reader = kind(Options({"url": url, **options}), SCHEMA)
    is_waiting = threading.Event()
    monkeypatch.setattr(connect._log, "handlers", [_Setter(is_waiting)])
    starting = threading.Thread(target=lambda: is_waiting.wait(30) and start())
    starting.start()
    try:
        with caplog.at_level(logging.WARNING, "penstock.pipeline"):
            assert reader.initialOffset()["v"] == 2
    finally:
        starting.join()
    assert caplog.text.count("broker_unreachable") == 1 and "60 s" in caplog.text


def test_reader_gives_up_after_retry_for(away):
    reader = MessagesStreamReader(Options({"url": away[0], "queue": "orders", "retryFor": "1"}), SCHEMA)
    with pytest.raises(PipelineError, match="is `penstock serve` running"):
        reader.initialOffset()


def test_query_waits_for_its_broker(spark, away, tmp_path):
    url, start = away
    query = (
        spark.readStream.format("penstock").options(url=url, queue="orders").load()
        .writeStream.format("memory").queryName("late").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    start()
    query.awaitTermination()
    assert query.exception() is None and spark.table("late").count() == 10
