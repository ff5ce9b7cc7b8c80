# Written by generate.sh from messages/schema/job-document.json; not by hand.

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict, Union

Access: TypeAlias = Literal['open', 'tenant', 'token']
"""
Who may call a service.
"""


CheckpointMode: TypeAlias = Literal['exit', 'continue', 'none']
"""
How a running job saves its state when its partition is resized.
"""


class Command(TypedDict):
    """
    The command lines of a job.
    """

    resume: NotRequired[list[str]]
    """
    Resumes it from a checkpoint; `start` where it is absent.
    """
    start: list[str]
    """
    Starts the job from nothing.
    """


class Containers(TypedDict):
    """
    How many containers a job may have.
    """

    max: int
    """
    The most it can use.
    """
    min: NotRequired[int]
    """
    The fewest it can run with (all of them start together). A service may have none.
    """
    start: NotRequired[int | None]
    """
    How many start together, where it is resized in place and may shrink below that; `min`
    where absent.
    """


Executor: TypeAlias = Literal['plain', 'mpi', 'mxnet', 'tensorflow', 'torch']
"""
How each process of a job is told its cluster.
"""


class JobClass(TypedDict):
    """
    The class of a job, with what it was worth when the job was admitted.
    """

    name: str
    """
    The class.
    """
    preempts: NotRequired[bool]
    """
    Whether it preempts.
    """
    value: int
    """
    Its value.
    """


Kind: TypeAlias = Literal['training', 'batch', 'inference', 'notebook']
"""
What kind of work a job is.
"""


class Mount(TypedDict):
    """
    A folder of the node, given to each container.
    """

    read_only: NotRequired[bool]
    """
    Whether the container may not write to it.
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
How containers reach the network, the least first.
"""


Percentile: TypeAlias = float
"""
a percentile such as 99 or 99.9
"""


Protocol: TypeAlias = Literal['http']
"""
What replicas speak.
"""


Quantity: TypeAlias = float | str
"""
a quantity: 2, 0.5, "500m", "8Gi"
"""


Ready: TypeAlias = Literal['progress']
"""
When a life of a training job counts as ready to be resized.
"""


class Ready2(TypedDict):
    """
    When a replica is used.
    """

    path: NotRequired[str]
    """
    A GET of it on the replica's port is answered with 2xx once the replica is ready.
    """
    timeout_s: NotRequired[int]
    """
    A replica that is not ready so long after its start is replaced.
    """


Requirements: TypeAlias = str | list[str]
"""
A file of requirements, or its lines.
"""


ResizeMode: TypeAlias = Literal['restart', 'in_place']
"""
How a partition changes while its job runs.
"""


