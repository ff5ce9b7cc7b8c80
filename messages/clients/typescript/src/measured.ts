// Written by `npm run types` from messages/schema/measured-document.json; not by hand.

export type Timestamp = string;

/**
 * What clients of a service saw in one window, as a tenant's own proxy publishes it.
 */
export interface MeasuredDocument {
  /**
   * Those that arrived in each second of the window, the oldest first.
   */
  arrivals?: number[];
  /**
   * Requests in the system, waiting ones too: the mean of the window.
   */
  concurrency: number;
  /**
   * Answers with 5xx, and connections that broke.
   */
  errors?: number;
  /**
   * What the proxy is called, of those before this service; `proxy` where it has no name.
   */
  gateway?: string | null;
  /**
   * The service: its name, with or without the tenant before it.
   */
  job: string;
  latency_ms: MeasuredHistogram;
  /**
   * Requests that wait at the proxy at the window's end.
   */
  queued?: number;
  /**
   * Replicas that the proxy uses, at the window's end.
   */
  ready?: number;
  /**
   * Requests that arrived.
   */
  requests: number;
  /**
   * From its passing to a replica to its answer's end.
   */
  service_ms?: MeasuredHistogram1 | null;
  /**
   * Requests that were turned away because no replica was free in time.
   */
  shed?: number;
  /**
   * When the window ended; when it was published, where it does not say.
   */
  until?: Timestamp | null;
  /**
   * Seconds of the window, 1 to 60. The windows of one proxy follow one another.
   */
  window_s: number;
}
/**
 * From a request's arrival at the proxy to its answer's end.
 */
export interface MeasuredHistogram {
  /**
   * Upper bounds in milliseconds, ascending; at most 64.
   */
  bounds: number[];
  /**
   * How many lie at or below each bound and above the one before; last, those above all of them.
   */
  counts: number[];
}
/**
 * Counts by upper bound.
 */
export interface MeasuredHistogram1 {
  /**
   * Upper bounds in milliseconds, ascending; at most 64.
   */
  bounds: number[];
  /**
   * How many lie at or below each bound and above the one before; last, those above all of them.
   */
  counts: number[];
}
