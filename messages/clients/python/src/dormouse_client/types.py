# Written by generate.sh from messages/schema/job-document.json; not by hand.

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict, Union

Access: TypeAlias = Literal['open', 'tenant', 'token']
"""
The callers allowed to use a service.
"""


class Batch(TypedDict):
    """
    The bounds on the global batch of a training job, in samples: its program divides a batch within them among
    the containers.
    """

    max: int
    """
    The largest batch.
    """
    min: int
    """
    The smallest batch; progress is counted in its steps.
    """


CheckpointMode: TypeAlias = Literal['exit', 'continue', 'none']
"""
The way in which a running job saves its state before a resize.
"""


class Command(TypedDict):
    """
    The command lines of a job.
    """

    resume: NotRequired[list[str]]
    """
    Resumes the job from a checkpoint; `start` if absent.
    """
    start: list[str]
    """
    Starts the job from nothing.
    """


class Containers(TypedDict):
    """
    The bounds on a job's containers.
    """

    max: int
    """
    The most containers that the job can use.
    """
    min: NotRequired[int]
    """
    The fewest containers, which start together; may be 0 for a service.
    """
    start: NotRequired[int | None]
    """
    Containers that start together, if resized in place; `min` if absent.
    """


Executor: TypeAlias = Literal['plain', 'mpi', 'mxnet', 'tensorflow', 'torch']
"""
The way in which each process of a job learns its cluster.
"""


class JobClass(TypedDict):
    """
    A job's class as of its admission.
    """

    name: str
    """
    Name of the class.
    """
    preempts: NotRequired[bool]
    """
    True if the class preempts.
    """
    value: int
    """
    Value of the class.
    """


Kind: TypeAlias = Literal['training', 'batch', 'inference', 'notebook']
"""
The kind of work of a job.
"""


class Mount(TypedDict):
    """
    A folder of the node in each container.
    """

    read_only: NotRequired[bool]
    """
    True to forbid writing.
    """
    source: str
    """
    Absolute path on the node.
    """
    target: str
    """
    Absolute path in the container.
    """


Network: TypeAlias = Literal['none', 'published', 'host']
"""
A container's network access, in ascending order.
"""


Percentile: TypeAlias = float
"""
a percentile such as 99 or 99.9
"""


Protocol: TypeAlias = Literal['http']
"""
The protocol of replicas.
"""


Quantity: TypeAlias = float | str
"""
a quantity: 2, 0.5, "500m", "8Gi"
"""


Ready: TypeAlias = Literal['progress']
"""
The condition under which a training job's incarnation may be resized.
"""


class Ready2(TypedDict):
    """
    The readiness check of a replica.
    """

    path: NotRequired[str]
    """
    Path that answers GET with 2xx once the replica is ready.
    """
    timeout_s: NotRequired[int]
    """
    Seconds after which a replica that is not ready is replaced.
    """


Requirements: TypeAlias = str | list[str]
"""
A file of requirements, or its lines.
"""


ResizeMode: TypeAlias = Literal['restart', 'in_place']
"""
The way in which a partition is resized.
"""


Scaling: TypeAlias = Literal['objective', 'hpa', 'kpa', 'ray']
"""
The rule for the number of replicas.
"""


class SecretSource1(TypedDict):
    """
    The contents of a file on the node.
    """

    file: str


class SecretSource2(TypedDict):
    """
    A variable of the agent's own environment.
    """

    env: str


SecretSource: TypeAlias = SecretSource1 | SecretSource2
"""
A secret's source on the node.
"""


Success: TypeAlias = Literal['all', 'coordinator']
"""
The condition under which a job succeeds.
"""


class Tasks(TypedDict):
    """
    Independent tasks of one job: the command line runs once per task.
    """

    concurrency: int
    """
    Limit on simultaneous tasks, and so on the job's containers.
    """
    count: int
    """
    Number of tasks; each finds its index, from 0, in `DORMOUSE_TASK`.
    """


Value: TypeAlias = bool | int | str
"""
A label's value: text, a number, true or false.
"""


