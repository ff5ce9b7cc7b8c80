"""`make mixed`: training, a model service and a notebook share one machine, with real processes.

1. A cluster of two nodes with eight named devices each starts in a folder of its own.
2. Four training jobs, resized in place, take all devices. A service of 1 to 12 replicas, one device each, answers
   requests; a notebook is in use. A third node has one GPU more, the stand-in for a driver: a training job with half of
   it and four notebooks with an eighth each share it.
3. Clients come and go as in the experiment of DynamoML (CLOSER 2021), its 28 minutes compressed to two. Each sends at times
   of its own; a request's latency counts from when it was to be sent, not from when it was. Half of them come by a second
   gateway, which is stopped and started once, and one replica is killed. A prediction may be asked for twice, so a client
   whose connection or replica broke asks again, by the other gateway.
4. The result: latencies against the objective, lost requests, what training gave up and took back, the shares of the GPU,
   and the log's words.

Answers and training steps are paced by the clock, so that devices, not processors, are the capacity. The stand-in's
kernels take as long as they say; how many are launched depends on the processors.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[3]
#: Clients by the minute of the experiment, as its figure shows them.
CLIENTS = [10, 40, 100, 160, 220, 280, 340, 340, 280, 220, 160, 100] + [40] * 9 + [100, 160, 220, 160, 100, 40, 40]
LATENCY_MS, PERCENTILE, WORK_MS = 250, 99, 50
JOBS = 4
DEVICES = 8
#: When the second gateway is stopped and started again, and when a replica is killed: parts of the experiment.
GATEWAY_AT, REPLICA_AT = 0.3, 0.55
#: How often a client asks in all, and how long it waits before it asks again.
TRIES, AGAIN_S = 4, 0.05
#: The stand-in's first device, and who shares it: request and limit.
GPU = "GPU-d0000000-0000-0000-0000-000000000000"
SHARES = {"lab/trainer": (0.5, 1.0), **{"lab/notebook-%d" % index: (0.125, 0.25) for index in range(4)}}


def demand(devices):
    return {"gpu": devices, "cpu": "250m", "memory": "256Mi"}


def training(index):
    start = ["python3", "deploy/examples/elastic.py", "--steps", "1000000", "--step-ms", "200"]
    return {
        "name": "train-%d" % index, "tenant": "lab", "kind": "training", "resize": "in_place",
        "command": {"start": start}, "demand": demand(1), "containers": {"min": 1, "start": 2, "max": 4},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 10}, "min_run_s": 0,
    }


def service():
    start = ["python3", "deploy/examples/mixed/digits.py", "--work-ms", str(WORK_MS)]
    return {
        "name": "digits", "tenant": "shop", "kind": "inference", "command": {"start": start},
        "demand": demand(1), "containers": {"min": 1, "max": 12},
        "service": {
            "ready": {"path": "/healthz", "timeout_s": 60}, "access": "open", "drain_s": 10,
            "objective": {"latency_ms": LATENCY_MS, "percentile": PERCENTILE},
        },
    }


def notebook(tools):
    return {
        "name": "analysis", "tenant": "lab", "kind": "notebook", "demand": {"cpu": "250m", "memory": "512Mi"},
        "command": {"start": [str(tools / "notebook/bin/jupyter-server")]}, "containers": {"min": 0, "max": 1},
    }


def sharing(job, folder, index):
    """A job with a part of the GPU; only these tolerate its node's taint."""
    request, limit = SHARES[job]
    kind = "training" if job == "lab/trainer" else "notebook"
    start = ["python3", "deploy/examples/mixed/gpu.py", "train" if kind == "training" else "notebook", "--seed", str(index)]
    return {
        "name": job.split("/")[1], "tenant": "lab", "kind": kind, "command": {"start": start},
        "demand": {"gpu": request, "cpu": "100m", "memory": "256Mi"}, "gpu_limit": limit, "gpu_memory": "1Gi",
        "containers": {"min": 1, "max": 1}, "constraints": {"device": "stand-in"}, "tolerations": ["shared"],
        "env": {"LD_LIBRARY_PATH": str(folder / "driver"), "STANDIN_GPU": str(folder / "driver/gpu")},
    }


