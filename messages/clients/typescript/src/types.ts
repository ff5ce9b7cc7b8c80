// Written by `npm run types` from messages/schema/job-document.json; not by hand.

/**
 * A rule as people write it.
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
 * A label's value: `a`, or a number, or true and false.
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
 * How containers reach the network, the least first.
 */
export type Network = "none" | "published" | "host";
/**
 * A job's class as people write it: its name. In a specification that is submitted again it stands
 * with what it was worth, which is looked up anew.
 */
export type WrittenClass = string | JobClass;
/**
 * When a life of a training job counts as ready to be resized.
 */
export type Ready = "progress";
/**
 * How a job is resized, and which signal tells its members that the members' file has changed.
 */
export type Resize = ResizeMode | LongResize;
/**
 * How a partition changes while its job runs.
 */
export type ResizeMode = "restart" | "in_place";
/**
 * The folder of a job, as people write it and as it is submitted.
 */
export type WrittenWorkdir = string | Workdir;

/**
 * A job as people submit it. An unknown field is an error that names it.
 */
export interface JobDocument {
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
   * Jobs of the same tenant that must complete before it may have containers.
   */
  depends_on?: string[];
  /**
   * Environment.
   */
  env?: {
    [k: string]: EnvValue;
  };
  /**
   * How each process is told its cluster.
   */
  executor?: "plain" | "mpi" | "mxnet" | "tensorflow" | "torch";
  /**
   * Of a fraction of a GPU: the most that it may use while others leave it; the request by default.
   */
  gpu_limit?: Quantity | null;
  /**
   * The same in thousandths.
   */
  gpu_limit_milli?: number | null;
  /**
   * Memory of each GPU that a container has.
   */
  gpu_memory?: Quantity | null;
  /**
   * The same in bytes.
   */
  gpu_memory_bytes?: number | null;
  /**
   * The token of a plan: the job is refused where it would not be decided on as planned any more.
   */
  if_plan?: string | null;
  /**
   * Image for the Docker runtime.
   */
  image?: string | null;
  /**
   * Training or batch.
   */
  kind?: "training" | "batch" | "inference" | "notebook";
  /**
   * The fewest seconds between its start and its next resize; by default the policy's.
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
   * How its containers reach the network: none, published or host; the most that its tenant
   * is granted where it is absent.
   */
  network?: Network | null;
  /**
   * Its place in the tenant's own queue: the highest goes first; the tenant's default where
   * absent.
   */
  priority?: number | null;
  /**
   * Its priority class: the operator defines it and grants it to tenants.
   */
  priority_class?: WrittenClass | null;
  /**
   * Python packages, in an environment that each node makes of them.
   */
  python?: WrittenPython | null;
  /**
   * The most seconds from its admission to its first start; then it is cancelled.
   */
  queue_limit_s?: number | null;
  /**
   * When a life counts as ready: before that it is not resized because others come and go.
   */
  ready?: Ready | null;
  /**
   * How its partition changes while it runs: `restart` or `in_place`.
   */
  resize?: Resize | null;
  /**
   * How often a failed gang, or a failed task of a task set, is started again.
   */
  retries?: number;
  /**
   * Containers beside the workers, by name: `ps` (parameter servers) and `evaluator`.
   */
  roles?: {
    [k: string]: RoleDocument;
  };
  /**
   * What a service promises; of `kind: inference` and `kind: notebook` only.
   */
  service?: Service | null;
  /**
   * Containers under the policy `static`; the most where it is absent.
   */
  static_containers?: number | null;
  /**
   * When it has succeeded.
   */
  success?: "all" | "chief";
  /**
   * A batch job of many tasks: one submission, tracked and cancelled as one.
   */
  tasks?: Tasks | null;
  /**
   * Must be the ingress subject's tenant, where it is given.
   */
  tenant?: string | null;
  /**
   * The most seconds that it may run, over all of its lives; then it is stopped and has failed.
   */
  time_limit_s?: number | null;
  /**
   * Taints of nodes that do not keep its containers away.
   */
  tolerations?: string[];
  /**
   * A signal before that.
   */
  warning?: Warning | null;
  /**
   * Weight of the job's fair share.
   */
  weight?: number;
  /**
   * The folder in which its command starts, on whatever node: a path beside the document, which
   * the command line packs.
   */
  workdir?: WrittenWorkdir | null;
}
/**
 * Checkpoint contract.
 */
export interface Checkpoint {
  /**
   * Instead of the signal: a command run beside rank 0.
   */
  command?: string[];
  /**
   * Seconds to save, and again to stop, before the gang is killed.
   */
  grace_s?: number;
  /**
   * What saving does to the job. A contract that does not say it is one of a job that saves
   * and ends.
   */
  mode?: "exit" | "continue" | "none";
  /**
   * The signal that asks every process to save.
   */
  signal?: string;
}
/**
 * Command lines.
 */