class Warning(TypedDict):
    """
    A signal that a job receives before its time limit.
    """

    before_s: int
    """
    Seconds before the limit.
    """
    signal: NotRequired[str]
    """
    Signal for every process that handles it.
    """


class Workdir(TypedDict):
    """
    A packed folder.
    """

    bytes: int
    """
    Length of the archive.
    """
    sha256: str
    """
    SHA-256 of the archive, 64 digits of lower-case hexadecimal.
    """


WrittenClass: TypeAlias = str | JobClass
"""
A job's class by name; a resubmitted spec has the whole class, which is looked up again.
"""


class WrittenPython(TypedDict):
    """
    Python packages in a document.
    """

    requirements: Requirements
    """
    The packages.
    """
    version: NotRequired[str | None]
    """
    Version such as `"3.11"`.
    """


WrittenWorkdir: TypeAlias = str | Workdir
"""
A job's folder in a document.
"""


class Checkpoint(TypedDict):
    """
    The checkpoint contract of a job.
    """

    command: NotRequired[list[str]]
    """
    Command next to rank 0, instead of the signal.
    """
    grace_s: NotRequired[int]
    """
    Seconds to save, and again to stop, before the gang is killed.
    """
    mode: NotRequired[CheckpointMode]
    """
    Effect of saving on the job; `exit` if absent.
    """
    signal: NotRequired[str]
    """
    The signal that asks every process to save.
    """


class LatencyObjective(TypedDict):
    """
    The latency objective of a service.
    """

    latency_ms: int
    """
    Milliseconds from a request's arrival at the gateway to the end of its answer.
    """
    percentile: NotRequired[Percentile]
    """
    Percentile of requests that meet the latency.
    """


class LongResize(TypedDict):
    mode: ResizeMode
    signal: NotRequired[str | None]


Resize: TypeAlias = ResizeMode | LongResize
"""
The resize mode of a job, and the signal about changes of its members' file.
"""


SecretFrom = TypedDict(
    'SecretFrom',
    {
        'from': SecretSource
    },
)


class Service(TypedDict):
    """
    A service's objectives, scaling and access.
    """

    access: NotRequired[Access]
    """
    The allowed callers.
    """
    concurrency: NotRequired[int]
    """
    Simultaneous requests per replica; others wait at the gateway.
    """
    drain_s: NotRequired[int]
    """
    Seconds for a leaving replica to finish requests.
    """
    idle_s: NotRequired[int]
    """
    Seconds without a request (notebook: without work) before the last replica stops, if `containers.min`
    is 0.
    """
    objective: NotRequired[LatencyObjective | None]
    """
    Latency objective; if absent the service keeps `containers.min` replicas.
    """
    protocol: NotRequired[Protocol]
    """
    The protocol of replicas.
    """
    ready: NotRequired[Ready2]
    """
    The readiness check.
    """
    scaling: NotRequired[Scaling]
    """
    The rule for the number of replicas.
    """


EnvValue: TypeAlias = str | bool | int | float | SecretFrom
"""
An environment value: plain, or a reference to a secret on the node.
"""


