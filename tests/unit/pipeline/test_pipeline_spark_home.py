"""The home whose Python workers need not compile PySpark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from penstock.pipeline.options import PipelineError
from penstock.pipeline.session import prepare
from penstock.pipeline.spark_home import ensure_home

INSTALLED = Path(importlib.util.find_spec("pyspark").origin).parent


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    yield
    os.environ.pop("SPARK_HOME", None)


def made() -> Path:
    os.environ.pop("SPARK_HOME", None)
    ensure_home()
    return Path(os.environ["SPARK_HOME"])


def test_workers_that_begin_in_it_import_what_is_installed():
    zipped = [str(made() / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]
    told = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(zipped)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert Path(told.strip()).parent == INSTALLED
    assert (made() / "jars").samefile(INSTALLED / "jars") and (made() / "bin" / "spark-submit").exists()


@pytest.mark.parametrize("found", ["a link to nowhere", "a copy", "nothing"])
def test_one_that_is_not_as_it_should_be_is_made_anew(tmp_path, found):
    home = made()
    (home / "jars").unlink()
    if found == "a link to nowhere":
        (home / "jars").symlink_to(tmp_path / "gone")
    elif found == "a copy":
        (home / "jars").mkdir()
        (home / "jars" / "spark.jar").touch()
    assert made() == home and (home / "jars").samefile(INSTALLED / "jars")
    assert [entry.name for entry in home.parent.iterdir()] == [home.name], "nothing else is left behind"


def test_existing_spark_home_stays(monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    ensure_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.parametrize("cache", ["file", "x" * 300])
def test_unwritable_cache_leaves_spark_home_unset(tmp_path, monkeypatch, cache):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    ensure_home()
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("asked", ["low", "-5", "20", "1.5"])
def test_invalid_priority_is_reported_before_start(monkeypatch, asked):
    monkeypatch.setenv("PENSTOCK_SPARK_NICE", asked)
    with pytest.raises(PipelineError, match=r"PENSTOCK_SPARK_NICE is .* give 0"):
        prepare()


def test_another_python_keeps_what_it_finds_in_the_home_of_spark(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setattr("penstock.pipeline.session.ensure_java", lambda: None)
    prepare()
    assert "SPARK_HOME" not in os.environ