export interface Command {
  /**
   * Resumes it from a checkpoint; `start` where it is absent.
   */
  resume?: string[];
  /**
   * Starts the job from nothing.
   */
  start: string[];
}
/**
 * Which nodes its containers may be on.
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
   * The most it can use.
   */
  max: number;
  /**
   * The fewest it can run with (all of them start together). A service may have none.
   */
  min?: number;
  /**
   * How many start together, where it is resized in place and may shrink below that; `min`
   * where absent.
   */
  start?: number | null;
}
/**
 * Where on the node a secret is read from.
 */
export interface SecretFrom {
  /**
   * The source.
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
 * A folder of the node, given to each container.
 */
export interface Mount {
  /**
   * Whether the container may not write to it.
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
 * What stood in a specification.
 */
export interface JobClass {
  /**
   * The class.
   */
  name: string;
  /**
   * Whether it preempts.
   */
  preempts?: boolean;
  /**
   * Its value.
   */
  value: number;
}
/**
 * The same, as people write it and as it is submitted.
 */
export interface WrittenPython {
  /**
   * The packages.
   */
  requirements: string | string[];
  /**
   * Such as `"3.11"`.
   */
  version?: string | null;
}
export interface LongResize {
  mode: ResizeMode;
  signal?: string | null;
}
/**
 * A role as people submit it.
 */
export interface RoleDocument {
  /**
   * Its command lines; the job's where absent.
   */
  command?: Command1 | null;
  /**
   * Which nodes its containers may be on; the job's constraints where absent.
   */
  constraints?: Constraints1 | null;
  /**
   * How many containers it has.
   */
  count?: number;
  /**
   * Demand of one container.
   */
  demand: {
    [k: string]: Quantity;
  };
  /**
   * Environment, beside the job's.
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
   * Resumes it from a checkpoint; `start` where it is absent.
   */
  resume?: string[];
  /**
   * Starts the job from nothing.
   */
  start: string[];
}
/**
 * Which nodes a job's containers may be on, and which they would rather be on.
 *
 * `{zone: a, disk: [ssd, nvme], gpu.model: {not: K80}, spread: rack, prefer: {zone: b}}`.
 */
export interface Constraints1 {
  [k: string]: Written;
}
/**
 * What a service promises and how it ends its replicas.
 */
export interface Service {
  /**
   * Who may call it.
   */
  access?: "open" | "tenant" | "token";
  /**
   * Requests that one replica works on at once; more wait at the gateway.
   */
  concurrency?: number;
  /**
   * Seconds that a leaving replica has for the requests that it works on.
   */
  drain_s?: number;
  /**
   * Seconds without a request (of a notebook: without work) until it has no replica, where
   * `containers.min` is 0.
   */
  idle_s?: number;
  /**
   * What clients are promised; without it the service keeps `containers.min` replicas.
   */
  objective?: LatencyObjective | null;
  /**
   * What replicas speak.
   */
  protocol?: "http";
  ready?: Ready2;
  /**
   * How the number of replicas is decided.
   */
  scaling?: "objective" | "hpa" | "kpa" | "ray";
}
/**
 * What clients are promised.
 */
export interface LatencyObjective {
  /**
   * Milliseconds from a request's arrival at the gateway to its answer's end.
   */
  latency_ms: number;
  /**
   * The percentile of the requests that are answered within it.
   */
  percentile?: number;
}
/**
 * When a replica is used.
 */
export interface Ready2 {
  /**
   * A GET of it on the replica's port is answered with 2xx once the replica is ready.
   */
  path?: string;
  /**
   * A replica that is not ready so long after its start is replaced.
   */
  timeout_s?: number;
}
/**
 * Independent tasks of one job: its command line runs once for each of them.
 */
export interface Tasks {
  /**
   * The most that run at once: the most containers of the job.
   */
  concurrency: number;
  /**
   * How many; each finds its number, from 0, in `DORMOUSE_TASK`.
   */
  count: number;
}
/**
 * A signal that a job is sent before its time is over.
 */
export interface Warning {
  /**
   * So many seconds before.
   */
  before_s: number;
  /**
   * Sent to every process that handles it.
   */
  signal?: string;
}
/**
 * A folder that is packed.
 */
export interface Workdir {
  /**
   * The archive's length.
   */
  bytes: number;
  /**
   * SHA-256 of the archive, 64 digits of lower-case hexadecimal.
   */
  sha256: string;
}
