#!/usr/bin/env python3
"""Follows one job of every language through a real Jaeger, then one that another job is resized for, and one that is refused.

    traces.py --main nats://127.0.0.1:4222 --jaeger http://127.0.0.1:16686 --otlp http://127.0.0.1:4318 --driver python=COMMAND ...

The services of `--main` send their spans to the same Jaeger. The client's own span is sent here, as a
program with OpenTelemetry would send it, and its context travels with the submission. Then Jaeger must have
one trace from the submission to the job's end: of at least four services, with that span as its only root, no
parent that is not there, a link on the allocation to its decision, and on every published event its place on
the log. The trace of a job that comes to a full cluster also has how the one before it saved, stopped and started
again with less; that of a refused one ends in an error, and no other has one. Standard library only. Ends with 1
where a trace is otherwise.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 120
WANTED = [
    "submission.received",
    "job.admitted",
    "job.released",
    "allocation.decided",
    "placement.decided",
    "partition.start_requested",
    "container.started",
    "partition.started",
    "container.exited",
    "job.completed",
]
# What the trace of a job has besides that another one is resized for: about that other one. (What agents write is
# about their node.)
RESIZED = ["checkpoint.requested", "partition.stopped", "partition.start_requested", "partition.started"]
REFUSED = ["submission.received", "job.refused"]
# OpenTelemetry's STATUS_CODE_ERROR, by its number and by its name.
ERROR = (2, "STATUS_CODE_ERROR")
TENANT = "traces-resized"
# Its first rank saves when it is asked to; all end then.
SAVES = """save() {
  [ "$DORMOUSE_RANK" = 0 ] || exit 0
  echo '{"step": 1, "bytes": 0}' > "$DORMOUSE_CHECKPOINT_DIR/new"
  mv "$DORMOUSE_CHECKPOINT_DIR/new" "$DORMOUSE_CHECKPOINT_DIR/checkpoint.json"
  exit 0
}
trap save TERM
while :; do sleep 0.1; done"""


def send_root(otlp: str, language: str, trace: str, span: str) -> None:
    """The client's own span, by OTLP over HTTP in JSON."""
    now = time.time_ns()
    sent = {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": f"client-{language}"}}]},
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": trace,
                                "spanId": span,
                                "name": "submit a job",
                                "kind": 3,
                                "startTimeUnixNano": str(now),
                                "endTimeUnixNano": str(now + 1_000_000),
                            }
                        ]
                    }
                ],
            }
        ]
    }
    request = urllib.request.Request(f"{otlp}/v1/traces", json.dumps(sent).encode(), {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=10).read()


def document(name: str, *command: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": {"start": list(command)}, "demand": {"cpu": 0.1, "memory": "16Mi"}, **more}


def drive(command: str, main: str, tenant: str, step: dict[str, Any], folder: Path) -> subprocess.Popen[str]:
    """Starts the driver with one step."""
    cases = folder / f"{secrets.token_hex(4)}.json"
    cases.write_text(json.dumps({"cases": [{"name": "traced", "steps": [step]}]}))
    # The drivers want three brokers; here all are the same.
    words = [*shlex.split(command), "--main", main, "--restricted", main, "--cutting", main]
    return subprocess.Popen([*words, "--tenant", tenant, "--cases", str(cases)], stdout=subprocess.PIPE, text=True)


def answer(driver: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = driver.communicate(timeout=LIMIT_S)
    return json.loads(said.splitlines()[-1]) if said else {}


def spans_of(jaeger: str, trace: str) -> list[dict[str, Any]]:
    """The trace as Jaeger has it, each span with its service."""
    try:
        with urllib.request.urlopen(f"{jaeger}/api/v3/traces/{trace}", timeout=10) as answer:
            resources = json.load(answer)["result"].get("resourceSpans", [])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise
    found = []
    for resource in resources:
        attributes = {it["key"]: it["value"] for it in resource["resource"]["attributes"]}
        service = attributes["service.name"]["stringValue"]
        found += [{**span, "service": service} for scope in resource["scopeSpans"] for span in scope["spans"]]
    return found


def faults(spans: list[dict[str, Any]], root: str, wanted: list[str] = WANTED, services: int = 4) -> list[str]:
    """What is not as it should be."""
    wrong = []
    names = [span["name"].removeprefix("publish ") for span in spans]
    wrong += [f"no span of {name}" for name in wanted if name not in names]
    took_part = {span["service"] for span in spans if span["service"].startswith("dormouse-")}
    if len(took_part) < services:
        wrong.append(f"only {sorted(took_part)} took part")
    ids = {span["spanId"] for span in spans}
    roots = [span["name"] for span in spans if not span.get("parentSpanId")]
    if roots != ["submit a job"]:
        wrong.append(f"the roots are {roots}")
    wrong += [f"the parent of {span['name']} is not there" for span in spans if span.get("parentSpanId") and span["parentSpanId"] not in ids]
    if not any(span["name"] == "publish submission.received" and span.get("parentSpanId") == root for span in spans):
        wrong.append("the submission does not continue the client's span")
    for span in spans:
        if span["name"] == "publish allocation.decided" and not span.get("links"):
            wrong.append("the allocation has no link")
        if span["name"].startswith("publish ") and not sequence(span):
            wrong.append(f"{span['name']} has no place on the log")
        is_refusal = span["name"] == "publish job.refused"
        if (span.get("status", {}).get("code", 0) in ERROR) != is_refusal:
            wrong.append(f"the status of {span['name']} is {span.get('status')}")
    return wrong


def about(spans: list[dict[str, Any]], job: str, wanted: list[str]) -> list[str]:
    """What is not said of another job."""
    names = [span["name"].removeprefix("publish ") for span in spans if attribute(span, "dormouse.job") == job]
    return [f"no span of {name} of {job}" for name in wanted if name not in names]


def attribute(span: dict[str, Any], key: str) -> Any:
    values = [value for it in span.get("attributes", []) if it["key"] == key for value in it["value"].values()]
    return values[0] if values else None


def sequence(span: dict[str, Any]) -> int:
    return int(attribute(span, "dormouse.sequence") or 0)


class Follower:
    """Submits by drivers, and asks Jaeger for what follows."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.failed = options, folder, False

    def submit(self, what: str, command: str, tenant: str, job: dict[str, Any]) -> tuple[str, str, subprocess.Popen[str]]:
        """Has a driver submit a job and watch it to its end: the trace, its root, the driver."""
        trace, root = secrets.token_hex(16), secrets.token_hex(8)
        send_root(self.options.otlp, what, trace, root)
        step = {"watched": job, "traceparent": f"00-{trace}-{root}-01"}
        return trace, root, drive(command, self.options.main, tenant, step, self.folder)

    def judge(self, what: str, trace: str, wrong_in: Callable[[list[dict[str, Any]]], list[str]]) -> None:
        """Asks until nothing is wrong, or for 10 s: spans are sent in batches, once a second."""
        until, wrong = time.monotonic() + 10, ["not asked yet"]
        spans: list[dict[str, Any]] = []
        while wrong and time.monotonic() < until:
            spans = spans_of(self.options.jaeger, trace)
            wrong = wrong_in(spans)
            time.sleep(0.2)
        services = sorted({span["service"] for span in spans})
        print(f"{what}: trace {trace}: {len(spans)} spans of {', '.join(services)}", flush=True)
        self.fail(what, wrong)

    def fail(self, what: str, wrong: list[str]) -> None:
        for fault in wrong:
            print(f"traces: {what}: {fault}", file=sys.stderr)
        self.failed = self.failed or bool(wrong)

    def one_of(self, language: str, command: str) -> None:
        """A job of one language."""
        trace, root, driver = self.submit(language, command, f"traces-{language}", document("traced", "true"))
        said = answer(driver)
        if "ok" not in said:
            return self.fail(language, [f"the driver said {said!r}"])
        self.judge(language, trace, lambda spans: faults(spans, root))

    def resized(self, command: str) -> None:
        """A job fills the cluster, and another one comes: the first one saves, stops and starts again with less."""
        first = f"{TENANT}/first"
        filling = document("first", "sh", "-c", SAVES, containers={"min": 1, "max": 8}, demand={"cpu": 1, "memory": "16Mi"})
        filling["checkpoint"] = {"mode": "exit", "grace_s": 5}
        trace, _, filler = self.submit("first", command, TENANT, filling)
        self.judge("first", trace, lambda spans: about(spans, first, ["partition.started"]))
        half = document("second", "sleep", "1", containers={"min": 4, "max": 4}, demand={"cpu": 1, "memory": "16Mi"})
        trace, root, driver = self.submit("second", command, TENANT, half)
        said = answer(driver)
        if "ok" not in said:
            self.fail("second", [f"the driver said {said!r}"])
        self.judge("second", trace, lambda spans: faults(spans, root, [*WANTED, "checkpoint.saved"]) + about(spans, first, RESIZED))
        answer(drive(command, self.options.main, TENANT, {"cancel": "first"}, self.folder))
        answer(filler)

    def refused(self, command: str) -> None:
        """A job that cannot be: the fewest containers are more than the most."""
        job = document("refused", "true", containers={"min": 2, "max": 1})
        trace, root, driver = self.submit("refused", command, TENANT, job)
        said = answer(driver)
        if said.get("error", {}).get("class") != "Refused":
            self.fail("refused", [f"the driver said {said!r}"])
        self.judge("refused", trace, lambda spans: faults(spans, root, REFUSED, services=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--main", required=True, help="the broker of a running `dormouse up`")
    parser.add_argument("--jaeger", required=True, help="its query address")
    parser.add_argument("--otlp", required=True, help="where it takes spans by OTLP over HTTP")
    parser.add_argument("--driver", action="append", required=True, metavar="LANGUAGE=COMMAND")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dormouse-traces-") as folder:
        follower = Follower(options, Path(folder))
        drivers = [driver.split("=", 1) for driver in options.driver]
        for language, command in drivers:
            follower.one_of(language, command)
        follower.resized(drivers[0][1])
        follower.refused(drivers[0][1])
    return 1 if follower.failed else 0


if __name__ == "__main__":
    sys.exit(main())
