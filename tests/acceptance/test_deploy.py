"""Files for monitoring: every metric that they name exists, and every alert has a runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from dashboard_seed import fill
from http_server import running

ROOT = Path(__file__).resolve().parents[2]
METRIC = re.compile(r"\b(?:penstock|process)_[a-z_]+")
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
GRAFANA = json.loads((ROOT / "deploy/grafana/penstock.json").read_text())


@pytest.fixture(scope="module")
def exposed(tmp_path_factory) -> set[str]:
    with running(tmp_path_factory.mktemp("deploy") / "data") as server:
        fill(server)
        text = server.ask("GET", "/metrics").body.decode()
    names = set(re.findall(r"^([a-z_]+)(?:{| )", text, re.MULTILINE))
    # Families without a sample yet are named by their type.
    return names | {
        name + suffix
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
        for suffix in ({"histogram": ("_bucket", "_sum", "_count")}.get(kind, ("",)))
    }


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_names_metrics_that_exist_and_has_a_runbook(rule, exposed):
    assert set(METRIC.findall(rule["expr"])) <= exposed
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^### (\S+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower() and rule["alert"] in headings


@pytest.mark.parametrize("panel", GRAFANA["panels"], ids=lambda panel: panel["title"])
def test_panel_names_metrics_that_exist(panel, exposed):
    for target in panel["targets"]:
        assert set(METRIC.findall(target["expr"])) <= exposed


def test_every_runbook_belongs_to_an_alert_and_documented_metrics_exist(exposed):
    text = (ROOT / "docs/operating/monitoring.md").read_text()
    assert set(re.findall(r"^### (\S+)$", text, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}
    named = set(METRIC.findall(text.partition("## Alerts")[0])) - {"penstock_messages_", "process_"}
    named -= {"penstock_processes", "penstock_processes_answered"}  # of several processes: test_processes_surface.py
    assert named <= exposed | {name.removesuffix("_bucket") for name in exposed}
