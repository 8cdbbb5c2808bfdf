"""A lake is a directory: URLs of object stores are refused, and make no directory."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from typer.testing import CliRunner

import penstock.pipeline
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from penstock.server.cli import app

URLS = ["s3://bucket/lake", "s3a://bucket/lake", "gs://bucket/lake", "abfss://c@account/lake", "hdfs://host/lake"]


@pytest.mark.parametrize("url", URLS)
def test_url_of_an_object_store_is_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for opened in (Lake, Lake.open_or_create):
        with pytest.raises(PipelineError, match="is not a directory: a lake is a directory"):
            opened(url)
    with pytest.raises(PipelineError, match="a lake is a directory"):
        penstock.pipeline.union(None, lake=url, queue="orders")
    assert list(tmp_path.iterdir()) == []


def test_url_of_a_file_is_its_directory(tmp_path):
    made = Lake.open_or_create(f"file://{tmp_path}/lake")
    assert made.directory == tmp_path / "lake"
    assert Lake(tmp_path / "lake").id == made.id


@pytest.mark.parametrize(
    "command",
    [["archive"], ["verify"], ["compact"], ["analyze"], ["audit"], ["redrive", "--queue", "orders", "--where", "true"]],
    ids=lambda command: command[0],
)
def test_commands_refuse_a_url_before_they_start_spark(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["pipeline", *command, "--lake", "s3://bucket/lake"])
    assert result.exit_code != 0
    assert "a lake is a directory" in result.output, result.output
    assert list(tmp_path.iterdir()) == []
