"""`make scaling`: two paced jobs share eight devices, and one of them gains little by more of them.

Two clusters run the same at the same time: one values each container alike, one by the speed that it brings, which it
learns from the jobs' progress. `bends` starts alone and needs 100 ms + 20 ms ÷ containers for a step; after 90 s comes
`scales`, which needs 400 ms ÷ containers. Steps are sleeps, so that devices, not processors, are the capacity.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from run import ROOT, Cluster  # noqa: E402

OBJECTIVES = ("linear", "speed")
#: The objective alone prices unfairness and restarts.
POLICY = "policy: {theta1: 1, theta2: 1, min_run_s: 0, objective: {value: %s, loss: 0.05, amortise_s: 120}}\n"
SECOND_AFTER_S = 90


def training(name, steps, step_ms, exchange_ms):
    start = ["python3", "deploy/examples/count.py", "--steps", str(steps)]
    start += ["--step-ms", str(step_ms), "--exchange-ms", str(exchange_ms)]
    return {
        "name": name, "tenant": "lab", "kind": "training", "command": {"start": start}, "min_run_s": 0,
        "demand": {"gpu": 1, "cpu": "250m", "memory": "256Mi"}, "containers": {"min": 1, "max": 8},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 10},
    }


def ended(cluster):
    """The jobs' rows, once both have ended."""
    rows = {row["job"]: row for row in cluster.ask("job", "list", "--phase", "completed")["jobs"]}
    return rows if len(rows) == 2 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dormouse", type=Path, default=ROOT / "target/debug/dormouse")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo/scaling")
    options = parser.parse_args()
    if options.folder.exists():
        shutil.rmtree(options.folder)
    clusters = {}
    try:
        for value in OBJECTIVES:
            cluster = clusters[value] = Cluster(options.dormouse, options.folder / value, nodes=1)
            policy = cluster.folder / "policy.yaml"
            policy.write_text(POLICY % value, encoding="utf-8")
            cluster.run("policy", "set", policy)
        for cluster in clusters.values():
            cluster.submit(training("bends", 2400, 20, 100))
        print("bends runs alone for %d s …" % SECOND_AFTER_S, flush=True)
        time.sleep(SECOND_AFTER_S)
        print(clusters["speed"].run("job", "show", "lab/bends"), flush=True)
        for cluster in clusters.values():
            cluster.submit(training("scales", 3000, 400, 0))
        began, rows = time.time(), {}
        while len(rows) < len(clusters):
            time.sleep(10)
            for value, cluster in clusters.items():
                if value not in rows:
                    print("%5.0f s, %s: %s" % (time.time() - began + SECOND_AFTER_S, value, cluster.containers()), flush=True)
                    found = ended(cluster)
                    if found:
                        rows[value] = found
            if time.time() - began > 900:
                sys.exit("scaling: not ended within 900 s; see %s" % options.folder)
        print()
        for value, found in rows.items():
            spans = {job: row["age_s"] for job, row in found.items()}
            last = max(spans["lab/bends"], spans["lab/scales"] + SECOND_AFTER_S)
            print(
                "%-6s: bends took %.0f s, scales %.0f s; the cluster was free after %.0f s; %d resizes"
                % (value, spans["lab/bends"], spans["lab/scales"], last, sum(row["resizes"] for row in found.values()))
            )
    finally:
        for cluster in clusters.values():
            cluster.stop()


if __name__ == "__main__":
    main()
