// Submit jobs to a Dormouse cluster and follow them, over NATS.

export { Client, connect, type Events, type How, type Options, type Submission, type Wait } from "./client.js";
export { type Encoding, type Event, isEnd } from "./codec.js";
export { Denied, DormouseError, Refused, TimedOut, Unavailable } from "./errors.js";
export type { MeasuredDocument } from "./measured.js";
export type { ReviseDocument } from "./revise.js";
export type { JobDocument } from "./types.js";
