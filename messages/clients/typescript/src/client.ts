// The client: one NATS connection of a tenant.
//
// A message is published with a reply subject; the broker's acknowledgement means that it is
// stored. What became of it comes on the status subjects, to which the client listens before it
// publishes. If the connection is lost in between, the message is sent again: the job's name makes
// that safe.

import { createHash, randomBytes } from "node:crypto";
import {
  connect as connectNats,
  createInbox,
  headers as natsHeaders,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  type NodeConnectionOptions,
  PermissionViolationError,
} from "@nats-io/transport-node";
import { decodeEvent, encode, type Encoding, type Event, isEnd } from "./codec.js";
import { Denied, DormouseError, Refused, TimedOut, Unavailable } from "./errors.js";
import type { MeasuredDocument } from "./measured.js";
import type { ReviseDocument } from "./revise.js";
import type { JobDocument } from "./types.js";

/** `accepted`: the broker has stored it; `decided`: admitted, or `Refused` is thrown. */
export type Wait = "accepted" | "decided" | "started" | "ended";

export interface How {
  wait?: Wait;
  /** Milliseconds; by default the client's. */
  timeout?: number;
  /** W3C trace context that the job's events continue. */
  traceparent?: string;
}

export interface Options extends NodeConnectionOptions {
  tenant?: string;
  prefix?: string;
  encoding?: Encoding;
  /** Milliseconds that an answer and a decision may take; 10,000. */
  answerTimeout?: number;
}

/** A job that the cluster has, or (`stored`) that the broker has for it. */
export interface Submission {
  job: string;
  ingressSequence: number;
  state: "stored" | "admitted" | "started" | "completed" | "failed" | "cancelled";
  /** Whether the same document was submitted under this name before. */
  existing: boolean;
  reason: string;
  sha256: string;
}

interface Asked {
  subject: string;
  give(answer: Msg | DormouseError | "again"): void;
}

const NAME = /^[a-z0-9-]{1,63}$/;
/** Messages that are on their way to the broker at once: more would wait there. */
const AT_ONCE = 256;
/**
 * Bytes of a message that a tenant's account may send. A broker closes the connection of what is longer,
 * and does not say before that an account may send less than others.
 */
const MAX_MESSAGE = 2 * 1024 * 1024;
/** The broker's words where as many of the tenant's messages wait to be recorded as may, and the milliseconds until one is sent again. */
const FULL = "maximum messages per subject";
const FULL_PAUSE_MS = 50;
/** Until a question is asked again, where as many of the tenant's wait as may. */
const BUSY_PAUSE_MS = 100;
/** Decisions that came before the acknowledgement of their message are kept, so many. */
const RECENT = 20_000;
/** What may become of a message. */
const DECISIONS = ["job.*", "service.measured", "submissions.rate_limited"];
/** How long a decision may be silent before it is asked for: a status message can be lost. */
const SILENCE_MS = 2_000;

/** Connects as a tenant. Options are those of the NATS client, and its own. */
export async function connect(options: Options = {}): Promise<Client> {
  const { tenant = "default", prefix = "dormouse", encoding = "json", answerTimeout = 10_000, ...nats } = options;
  try {
    const connection = await connectNats({ maxReconnectAttempts: -1, reconnectTimeWait: 200, ...nats });
    return new Client(connection, tenant, prefix, encoding, answerTimeout);
  } catch (error) {
    throw new Unavailable(`no broker at ${nats.servers ?? "127.0.0.1:4222"}: ${error}`);
  }
}

export class Client {
  private readonly inbox = createInbox();
  private token = 0;
  private readonly pending = new Map<string, Asked>();
  private readonly deciding = new Map<number, (event: Event) => void>();
  private readonly recent = new Map<number, Event>();
  private readonly denied = new Set<string>();
  private publishing = 0;
  private readonly waiting: (() => void)[] = [];
  private listening?: Promise<void>;

  constructor(
    private readonly nc: NatsConnection,
    readonly tenant: string,
    private readonly prefix: string,
    private readonly encoding: Encoding,
    private readonly timeout: number,
  ) {
    nc.subscribe(`${this.inbox}.*`, {
      callback: (error, message) => {
        if (!error) this.pending.get(message.subject)?.give(message);
      },
    });
    void this.hear();
  }