class Cluster:
    """A local cluster in a folder."""

    def __init__(self, program, folder, nodes=2):
        self.program, self.folder = program, folder
        folder.mkdir(parents=True)
        log = open(folder / "up.log", "w", encoding="utf-8")
        capacity = "gpu=%d,cpu=8,memory=16Gi" % DEVICES
        self.process = subprocess.Popen(
            [program, "up", "--data", folder / "data", "--nodes", str(nodes), "--capacity", capacity],
            stdout=log, stderr=log, cwd=ROOT,
        )
        self.wait("its nodes", lambda: len(self.ask("nodes")["nodes"]) == nodes)
        self.agent = self.gateway = None

    def serve(self, *arguments):
        """A service in a process of its own, whose third argument is its name."""
        log = open(self.folder / (arguments[2] + ".log"), "a", encoding="utf-8")
        url = (self.folder / "data/broker/url").read_text(encoding="utf-8").strip()
        return subprocess.Popen(
            [self.program, "serve", *map(str, arguments), "--server", url], stdout=log, stderr=log, cwd=ROOT
        )

    def start_gateway(self, port):
        """A second gateway, beside that of `up`."""
        self.gateway = self.serve(
            "gateway", "--name", "second", "--listen", "127.0.0.1:%d" % port, "--url", "http://localhost:%d" % port,
            "--data", self.folder / "second",
        )

    def restart_gateway(self, port):
        self.gateway.send_signal(signal.SIGTERM)
        self.gateway.wait(30)
        self.start_gateway(port)

    def kill_replica(self):
        """Kills the program of one replica, as a fault would."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if b"digits.py" in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                    os.kill(int(process.name), signal.SIGKILL)
                    return
            except OSError:
                continue

    def share_gpu(self, library):
        """A node of its own with one GPU, whose driver is the stand-in."""
        driver = self.folder / "driver"
        driver.mkdir()
        (driver / "libcuda.so.1").symlink_to(library)
        self.agent = self.serve(
            "agent", "--node", "device", "--capacity", "gpu=1,cpu=4,memory=4Gi", "--gpu", GPU + ",Stand-in,16Gi",
            "--label", "device=stand-in", "--taint", "shared", "--trust-jobs", "--data", self.folder / "device",
        )
        self.wait("the GPU's node", lambda: len(self.ask("nodes")["nodes"]) == 3)

    def run(self, *arguments, check=True):
        done = subprocess.run(
            [self.program, *map(str, arguments), "--data", self.folder / "data"], capture_output=True, text=True, cwd=ROOT
        )
        if check and done.returncode not in (0, 2):
            sys.exit("mixed: dormouse %s: %s" % (" ".join(map(str, arguments)), done.stderr.strip()))
        return done.stdout

    def ask(self, *arguments):
        try:
            return json.loads(self.run(*arguments, "-o", "json", check=False))
        except ValueError:
            return {"nodes": [], "jobs": [], "notebooks": []}

    def submit(self, document):
        path = self.folder / (document["name"] + ".json")
        path.write_text(json.dumps(document), encoding="utf-8")
        self.run("submit", path)

    def containers(self):
        return {row["job"]: row["containers"]["now"] if isinstance(row["containers"], dict) else row["containers"]
                for row in self.ask("jobs")["jobs"]}

    def wait(self, what, is_so, patience_s=90):
        deadline = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit("mixed: %s: not within %d s; see %s" % (what, patience_s, self.folder / "up.log"))
            time.sleep(0.2)

    def stop(self):
        for process in filter(None, [self.gateway, self.agent, self.process]):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


class Load:
    """Clients, each with a connection of its own."""

    def __init__(self, ports, every_s, minute_s):
        self.ports, self.every_s, self.minute_s = ports, every_s, minute_s
        #: What was answered; why what was asked again broke before; what was lost for good.
        self.latencies_ms, self.again, self.lost = [], [], []
        with numpy.load(ROOT / "deploy/examples/data/digits.npz") as found:
            self.images = [[int(it) for it in image] for image in found["x"][-200:]]

    async def run(self):
        self.began = time.monotonic()
        await asyncio.gather(*(self.client(index) for index in range(max(CLIENTS))))

    def wanted(self, at):
        minute = int((at - self.began) / self.minute_s)
        return CLIENTS[minute] if minute < len(CLIENTS) else None

    async def client(self, index):
        source = random.Random(index)
        connection, at = None, self.began + source.uniform(0, self.every_s)
        while True:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            wanted = self.wanted(at)
            if wanted is None:
                break
            if index < wanted:
                connection = await self.ask(connection, at, index, source.choice(self.images))
            at += self.every_s
        if connection:
            connection[1].close()

    async def ask(self, connection, at, index, image):
        """Asks until it is answered; the connection for the next time."""
        for attempt in range(TRIES):
            port = self.ports[(index + attempt) % len(self.ports)]
            connection, why = await self.ask_once(connection, port, image)
            if why is None:
                self.latencies_ms.append((time.monotonic() - at) * 1000)
                return connection
            (self.again if attempt + 1 < TRIES else self.lost).append(why)
            await asyncio.sleep(AGAIN_S)
        return connection

    @staticmethod
    async def ask_once(connection, port, image):
        """The connection, where it is still good, and why there was no answer, where there was none."""
        body = json.dumps({"pixels": image}).encode()
        head = "POST /shop/digits/predict HTTP/1.1\r\nhost: localhost:%d\r\ncontent-length: %d\r\n\r\n" % (port, len(body))
        try:
            if connection is None:
                connection = await asyncio.open_connection("127.0.0.1", port)
            connection[1].write(head.encode() + body)
            first = await connection[0].readline()
            if not first.endswith(b"\n"):
                raise ConnectionResetError("closed before an answer")
            status = int(first.split()[1])
            length = 0
            while line := (await connection[0].readline()).strip():
                name, value = line.decode().split(":", 1)
                length = int(value) if name.lower() == "content-length" else length
            await connection[0].readexactly(length)
            return connection, None if status == 200 else str(status)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            if connection:
                connection[1].close()
            return None, type(error).__name__


async def break_things(cluster, port, seconds):
    """Stops the second gateway and starts it again; later kills a replica."""
    await asyncio.sleep(seconds * GATEWAY_AT)
    await asyncio.to_thread(cluster.restart_gateway, port)
    await asyncio.sleep(seconds * (REPLICA_AT - GATEWAY_AT))
    cluster.kill_replica()


async def use_notebook(opened, seconds):
    """Saves a file every five seconds; how long each saving took."""
    address, token = opened["addresses"][0], opened["token"]
    _, _, authority = address.partition("//")
    port = authority.strip("/").rsplit(":", 1)[1]
    took_ms, end = [], time.monotonic() + seconds

    def save():
        request = urllib.request.Request("http://127.0.0.1:%s/api/contents/notes.txt" % port, method="PUT")
        request.add_header("Host", authority.strip("/"))
        request.add_header("Authorization", "token " + token)
        content = {"type": "file", "format": "text", "content": time.ctime()}
        began = time.monotonic()
        with urllib.request.urlopen(request, json.dumps(content).encode(), timeout=30) as answer:
            answer.read()
        took_ms.append((time.monotonic() - began) * 1000)

    while time.monotonic() < end:
        await asyncio.to_thread(save)
        await asyncio.sleep(5)
    return took_ms


def quantile(sorted_values, part):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * part))] if sorted_values else float("nan")


def events(cluster):
    path = cluster.folder / "log.jsonl"
    cluster.run("log", "export", "--file", path)
    with open(path, encoding="utf-8") as file:
        return path, [json.loads(line) for line in file]


def seconds(event):
    from datetime import datetime

    return datetime.fromisoformat(event["storedat"].replace("Z", "+00:00")).timestamp()


def shares(cluster, path, log):
    """What each had of the GPU by its windows on the log; whether each was there and none above its limit."""
    windows = [it["data"] for it in log if it["type"] == "dormouse.container.gpu_used.v1"]
    fine, together = True, 0.0
    for job, (request, limit) in SHARES.items():
        own = [it for it in windows if it["container"].startswith(job + "/") and it["window_ms"] >= 5000]
        parts = [it["devices"][0]["charged_us"] / it["window_ms"] / 1000 for it in own]
        if not parts:
            print("GPU        %-15s nothing was told of it" % job)
            fine = False
            continue
        mean, waited = sum(parts) / len(parts), sum(it["devices"][0]["waited_us"] for it in own) / 1e6
        together += mean
        print("GPU        %-15s %5.1f %% of the device in %d windows (%.1f to %.1f); request %.1f, limit %.1f; waited %.0f s" % (
            job, 100 * mean, len(parts), 100 * min(parts), 100 * max(parts), 100 * request, 100 * limit, waited))
        # A limit is saved up for a tenth of a second; an open piece is counted when it ends.
        fine = fine and max(parts) <= limit + 0.03
    print("           %.1f %% together" % (100 * together))
    picture = cluster.folder / "gpu.svg"
    cluster.run("timeline", "gpu-use", "--log", path, "--file", picture)
    print("Picture    %s" % picture)
    return fine


def report(cluster, load, saved_ms, began, ended):
    path, log = events(cluster)
    found = sorted(load.latencies_ms)
    in_time = sum(it <= LATENCY_MS for it in found) / max(1, len(found))
    print("\nRequests   %d answered, %d lost%s" % (len(found), len(load.lost), " " + str(load.lost[:3]) if load.lost else ""))
    print("           %d times asked again, while a gateway was restarted and a replica killed: %s" % (
        len(load.again), ", ".join("%d × %s" % (load.again.count(it), it) for it in sorted(set(load.again))) or "never"))
    print("Latency    p50 %.0f ms, p99 %.0f ms, largest %.0f ms; %.2f %% within %d ms (promised: %d %%)" % (
        quantile(found, 0.5), quantile(found, 0.99), found[-1] if found else 0, 100 * in_time, LATENCY_MS, PERCENTILE))
    print("Notebook   %d files saved, the slowest in %.0f ms" % (len(saved_ms), max(saved_ms or [0])))
    of = lambda name: [it for it in log if it["type"] == "dormouse.%s.v1" % name]  # noqa: E731
    scaled = of("service.scaled")
    print("Replicas   %s" % " → ".join(str(it["data"]["replicas"]) for it in scaled if it["data"]["job"] == "shop/digits"))
    starts = sorted(it["data"]["after_ms"] for it in of("container.ready") if it["data"]["container"].startswith("shop/digits/"))
    print("           %d starts, median %.1f s" % (len(starts), quantile(starts, 0.5) / 1000))
    for index in range(JOBS):
        job = "lab/train-%d" % index
        sizes = [(seconds(it), it["data"]["containers"]) for it in of("partition.resized") if it["data"]["job"] == job]
        during = [(at, size) for at, size in sizes if began <= at <= ended]
        before = [size for at, size in sizes if at < began]
        size, at, total = (before[-1] if before else 2), began, 0.0
        for then, now in during + [(ended, 0)]:
            total, at, size = total + size * (then - at), then, now
        starts = len([it for it in of("partition.start_requested") if it["data"]["job"] == job])
        steps = [it["data"]["step"] for it in of("progress") if it["data"]["job"] == job]
        print("%s  %.2f of 4 containers on average, %s; started %d time%s, step %d" % (
            job, total / (ended - began), " → ".join(str(size) for _, size in during) or "as it was", starts,
            "" if starts == 1 else "s", max(steps or [0])))
    made = [it for it in of("partition.resize_requested") if it["data"].get("for")]
    for it in made[:6]:
        print("           %s  %s: %d leave, room for %s" % (it["storedat"][11:23], it["data"]["job"], len(it["data"]["leave"]), it["data"]["for"]))
    picture = cluster.folder / "containers.svg"
    cluster.run("timeline", "containers", "--log", path, "--file", picture)
    print("Verified   %s" % cluster.run("log", "verify", "--log", path).strip().splitlines()[-1])
    print("Log        %s\nPicture    %s" % (path, picture))
    return shares(cluster, path, log) and not load.lost


async def experiment(cluster, load, opened, seconds):
    both = load.run(), use_notebook(opened, seconds), break_things(cluster, load.ports[1], seconds)
    return (await asyncio.gather(*both))[1]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dormouse", type=Path, default=ROOT / "target/debug/dormouse")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo/mixed")
    parser.add_argument("--seconds", type=float, default=120.0, help="what the experiment's 28 minutes take")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two requests of a client")
    options = parser.parse_args()
    if options.folder.exists():
        import shutil

        shutil.rmtree(options.folder)
    tools = Path(os.environ.get("DORMOUSE_TOOLS", ROOT / ".tools"))
    cluster = Cluster(options.dormouse, options.folder)
    try:
        for index in range(JOBS):
            cluster.submit(training(index))
        cluster.wait("training on all devices", lambda: sum(cluster.containers().values()) == 2 * DEVICES)
        print("Four training jobs have all %d devices." % (2 * DEVICES), flush=True)
        cluster.share_gpu(options.dormouse.parent.resolve() / "libdormouse_gpu_standin.so")
        for index, job in enumerate(SHARES):
            cluster.submit(sharing(job, options.folder.resolve(), index))
        cluster.wait("five jobs on one GPU", lambda: all(cluster.containers().get(job) == 1 for job in SHARES))
        print("A training job and four notebooks share one GPU.", flush=True)
        cluster.submit(service())
        cluster.submit(notebook(tools))
        opened = json.loads(cluster.run("notebook", "open", "lab/analysis", "-o", "json"))
        port = int(opened["addresses"][0].strip("/").rsplit(":", 1)[1])
        second = free_port()
        cluster.start_gateway(second)
        cluster.wait("the first replica", lambda: cluster.containers().get("shop/digits", 0) >= 1)
        print("A replica and a notebook are ready. %d to %d clients for %.0f s …" % (min(CLIENTS), max(CLIENTS), options.seconds), flush=True)
        load, began = Load([port, second], options.every, options.seconds / len(CLIENTS)), time.time()
        saved_ms = asyncio.run(experiment(cluster, load, opened, options.seconds))
        ended = time.time()
        cluster.wait("the room back", lambda: cluster.containers().get("lab/train-0", 0) >= 3, 120)
        fine = report(cluster, load, saved_ms, began, ended)
        for job in ["shop/digits", "lab/analysis", *SHARES] + ["lab/train-%d" % index for index in range(JOBS)]:
            cluster.run("job", "cancel", job)
        cluster.wait("the end of all jobs", lambda: sum(cluster.containers().values()) == 0)
    finally:
        cluster.stop()
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
