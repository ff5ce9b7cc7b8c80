// Written by `npm run types` from messages/schema/measured-document.json; not by hand.

export type Timestamp = string;

/**
 * Requests to a service in a window, measured by a tenant's proxy.
 */
export interface MeasuredDocument {
  /**
   * Arrivals in each second of the window, oldest first.
   */
  arrivals?: number[];
  /**
   * Mean requests in the system, including waiting ones.
   */
  concurrency: number;
  /**
   * Answers with 5xx, and broken connections.
   */
  errors?: number;
  /**
   * Name of the proxy; `proxy` if absent.
   */
  gateway?: string | null;
  /**
   * Name of the service, with or without the tenant.
   */
  job: string;
  latency_ms: MeasuredHistogram;
  /**
   * Requests waiting at the proxy at the window's end.
   */
  queued?: number;
  /**
   * Replicas in use by the proxy at the window's end.
   */
  ready?: number;
  /**
   * Requests that arrived.
   */
  requests: number;
  /**
   * From a request's handover to a replica to the end of its answer.
   */
  service_ms?: MeasuredHistogram1 | null;
  /**
   * Requests refused for lack of a free replica.
   */
  shed?: number;
  /**
   * End of the window; by default the time of publication.
   */
  until?: Timestamp | null;
  /**
   * Length of the window in seconds, 1 to 60; windows do not overlap.
   */
  window_s: number;
}
/**
 * From a request's arrival at the proxy to the end of its answer.
 */
export interface MeasuredHistogram {
  /**
   * Upper bounds in milliseconds, ascending; at most 64.
   */
  bounds: number[];
  /**
   * Values up to each bound and above the previous; the last above all.
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
   * Values up to each bound and above the previous; the last above all.
   */
  counts: number[];
}
