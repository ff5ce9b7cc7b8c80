// Documents to bytes, and status messages to events.
//
// The same document has the same bytes in every language's client (keys sorted, nothing added), so
// that a submission that is sent again is known by its hash.

import { decode, encode as pack } from "@msgpack/msgpack";

export type Encoding = "json" | "msgpack";

/** The canonical bytes of a document. A BigInt is a whole number. */
export function encode(document: object, encoding: Encoding): Uint8Array {
  if (encoding === "msgpack") {
    return pack(document, { sortKeys: true, useBigInt64: true, ignoreUndefined: true });
  }
  return new TextEncoder().encode(json(document));
}

function json(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map((item) => json(item ?? null)).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const fields = Object.entries(value).filter(([, item]) => item !== undefined);
    fields.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${fields.map(([key, item]) => `${JSON.stringify(key)}:${json(item)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** Something that happened to a job. Unknown types and fields may come: pass over them. */
export interface Event {
  /** Such as `job.completed`. */
  type: string;
  version: number;
  /** The same event has the same id. */
  id: string;
  /** What it is about: `tenant/name`, as a rule. */
  subject: string;
  time: Date;
  /** Its place on the cluster's log; 0 where it is not known. */
  sequence: number;
  traceparent?: string;
  /** Whole numbers of 64 bits are BigInt. */
  data: Record<string, any>;
}

/** Whether the job is over with it. */
export function isEnd(event: Event): boolean {
  return ["job.completed", "job.failed", "job.cancelled"].includes(event.type);
}

export function decodeEvent(payload: Uint8Array, sequence: string): Event {
  const read = decode(payload, { useBigInt64: true }) as Record<string, any>;
  const type = String(read.type);
  const cut = type.lastIndexOf(".v");
  return {
    type: type.slice(0, cut).replace(/^dormouse\./, ""),
    version: Number(type.slice(cut + 2)),
    id: read.id,
    subject: read.subject ?? "",
    time: new Date(read.time),
    sequence: Number(sequence || 0),
    traceparent: read.traceparent,
    data: read.data ?? {},
  };
}