  /** Ends the connection. */
  async close(): Promise<void> {
    await this.nc.close();
  }

  async [Symbol.asyncDispose ?? Symbol("asyncDispose")](): Promise<void> {
    await this.close();
  }

  /**
   * Submits a job document. One without a name is given one. Sending the same document under the
   * same name again is safe, and succeeds.
   */
  async submit(job: Omit<JobDocument, "command"> & { command?: JobDocument["command"] }, how: How = {}): Promise<Submission> {
    const wait = how.wait ?? "decided";
    const name = job.name ?? `job-${randomBytes(8).toString("hex")}`;
    const payload = encode({ ...job, name }, this.encoding);
    if (wait === "accepted" || wait === "decided" || !NAME.test(name)) return this.send(name, payload, wait, how);
    const limit = how.timeout === undefined ? Infinity : Date.now() + how.timeout;
    const events = await this.watch(name);
    try {
      const submission = await this.send(name, payload, "decided", how);
      return await this.follow(submission, events, wait, limit);
    } finally {
      await events.return();
    }
  }

  /** Ends a job: `job.cancel_requested`, or `job.cancelled` where it was still queued. */
  async cancel(job: string, how: How = {}): Promise<Event> {
    return this.change("cancel", { job }, how);
  }

  /**
   * Changes what is given of a job: `job.revised`. `held` puts it on hold, or lets it go; one that runs
   * without a checkpoint begins again, which `force` allows.
   */
  async revise(job: string, changes: Omit<ReviseDocument, "job">, how: How = {}): Promise<Event> {
    return this.change("revise", { job, ...changes }, how);
  }

  /**
   * Says what clients of a service saw at a proxy of your own: `service.measured`, or `Refused` is
   * thrown. One that has timed out may count or not: measure on.
   */
  async measure(measurement: MeasuredDocument, how: How = {}): Promise<Event> {
    return this.change("measured", measurement, how);
  }

  /** The job's events from now on, up to its end. When the promise is kept, the client listens. */
  async watch(job: string): Promise<Events> {
    const name = job.startsWith(`${this.tenant}/`) ? job.slice(this.tenant.length + 1) : job;
    if (!NAME.test(name)) throw new Refused("bad_name", `job name ${JSON.stringify(name)} is not 1 to 63 of a-z, 0-9 and '-'`);
    const subject = `${this.prefix}.status.${this.tenant}.${name}.>`;
    const subscription = this.nc.subscribe(subject);
    await this.nc.flush();
    if (this.denied.has(subject)) throw new Denied(subject);
    const messages = subscription[Symbol.asyncIterator]();
    let [last, ended] = [0, false];
    const events: Events = {
      async next() {
        while (!ended) {
          const message = await messages.next();
          if (message.done) break;
          const event = decodeEvent(message.value.data, message.value.headers?.get("Nats-Sequence") ?? "");
          // An event may come twice when another copy of the service shows them.
          if (event.sequence <= last) continue;
          last = event.sequence;
          if (isEnd(event)) await events.return();
          return { value: event, done: false };
        }
        return { value: undefined, done: true };
      },
      async return() {
        if (!ended) subscription.unsubscribe();
        ended = true;
        return { value: undefined, done: true };
      },
      [Symbol.asyncIterator]: () => events,
    };
    return events;
  }

  /** Asks about this tenant: `job`, `jobs`, `ledger`, `tenant`, `timeline`. */
  async query(name: string, request?: object, how: How = {}): Promise<any> {
    const payload = request === undefined ? "" : JSON.stringify(request);
    const limit = Date.now() + (how.timeout ?? this.timeout);
    for (;;) {
      const answer = await this.ask(`${this.prefix}.tenant.${this.tenant}.api.${name}`, payload, undefined, how);
      const refused = answer.headers?.get("Nats-Service-Error");
      if (!refused) return answer.json();
      const cut = refused.indexOf(": ");
      const code = refused.slice(0, cut);
      if (code !== "busy" || Date.now() >= limit) throw new Refused(code, refused.slice(cut + 2));
      await new Promise((go) => setTimeout(go, BUSY_PAUSE_MS));
    }
  }