class JobDocument(TypedDict):
    """
    A job as submitted. An unknown field is an error that names it.
    """

    batch: NotRequired[Batch | None]
    """
    Smallest and largest global batch, if the program can change it.
    """
    checkpoint: NotRequired[Checkpoint]
    """
    Checkpoint contract.
    """
    command: Command
    """
    Command lines of the job.
    """
    constraints: NotRequired[Constraints]
    """
    Requirements on the nodes.
    """
    containers: NotRequired[Containers]
    """
    Fewest and most containers.
    """
    demand: dict[str, Quantity]
    """
    Demand of one container.
    """
    depends_on: NotRequired[list[str]]
    """
    Jobs of the tenant that must complete before this one gets containers.
    """
    env: NotRequired[dict[str, EnvValue]]
    """
    Environment variables.
    """
    executor: NotRequired[Executor]
    """
    The way in which each process learns its cluster.
    """
    gpu_limit: NotRequired[Quantity | None]
    """
    For a fraction of a GPU: the limit while others leave capacity; by default the request.
    """
    gpu_limit_milli: NotRequired[int | None]
    """
    `gpu_limit` in thousandths.
    """
    gpu_memory: NotRequired[Quantity | None]
    """
    Memory of each of a container's GPUs.
    """
    gpu_memory_bytes: NotRequired[int | None]
    """
    `gpu_memory` in bytes.
    """
    if_plan: NotRequired[str | None]
    """
    Token of a plan; a job that would differ from the plan is refused.
    """
    image: NotRequired[str | None]
    """
    Image for the Docker runtime.
    """
    kind: NotRequired[Kind]
    """
    The kind of work.
    """
    min_run_s: NotRequired[int | None]
    """
    Seconds between a start and the next resize, at least; by default the policy's.
    """
    mounts: NotRequired[list[Mount]]
    """
    Folders of the node.
    """
    name: NotRequired[str | None]
    """
    `[a-z0-9-]`, unique within the tenant; generated if absent.
    """
    network: NotRequired[Network | None]
    """
    Network access: none, published or host; the most granted if absent.
    """
    priority: NotRequired[int | None]
    """
    Priority in the tenant's queue, the highest first; the tenant's default if absent.
    """
    priority_class: NotRequired[WrittenClass | None]
    """
    Priority class: the operator defines classes and grants them to tenants.
    """
    python: NotRequired[WrittenPython | None]
    """
    Python packages, which each node installs into an environment.
    """
    queue_limit_s: NotRequired[int | None]
    """
    Seconds from admission to first start; then the job is cancelled.
    """
    ready: NotRequired[Ready | None]
    """
    Condition for resizing an incarnation because other jobs come and go.
    """
    resize: NotRequired[Resize | None]
    """
    The way in which the partition is resized: `restart` or `in_place`.
    """
    retries: NotRequired[int]
    """
    Restarts of a failed gang, or of a failed task.
    """
    roles: NotRequired[dict[str, RoleDocument]]
    """
    Containers next to the workers, by role: `ps` (parameter servers) and `evaluator`.
    """
    service: NotRequired[Service | None]
    """
    Objectives of a service; only for `kind: inference` and `kind: notebook`.
    """
    speed: NotRequired[list[float]]
    """
    Speed of 1, 2, … containers in speeds of one container, until it is measured.
    """
    static_containers: NotRequired[int | None]
    """
    Containers under the policy `static`; the most if absent.
    """
    success: NotRequired[Success]
    """
    Condition for success.
    """
    tasks: NotRequired[Tasks | None]
    """
    Tasks of a batch job: one submission, tracked and cancelled as one.
    """
    tenant: NotRequired[str | None]
    """
    The ingress subject's tenant, if given.
    """
    time_limit_s: NotRequired[int | None]
    """
    Seconds that the job may run, over all incarnations; then it fails.
    """
    tolerations: NotRequired[list[str]]
    """
    Taints of nodes that the containers tolerate.
    """
    warning: NotRequired[Warning | None]
    """
    A signal before the time limit.
    """
    weight: NotRequired[int]
    """
    Weight of the job's fair share.
    """
    workdir: NotRequired[WrittenWorkdir | None]
    """
    Working folder of the command: a path next to the document, packed by the command line.
    """


Constraints: TypeAlias = dict[str, "Written"]
"""
Requirements and preferences of a job for its nodes.

`{zone: a, disk: [ssd, nvme], gpu.model: {not: K80}, spread: rack, prefer: {zone: b}}`.
"""


Not = TypedDict(
    'Not',
    {
        'not': "Written"
    },
)


class RoleDocument(TypedDict):
    """
    A role in a document.
    """

    command: NotRequired[Command | None]
    """
    Command lines of the role; the job's if absent.
    """
    constraints: NotRequired[Constraints | None]
    """
    Requirements on the nodes; the job's constraints if absent.
    """
    count: NotRequired[int]
    """
    Number of containers.
    """
    demand: dict[str, Quantity]
    """
    Demand of one container.
    """
    env: NotRequired[dict[str, EnvValue]]
    """
    Environment in addition to the job's.
    """


Written: TypeAlias = Union[bool, int, str, list[Value], Not, dict[str, "Written"]]
"""
A rule in a document.
"""
