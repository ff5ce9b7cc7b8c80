// What can go wrong, as types.

/** The base of all errors here. */
export class DormouseError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** The cluster has refused a message or a query, for good. */
export class Refused extends DormouseError {
  constructor(
    /** For programs. */
    readonly code: string,
    /** What is wrong, and what to do. */
    readonly reason: string,
    /** The refused message's; a query has none. */
    readonly ingressSequence?: number,
  ) {
    super(`${code}: ${reason}`);
  }
}

/** Nothing listens there: no cluster runs under this prefix, or the broker is away. */
export class Unavailable extends DormouseError {}

/** No answer in time. */
export class TimedOut extends DormouseError {
  constructor(
    message: string,
    /**
     * Whether the broker has acknowledged the message: then it will be decided. If not, nobody
     * knows: send the same document under the same name again, which is safe.
     */
    readonly stored = false,
  ) {
    super(message);
  }
}

/** The broker's permissions do not allow the subject. */
export class Denied extends DormouseError {
  constructor(readonly subject: string) {
    super(`the broker denies ${subject}: use the tenant that these credentials are for`);
  }
}