  private async send(name: string, payload: Uint8Array, wait: Wait, how: How): Promise<Submission> {
    const job = `${this.tenant}/${name}`;
    const sha256 = createHash("sha256").update(payload).digest("hex");
    if (wait !== "accepted") await this.listen();
    const ingressSequence = await this.publish("submit", payload, how);
    const submission: Submission = { job, ingressSequence, state: "stored", existing: false, reason: "", sha256 };
    if (wait === "accepted") return submission;
    submission.state = "admitted";
    try {
      return (await this.decision(submission.ingressSequence, how, submission)).known ?? submission;
    } catch (error) {
      const taken = error instanceof Refused && error.code === "name_in_use";
      const known = taken ? await this.known(submission) : undefined;
      if (known) return known;
      throw error;
    }
  }

  private async change(verb: string, document: object, how: How): Promise<Event> {
    await this.listen();
    const sequence = await this.publish(verb, encode(document, this.encoding), how);
    return (await this.decision(sequence, how)).event!;
  }

  private async publish(verb: string, payload: Uint8Array, how: How): Promise<number> {
    const most = Math.min(this.nc.info?.max_payload ?? Infinity, MAX_MESSAGE);
    if (payload.length > most) {
      throw new Refused("too_large", `the document has ${payload.length} bytes, more than the ${most} that the broker takes`);
    }
    const headers = natsHeaders();
    headers.set("Content-Type", `application/${this.encoding}`);
    if (how.traceparent) headers.set("traceparent", how.traceparent);
    const subject = `${this.prefix}.in.${this.tenant}.${verb}`;
    const limit = Date.now() + (how.timeout ?? this.timeout);
    while (this.publishing >= AT_ONCE) await new Promise<void>((go) => this.waiting.push(go));
    this.publishing += 1;
    try {
      for (;;) {
        const answer = await this.ask(subject, payload, headers, how);
        const ack = answer.json<{ seq: number; error?: { description: string } }>();
        if (!ack.error) return ack.seq;
        if (!ack.error.description.includes(FULL) || Date.now() >= limit) {
          throw new Unavailable(`the broker has not stored it: ${ack.error.description}`);
        }
        await new Promise((go) => setTimeout(go, FULL_PAUSE_MS));
      }
    } finally {
      this.publishing -= 1;
      this.waiting.shift()?.();
    }
  }

  /** Waits for what becomes of a message; of a submission it asks in between. */
  private async decision(sequence: number, how: How, submission?: Submission): Promise<{ event?: Event; known?: Submission }> {
    const limit = Date.now() + (how.timeout ?? this.timeout);
    let event = this.recent.get(sequence);
    this.recent.delete(sequence);
    const decided = new Promise<Event>((decide) => this.deciding.set(sequence, decide));
    try {
      while (!event) {
        event = await within(decided, Math.min(limit - Date.now(), SILENCE_MS));
        if (event) break;
        const known = submission && (await this.known(submission));
        if (known) return { known };
        if (Date.now() >= limit) {
          throw new TimedOut(`message ${sequence} is stored, but nothing has decided on it yet: is admission running?`, true);
        }
      }
    } finally {
      this.deciding.delete(sequence);
    }
    if (event.type === "job.refused") throw new Refused(event.data.code, event.data.reason, sequence);
    if (event.type === "submissions.rate_limited") {
      const what = event.data.verb ? "measurements" : "messages";
      throw new Refused("too_fast", `more than ${event.data.max_rate} ${what} a second; send fewer`, sequence);
    }
    return { event };
  }

  /** What the cluster knows of a submission of which nothing is heard. */
  private async known(submission: Submission): Promise<Submission | undefined> {
    try {
      const row = await this.query("job", { job: submission.job });
      if (row.sha256 !== submission.sha256) return undefined;
      const existing = row.ingress_sequence !== submission.ingressSequence;
      return { ...submission, ingressSequence: row.ingress_sequence, existing, state: "admitted" };
    } catch (error) {
      if (error instanceof DormouseError) return undefined;
      throw error;
    }
  }