Scaling: TypeAlias = Literal['objective', 'hpa', 'kpa', 'ray']
"""
How the number of replicas is decided.
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


Success: TypeAlias = Literal['all', 'chief']
"""
When a job has succeeded.
"""


class Tasks(TypedDict):
    """
    Independent tasks of one job: its command line runs once for each of them.
    """

    concurrency: int
    """
    The most that run at once: the most containers of the job.
    """
    count: int
    """
    How many; each finds its number, from 0, in `DORMOUSE_TASK`.
    """


Value: TypeAlias = bool | int | str
"""
A label's value: `a`, or a number, or true and false.
"""


class Warning(TypedDict):
    """
    A signal that a job is sent before its time is over.
    """

    before_s: int
    """
    So many seconds before.
    """
    signal: NotRequired[str]
    """
    Sent to every process that handles it.
    """


class Workdir(TypedDict):
    """
    A packed folder.
    """

    bytes: int
    """
    The archive's length.
    """
    sha256: str
    """
    SHA-256 of the archive, 64 digits of lower-case hexadecimal.
    """


WrittenClass: TypeAlias = str | JobClass
"""
A job's class as people write it: its name. In a specification that is submitted again it stands
with what it was worth, which is looked up anew.
"""


class WrittenPython(TypedDict):
    """
    The same, as people write it and as it is submitted.
    """

    requirements: Requirements
    """
    The packages.
    """
    version: NotRequired[str | None]
    """
    Such as `"3.11"`.
    """


WrittenWorkdir: TypeAlias = str | Workdir
"""
The folder of a job, as people write it and as it is submitted.
"""


class Checkpoint(TypedDict):
    """
    The checkpoint contract of a job.
    """

    command: NotRequired[list[str]]
    """
    Instead of the signal: a command run beside rank 0.
    """
    grace_s: NotRequired[int]
    """
    Seconds to save, and again to stop, before the gang is killed.
    """
    mode: NotRequired[CheckpointMode]
    """
    What saving does to the job. A contract that does not say it is one of a job that saves
    and ends.
    """
    signal: NotRequired[str]
    """
    The signal that asks every process to save.
    """


class LatencyObjective(TypedDict):
    """
    What clients are promised.
    """

    latency_ms: int
    """
    Milliseconds from a request's arrival at the gateway to its answer's end.
    """
    percentile: NotRequired[Percentile]
    """
    The percentile of the requests that are answered within it.
    """


class LongResize(TypedDict):
    mode: ResizeMode
    signal: NotRequired[str | None]


Resize: TypeAlias = ResizeMode | LongResize
"""
How a job is resized, and which signal tells its members that the members' file has changed.
"""


SecretFrom = TypedDict(
    'SecretFrom',
    {
        'from': SecretSource
    },
)


class Service(TypedDict):
    """
    What a service promises and how it ends its replicas.
    """

    access: NotRequired[Access]
    """
    Who may call it.
    """
    concurrency: NotRequired[int]
    """
    Requests that one replica works on at once; more wait at the gateway.
    """
    drain_s: NotRequired[int]
    """
    Seconds that a leaving replica has for the requests that it works on.
    """
    idle_s: NotRequired[int]
    """
    Seconds without a request (of a notebook: without work) until it has no replica, where
    `containers.min` is 0.
    """
    objective: NotRequired[LatencyObjective | None]
    """
    What clients are promised; without it the service keeps `containers.min` replicas.
    """
    protocol: NotRequired[Protocol]
    """
    What replicas speak.
    """
    ready: NotRequired[Ready2]
    """
    When a replica is used.
    """
    scaling: NotRequired[Scaling]
    """
    How the number of replicas is decided.
    """


EnvValue: TypeAlias = str | bool | int | float | SecretFrom
"""
An environment value: plain, or a reference to a secret on the node.
"""


class JobDocument(TypedDict):
    """
    A job as people submit it. An unknown field is an error that names it.
    """

    checkpoint: NotRequired[Checkpoint]
    """
    Checkpoint contract.
    """
    command: Command
    """
    Command lines.
    """
    constraints: NotRequired[Constraints]
    """
    Which nodes its containers may be on.
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
    Jobs of the same tenant that must complete before it may have containers.
    """
    env: NotRequired[dict[str, EnvValue]]
    """
    Environment.
    """
    executor: NotRequired[Executor]
    """
    How each process is told its cluster.
    """
    gpu_limit: NotRequired[Quantity | None]
    """
    Of a fraction of a GPU: the most that it may use while others leave it; the request by default.
    """
    gpu_limit_milli: NotRequired[int | None]
    """
    The same in thousandths.
    """
    gpu_memory: NotRequired[Quantity | None]
    """
    Memory of each GPU that a container has.
    """
    gpu_memory_bytes: NotRequired[int | None]
    """
    The same in bytes.
    """
    if_plan: NotRequired[str | None]
    """
    The token of a plan: the job is refused where it would not be decided on as planned any more.
    """
    image: NotRequired[str | None]
    """
    Image for the Docker runtime.
    """
    kind: NotRequired[Kind]
    """
    Training or batch.
    """
    min_run_s: NotRequired[int | None]
    """
    The fewest seconds between its start and its next resize; by default the policy's.
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
    How its containers reach the network: none, published or host; the most that its tenant
    is granted where it is absent.
    """
    priority: NotRequired[int | None]
    """
    Its place in the tenant's own queue: the highest goes first; the tenant's default where
    absent.
    """
    priority_class: NotRequired[WrittenClass | None]
    """
    Its priority class: the operator defines it and grants it to tenants.
    """
    python: NotRequired[WrittenPython | None]
    """
    Python packages, in an environment that each node makes of them.
    """
    queue_limit_s: NotRequired[int | None]
    """
    The most seconds from its admission to its first start; then it is cancelled.
    """
    ready: NotRequired[Ready | None]
    """
    When a life counts as ready: before that it is not resized because others come and go.
    """
    resize: NotRequired[Resize | None]
    """
    How its partition changes while it runs: `restart` or `in_place`.
    """
    retries: NotRequired[int]
    """
    How often a failed gang, or a failed task of a task set, is started again.
    """
    roles: NotRequired[dict[str, RoleDocument]]
    """
    Containers beside the workers, by name: `ps` (parameter servers) and `evaluator`.
    """
    service: NotRequired[Service | None]
    """
    What a service promises; of `kind: inference` and `kind: notebook` only.
    """
    static_containers: NotRequired[int | None]
    """
    Containers under the policy `static`; the most where it is absent.
    """
    success: NotRequired[Success]
    """
    When it has succeeded.
    """
    tasks: NotRequired[Tasks | None]
    """
    A batch job of many tasks: one submission, tracked and cancelled as one.
    """
    tenant: NotRequired[str | None]
    """
    Must be the ingress subject's tenant, where it is given.
    """
    time_limit_s: NotRequired[int | None]
    """
    The most seconds that it may run, over all of its lives; then it is stopped and has failed.
    """
    tolerations: NotRequired[list[str]]
    """
    Taints of nodes that do not keep its containers away.
    """
    warning: NotRequired[Warning | None]
    """
    A signal before that.
    """
    weight: NotRequired[int]
    """
    Weight of the job's fair share.
    """
    workdir: NotRequired[WrittenWorkdir | None]
    """
    The folder in which its command starts, on whatever node: a path beside the document, which
    the command line packs.
    """


Constraints: TypeAlias = dict[str, "Written"]
"""
Which nodes a job's containers may be on, and which they would rather be on.

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
    A role as people submit it.
    """

    command: NotRequired[Command | None]
    """
    Its command lines; the job's where absent.
    """
    constraints: NotRequired[Constraints | None]
    """
    Which nodes its containers may be on; the job's constraints where absent.
    """
    count: NotRequired[int]
    """
    How many containers it has.
    """
    demand: dict[str, Quantity]
    """
    Demand of one container.
    """
    env: NotRequired[dict[str, EnvValue]]
    """
    Environment, beside the job's.
    """


Written: TypeAlias = Union[bool, int, str, list[Value], Not, dict[str, "Written"]]
"""
A rule as people write it.
"""
