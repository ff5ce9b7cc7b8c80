"""The dashboard for Grafana shows metrics that exist: each expression is held against what a live cluster serves at
`/metrics`; each panel has a unit and a description. `make trainer-test` and `make test` run it."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import harness
import pytest
from test_elastic import free_port
from test_notebook import built

DASHBOARD = Path(__file__).resolve().with_name("dormouse.json")
NAME = re.compile(r"dormouse_[a-z0-9_]+")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")


def series(text):
    """What is served: the labels of each metric by its name."""
    found = {}
    for line in text.splitlines():
        if line.startswith("dormouse_"):
            name, _, labels = line.partition("{")
            found.setdefault(name.split()[0], set()).update(LABEL.findall(labels.rpartition("}")[0]))
    return found


def unknown(expression, served):
    """What an expression names that is not served."""
    names = [(match.group(), expression[match.end() :]) for match in NAME.finditer(expression)]
    if not names:
        yield "%s names no metric" % expression
    for name, rest in names:
        if name not in served:
            yield "%s is not served" % name
            continue
        asked = LABEL.findall(rest[1:].partition("}")[0]) if rest.startswith("{") else []
        for label in asked:
            if label not in served[name]:
                yield "%s has no label %s" % (name, label)


def problems(dashboard, served):
    """What is wrong with a dashboard."""
    if dashboard.get("uid") != "dormouse-cluster" or "id" in dashboard:
        yield "its uid is fixed, and it has no id"
    if not any(it["type"] == "datasource" for it in dashboard["templating"]["list"]):
        yield "it has no variable for the data source"
    for panel in dashboard["panels"]:
        if not panel["fieldConfig"]["defaults"].get("unit") or not panel.get("description"):
            yield "%s has no unit or no description" % panel["title"]
        for target in panel["targets"]:
            expression = target["expr"]
            if any(expression.count(open_) != expression.count(close) for open_, close in ("()", "{}", "[]")):
                yield "%s does not parse" % expression
            yield from unknown(expression, served)


def test_every_metric_of_the_dashboard_is_served(tmp_path):
    binary, server = built()
    port = free_port()
    env = {"DORMOUSE_NATS_SERVER": server, "DORMOUSE_DATA": str(tmp_path)}
    argv = [binary, "up", "--nodes", "1", "--capacity", "cpu=2,memory=2Gi", "--metrics", "127.0.0.1:%d" % port]
    up = harness.start(argv, env)
    try:
        harness.await_line(up, "A cluster of")
        document = {"name": "a", "tenant": "ads", "command": {"start": ["true"]}, "demand": {"cpu": 1}}
        # What is said of a service is said before its first request.
        service = {
            "name": "line",
            "tenant": "ads",
            "kind": "inference",
            "command": {"start": ["sleep", "60"]},
            "demand": {"cpu": 1},
            "containers": {"min": 0, "max": 1},
            "service": {"objective": {"latency_ms": 128, "percentile": 99}},
        }
        for it in (document, service):
            command = [binary, "submit", "-"]
            subprocess.run(command, input=json.dumps(it), env={**os.environ, **env}, text=True, check=True)
        subprocess.run([binary, "job", "wait", "ads/a"], env={**os.environ, **env}, check=True)
        dashboard = json.loads(DASHBOARD.read_text())
        assert len(dashboard["panels"]) >= 10

        def served():
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as answer:
                return answer.read().decode()

        # What no service has done yet is served once it has.
        harness.await_that("metrics", lambda: not list(problems(dashboard, series(served()))))
        assert len([line for line in served().splitlines() if line.startswith("dormouse_")]) < 500
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.communicate()


GOOD = {
    "uid": "dormouse-cluster",
    "templating": {"list": [{"type": "datasource"}]},
    "panels": [
        {
            "title": "t",
            "description": "d",
            "fieldConfig": {"defaults": {"unit": "s"}},
            "targets": [{"expr": 'sum(dormouse_active{service=~"$service"})'}],
        }
    ],
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dormouse_active", "dormouse_actve"),
        ("service=~", "job=~"),
        ("sum(dormouse", "sum((dormouse"),
        ('"s"', '""'),
        ('"d"', '""'),
        ('"datasource"', '"query"'),
        ("dormouse-cluster", "another"),
    ],
)
def test_a_wrong_dashboard_is_found(old, new):
    served = series('dormouse_active{service="optimizer"} 1\n')
    assert list(problems(GOOD, served)) == []
    spoiled = json.loads(json.dumps(GOOD).replace(old, new))
    assert len(list(problems(spoiled, served))) == 1
