"""The environment of a Spark session: an address of this machine alone only where the session is on this machine."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from penstock.pipeline import session


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Without a Java, a home or an address from outside, and put back afterwards."""
    monkeypatch.setattr(session, "ensure_java", lambda: None)
    monkeypatch.setattr(session, "ensure_home", lambda: None)
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*]", "local[2,4]"])
def test_local_master_listens_on_loopback(master):
    session.prepare(master)
    assert session.os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]", "mesos://host"]
)
def test_cluster_reaches_the_driver_at_its_own_address(master):
    session.prepare(master)
    assert "SPARK_LOCAL_IP" not in session.os.environ


def test_address_of_the_user_stays(environment):
    environment.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    session.prepare("local[2]")
    assert session.os.environ["SPARK_LOCAL_IP"] == "10.0.0.7"
