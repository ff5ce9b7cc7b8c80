// Written by `npm run types` from messages/schema/revise-document.json; not by hand.

/**
 * a quantity: 2, 0.5, "500m", "8Gi"
 */
export type Quantity = number | string;

/**
 * What is to change of a job; what is not named stays.
 */
export interface ReviseDocument {
  /**
   * Fewest and most containers.
   */
  containers?: Containers | null;
  /**
   * A job without a checkpoint may be put on hold, or requeued, while it runs: it begins again.
   */
  force?: boolean;
  /**
   * Of a fraction of a GPU: the most that it may use while others leave it, from its request to
   * 1. A running container has it at once.
   */
  gpu_limit?: Quantity | null;
  /**
   * `true` puts it on hold: what runs saves and stops, and nothing starts; `false` takes it back.
   */
  held?: boolean | null;
  /**
   * The job: its name, with or without the tenant before it.
   */
  job: string;
  /**
   * Its place in the tenant's own queue: the highest goes first.
   */
  priority?: number | null;
  /**
   * The most seconds from its admission to its first start.
   */
  queue_limit_s?: number | null;
  /**
   * The job gives its room back, and starts again when it has room. Nothing else changes with it.
   */
  requeue?: boolean;
  /**
   * The most seconds that it may run, over all of its lives.
   */
  time_limit_s?: number | null;
  /**
   * Weight of its fair share.
   */
  weight?: number | null;
}
/**
 * How many containers a job may have.
 */
export interface Containers {
  /**
   * The most it can use.
   */
  max: number;
  /**
   * The fewest it can run with (all of them start together). A service may have none.
   */
  min: number;
  /**
   * How many start together, where it is resized in place and may shrink below that; `min`
   * where absent.
   */
  start?: number | null;
}
