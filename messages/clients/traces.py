#!/usr/bin/env python3
"""Follows one job of every language through a real Jaeger.

    traces.py --main nats://127.0.0.1:4222 --jaeger http://127.0.0.1:16686 --otlp http://127.0.0.1:4318 --driver python=COMMAND ...

The services of `--main` send their spans to the same Jaeger. The client's own span is sent here, as a
program with OpenTelemetry would send it, and its context travels with the submission. Then Jaeger must have
one trace from the submission to the job's end: of at least four services, with that span as its only root, no
parent that is not there, a link on the allocation to its decision, and on every published event its place on
the log. Standard library only. Ends with 1 where a trace is otherwise.
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
from pathlib import Path
from typing import Any

LIMIT_S = 60
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


def submit(language: str, command: str, main: str, traceparent: str, folder: Path) -> str | None:
    """Has the driver submit a job and watch it to its end; what went wrong."""
    document = {"name": "traced", "command": {"start": ["true"]}, "demand": {"cpu": 0.1, "memory": "16Mi"}}
    cases = folder / f"{language}.json"
    cases.write_text(json.dumps({"cases": [{"name": "traced", "steps": [{"watched": document, "traceparent": traceparent}]}]}))
    # The drivers want three brokers; here all are the same.
    words = [*shlex.split(command), "--main", main, "--restricted", main, "--cutting", main]
    words += ["--tenant", f"traces-{language}", "--cases", str(cases)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    answer = json.loads(ended.stdout.splitlines()[-1]) if ended.stdout else {}
    return None if "ok" in answer else f"the driver said {ended.stdout!r}"


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


def faults(spans: list[dict[str, Any]], root: str) -> list[str]:
    """What is not as it should be."""
    wrong = []
    names = [span["name"].removeprefix("publish ") for span in spans]
    wrong += [f"no span of {name}" for name in WANTED if name not in names]
    services = {span["service"] for span in spans if span["service"].startswith("dormouse-")}
    if len(services) < 4:
        wrong.append(f"only {sorted(services)} took part")
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
    return wrong


def sequence(span: dict[str, Any]) -> int:
    values = [it["value"] for it in span.get("attributes", []) if it["key"] == "dormouse.sequence"]
    return int(values[0].get("intValue", 0)) if values else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--main", required=True, help="the broker of a running `dormouse up`")
    parser.add_argument("--jaeger", required=True, help="its query address")
    parser.add_argument("--otlp", required=True, help="where it takes spans by OTLP over HTTP")
    parser.add_argument("--driver", action="append", required=True, metavar="LANGUAGE=COMMAND")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="dormouse-traces-") as folder:
        for driver in options.driver:
            language, command = driver.split("=", 1)
            trace, root = secrets.token_hex(16), secrets.token_hex(8)
            send_root(options.otlp, language, trace, root)
            said = submit(language, command, options.main, f"00-{trace}-{root}-01", Path(folder))
            wrong = [said or "not asked yet"]
            spans: list[dict[str, Any]] = []
            # Spans are sent in batches, once a second.
            until = time.monotonic() + 10
            while wrong and not said and time.monotonic() < until:
                spans = spans_of(options.jaeger, trace)
                wrong = faults(spans, root)
                time.sleep(0.2)
            services = sorted({span["service"] for span in spans})
            print(f"{language}: trace {trace}: {len(spans)} spans of {', '.join(services)}", flush=True)
            for fault in wrong:
                print(f"traces: {language}: {fault}", file=sys.stderr)
            failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
