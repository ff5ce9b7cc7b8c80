// Written by `npm run types` from messages/schema/job-document.json; not by hand.

/**
 * A rule in a document.
 */
export type Written =
  | boolean
  | number
  | string
  | Value[]
  | Not
  | {
      [k: string]: Written;
    };
/**
 * A label's value: text, a number, true or false.
 */
export type Value = boolean | number | string;
/**
 * a quantity: 2, 0.5, "500m", "8Gi"
 */
export type Quantity = number | string;
/**
 * An environment value: plain, or a reference to a secret on the node.
 */
export type EnvValue = string | boolean | number | SecretFrom;
/**
 * A container's network access, in ascending order.
 */
export type Network = "none" | "published" | "host";
/**
 * A job's class by name; a resubmitted spec has the whole class, which is looked up again.
 */
export type WrittenClass = string | JobClass;
/**
 * The condition under which a training job's incarnation may be resized.
 */
export type Ready = "progress";
/**
 * The resize mode of a job, and the signal about changes of its members' file.
 */
export type Resize = ResizeMode | LongResize;
/**
 * The way in which a partition is resized.
 */
export type ResizeMode = "restart" | "in_place";
/**
 * A job's folder in a document.
 */
export type WrittenWorkdir = string | Workdir;

/**
 * A job as submitted. An unknown field is an error that names it.
 */
export interface JobDocument {
  /**
   * Smallest and largest global batch, if the program can change it.
   */
  batch?: Batch | null;
  checkpoint?: Checkpoint;
  command: Command;
  constraints?: Constraints;
  containers?: Containers;
  /**
   * Demand of one container.
   */
  demand: {
    [k: string]: Quantity;
  };
  /**
   * Jobs of the tenant that must complete before this one gets containers.
   */
  depends_on?: string[];
  /**
   * Environment variables.
   */
  env?: {
    [k: string]: EnvValue;
  };
  /**
   * The way in which each process learns its cluster.
   */
  executor?: "plain" | "mpi" | "mxnet" | "tensorflow" | "torch";
  /**
   * For a fraction of a GPU: the limit while others leave capacity; by default the request.
   */
  gpu_limit?: Quantity | null;
  /**
   * `gpu_limit` in thousandths.
   */
  gpu_limit_milli?: number | null;
  /**
   * Memory of each of a container's GPUs.
   */
  gpu_memory?: Quantity | null;
  /**
   * `gpu_memory` in bytes.
   */
  gpu_memory_bytes?: number | null;
  /**
   * Token of a plan; a job that would differ from the plan is refused.
   */
  if_plan?: string | null;
  /**
   * Image for the Docker runtime.
   */
  image?: string | null;
  /**
   * The kind of work.
   */
  kind?: "training" | "batch" | "inference" | "notebook";
  /**
   * Seconds between a start and the next resize, at least; by default the policy's.
   */
  min_run_s?: number | null;
  /**
   * Folders of the node.
   */
  mounts?: Mount[];
  /**
   * `[a-z0-9-]`, unique within the tenant; generated if absent.
   */
  name?: string | null;
  /**
   * Network access: none, published or host; the most granted if absent.
   */
  network?: Network | null;
  /**
   * Priority in the tenant's queue, the highest first; the tenant's default if absent.
   */
  priority?: number | null;
  /**
   * Priority class: the operator defines classes and grants them to tenants.
   */
  priority_class?: WrittenClass | null;
  /**
   * Python packages, which each node installs into an environment.
   */
  python?: WrittenPython | null;
  /**
   * Seconds from admission to first start; then the job is cancelled.
   */
  queue_limit_s?: number | null;
  /**
   * Condition for resizing an incarnation because other jobs come and go.
   */
  ready?: Ready | null;
  /**
   * The way in which the partition is resized: `restart` or `in_place`.
   */
  resize?: Resize | null;
  /**
   * Restarts of a failed gang, or of a failed task.
   */
  retries?: number;
  /**
   * Containers next to the workers, by role: `ps` (parameter servers) and `evaluator`.
   */
  roles?: {
    [k: string]: RoleDocument;
  };
  /**
   * Objectives of a service; only for `kind: inference` and `kind: notebook`.
   */
  service?: Service | null;
  /**
   * Speed of 1, 2, … containers in speeds of one container, until it is measured.
   */
  speed?: number[];
  /**
   * Containers under the policy `static`; the most if absent.
   */
  static_containers?: number | null;
  /**
   * Condition for success.
   */
  success?: "all" | "coordinator";
  /**
   * Tasks of a batch job: one submission, tracked and cancelled as one.
   */
  tasks?: Tasks | null;
  /**
   * The ingress subject's tenant, if given.
   */
  tenant?: string | null;
  /**
   * Seconds that the job may run, over all incarnations; then it fails.
   */
  time_limit_s?: number | null;
  /**
   * Taints of nodes that the containers tolerate.
   */
  tolerations?: string[];
  /**
   * A signal before the time limit.
   */
  warning?: Warning | null;
  /**
   * Weight of the job's fair share.
   */
  weight?: number;
  /**
   * Working folder of the command: a path next to the document, packed by the command line.
   */
  workdir?: WrittenWorkdir | null;
}
/**
 * The bounds on the global batch of a training job, in samples: its program divides a batch within them among
 * the containers.
 */
export interface Batch {
  /**
   * The largest batch.
   */
  max: number;
  /**
   * The smallest batch; progress is counted in its steps.
   */
  min: number;
}
/**
 * Checkpoint contract.
 */