  /** Waits for the start or the end; asks now and then, as a status message can be lost. */
  private async follow(submission: Submission, events: Events, wait: Wait, limit: number): Promise<Submission> {
    let ask = submission.existing;
    let next = events.next();
    for (;;) {
      const found = ask ? undefined : await within(next, Math.min(limit - Date.now(), SILENCE_MS));
      if (found?.value) {
        const event: Event = found.value;
        if (isEnd(event)) {
          const state = event.type.slice("job.".length) as Submission["state"];
          return { ...submission, state, reason: event.data.reason ?? "" };
        }
        if (wait === "started" && event.type === "partition.started") return { ...submission, state: "started" };
        next = events.next();
        continue;
      }
      ask = false;
      const row = await this.query("job", { job: submission.job }).catch(() => ({ phase: "" }));
      if (["completed", "failed", "cancelled"].includes(row.phase)) {
        return { ...submission, state: row.phase, reason: row.reason };
      }
      if (wait === "started" && row.first_started_at) return { ...submission, state: "started" };
      if (Date.now() >= limit) throw new TimedOut(`${submission.job} has not ${wait} yet`, true);
    }
  }

  /** Sends a request, again when the connection was lost meanwhile, and waits for its answer. */
  private async ask(subject: string, payload: Uint8Array | string, headers: MsgHdrs | undefined, how: How): Promise<Msg> {
    const limit = Date.now() + (how.timeout ?? this.timeout);
    for (;;) {
      const reply = `${this.inbox}.${++this.token}`;
      const answered = new Promise<Msg | DormouseError | "again">((give) => this.pending.set(reply, { subject, give }));
      try {
        this.nc.publish(subject, payload, { reply, headers });
        const answer = await within(answered, limit - Date.now());
        if (answer === undefined) throw new TimedOut(`no answer on ${subject} in time`);
        if (answer instanceof DormouseError) throw answer;
        // Lost meanwhile: nobody knows whether it arrived.
        if (answer === "again") continue;
        if (answer.headers?.code === 503) {
          throw new Unavailable(`nothing answers on ${subject}: is \`dormouse up\` running, and under this prefix?`);
        }
        return answer;
      } catch (error) {
        if (this.nc.isClosed()) throw new Unavailable("the connection is closed");
        throw error;
      } finally {
        this.pending.delete(reply);
      }
    }
  }

  /** Hears of denials, which have no answer, and of connections made again. */
  private async hear(): Promise<void> {
    for await (const status of this.nc.status()) {
      if (status.type === "reconnect") {
        for (const asked of this.pending.values()) asked.give("again");
      } else if (status.type === "error" && status.error instanceof PermissionViolationError) {
        const { subject } = status.error;
        this.denied.add(subject);
        for (const asked of this.pending.values()) {
          if (asked.subject === subject) asked.give(new Denied(subject));
        }
      }
    }
  }

  /** Listens to what becomes of this tenant's messages, once for all. */
  private listen(): Promise<void> {
    this.listening ??= (async () => {
      const subjects = DECISIONS.map((decision) => `${this.prefix}.status.${this.tenant}._in.*.${decision}`);
      const callback = (error: Error | null, message: Msg): void => {
        if (error) return;
        const sequence = Number(message.subject.split(".").at(-3));
        const event = decodeEvent(message.data, message.headers?.get("Nats-Sequence") ?? "");
        const decide = this.deciding.get(sequence);
        if (decide) return decide(event);
        this.recent.set(sequence, event);
        if (this.recent.size > RECENT) this.recent.delete(this.recent.keys().next().value!);
      };
      for (const subject of subjects) this.nc.subscribe(subject, { callback });
      await this.nc.flush();
      const denied = subjects.find((subject) => this.denied.has(subject));
      if (denied) throw new Denied(denied);
    })();
    // Not for good: the next message tries again.
    this.listening.catch(() => (this.listening = undefined));
    return this.listening;
  }
}

/** A job's events. `return()` stops listening. */
export interface Events extends AsyncIterableIterator<Event> {
  return(): Promise<IteratorResult<Event>>;
}

async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((done) => {
    timer = setTimeout(() => done(undefined), Math.min(Math.max(ms, 0), 0x7fffffff));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
