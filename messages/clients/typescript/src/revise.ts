// Written by `npm run types` from messages/schema/revise-document.json; not by hand.

/**
 * a quantity: 2, 0.5, "500m", "8Gi"
 */
export type Quantity = number | string;

/**
 * Changes to a job; absent fields stay unchanged.
 */
export interface ReviseDocument {
  /**
   * Fewest and most containers.
   */
  containers?: Containers | null;
  /**
   * Allows holding or requeuing a running job without a checkpoint, which begins again.
   */
  force?: boolean;
  /**
   * For a fraction of a GPU: the limit while others leave capacity, from the request to 1.
   */
  gpu_limit?: Quantity | null;
  /**
   * `true` holds the job: its containers save and stop, and none start; `false` resumes it.
   */
  held?: boolean | null;
  /**
   * Name of the job, with or without the tenant.
   */
  job: string;
  /**
   * Priority in the tenant's queue, the highest first.
   */
  priority?: number | null;
  /**
   * Limit on the seconds between admission and first start.
   */
  queue_limit_s?: number | null;
  /**
   * The job gives up its containers and starts again later. Excludes other changes.
   */
  requeue?: boolean;
  /**
   * Limit on the run time in seconds, over all incarnations.
   */
  time_limit_s?: number | null;
  /**
   * Weight of the job's fair share.
   */
  weight?: number | null;
}
/**
 * The bounds on a job's containers.
 */
export interface Containers {
  /**
   * The most containers that the job can use.
   */
  max: number;
  /**
   * The fewest containers, which start together; may be 0 for a service.
   */
  min: number;
  /**
   * Containers that start together, if resized in place; `min` if absent.
   */
  start?: number | null;
}