export interface Checkpoint {
  /**
   * Command next to rank 0, instead of the signal.
   */
  command?: string[];
  /**
   * Seconds to save, and again to stop, before the gang is killed.
   */
  grace_s?: number;
  /**
   * Effect of saving on the job; `exit` if absent.
   */
  mode?: "exit" | "continue" | "none";
  /**
   * The signal that asks every process to save.
   */
  signal?: string;
}
/**
 * Command lines of the job.
 */
export interface Command {
  /**
   * Resumes the job from a checkpoint; `start` if absent.
   */
  resume?: string[];
  /**
   * Starts the job from nothing.
   */
  start: string[];
}
/**
 * Requirements on the nodes.
 */
export interface Constraints {
  [k: string]: Written;
}
export interface Not {
  not: Written;
}
/**
 * Fewest and most containers.
 */
export interface Containers {
  /**
   * The most containers that the job can use.
   */
  max: number;
  /**
   * The fewest containers, which start together; may be 0 for a service.
   */
  min?: number;
  /**
   * Containers that start together, if resized in place; `min` if absent.
   */
  start?: number | null;
}
/**
 * The location of a secret on the node.
 */
export interface SecretFrom {
  /**
   * The source of the secret.
   */
  from:
    | {
        file: string;
      }
    | {
        env: string;
      };
}
/**
 * A folder of the node in each container.
 */
export interface Mount {
  /**
   * True to forbid writing.
   */
  read_only?: boolean;
  /**
   * Absolute path on the node.
   */
  source: string;
  /**
   * Absolute path in the container.
   */
  target: string;
}
/**
 * Class from a spec.
 */
export interface JobClass {
  /**
   * Name of the class.
   */
  name: string;
  /**
   * True if the class preempts.
   */
  preempts?: boolean;
  /**
   * Value of the class.
   */
  value: number;
}
/**
 * Python packages in a document.
 */
export interface WrittenPython {
  /**
   * The packages.
   */
  requirements: string | string[];
  /**
   * Version such as `"3.11"`.
   */
  version?: string | null;
}
export interface LongResize {
  mode: ResizeMode;
  signal?: string | null;
}
/**
 * A role in a document.
 */
export interface RoleDocument {
  /**
   * Command lines of the role; the job's if absent.
   */
  command?: Command1 | null;
  /**
   * Requirements on the nodes; the job's constraints if absent.
   */
  constraints?: Constraints1 | null;
  /**
   * Number of containers.
   */
  count?: number;
  /**
   * Demand of one container.
   */
  demand: {
    [k: string]: Quantity;
  };
  /**
   * Environment in addition to the job's.
   */
  env?: {
    [k: string]: EnvValue;
  };
}
/**
 * The command lines of a job.
 */
export interface Command1 {
  /**
   * Resumes the job from a checkpoint; `start` if absent.
   */
  resume?: string[];
  /**
   * Starts the job from nothing.
   */
  start: string[];
}
/**
 * Requirements and preferences of a job for its nodes.
 *
 * `{zone: a, disk: [ssd, nvme], gpu.model: {not: K80}, spread: rack, prefer: {zone: b}}`.
 */
export interface Constraints1 {
  [k: string]: Written;
}
/**
 * A service's objectives, scaling and access.
 */
export interface Service {
  /**
   * The allowed callers.
   */
  access?: "open" | "tenant" | "token";
  /**
   * Simultaneous requests per replica; others wait at the gateway.
   */
  concurrency?: number;
  /**
   * Seconds for a leaving replica to finish requests.
   */
  drain_s?: number;
  /**
   * Seconds without a request (notebook: without work) before the last replica stops, if `containers.min`
   * is 0.
   */
  idle_s?: number;
  /**
   * Latency objective; if absent the service keeps `containers.min` replicas.
   */
  objective?: LatencyObjective | null;
  /**
   * The protocol of replicas.
   */
  protocol?: "http";
  ready?: Ready2;
  /**
   * The rule for the number of replicas.
   */
  scaling?: "objective" | "hpa" | "kpa" | "ray";
}
/**
 * The latency objective of a service.
 */
export interface LatencyObjective {
  /**
   * Milliseconds from a request's arrival at the gateway to the end of its answer.
   */
  latency_ms: number;
  /**
   * Percentile of requests that meet the latency.
   */
  percentile?: number;
}
/**
 * The readiness check.
 */
export interface Ready2 {
  /**
   * Path that answers GET with 2xx once the replica is ready.
   */
  path?: string;
  /**
   * Seconds after which a replica that is not ready is replaced.
   */
  timeout_s?: number;
}
/**
 * Independent tasks of one job: the command line runs once per task.
 */
export interface Tasks {
  /**
   * Limit on simultaneous tasks, and so on the job's containers.
   */
  concurrency: number;
  /**
   * Number of tasks; each finds its index, from 0, in `DORMOUSE_TASK`.
   */
  count: number;
}
/**
 * A signal that a job receives before its time limit.
 */
export interface Warning {
  /**
   * Seconds before the limit.
   */
  before_s: number;
  /**
   * Signal for every process that handles it.
   */
  signal?: string;
}
/**
 * A packed folder.
 */
export interface Workdir {
  /**
   * Length of the archive.
   */
  bytes: number;
  /**
   * SHA-256 of the archive, 64 digits of lower-case hexadecimal.
   */
  sha256: string;
}
