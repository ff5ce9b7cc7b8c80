package dev.dormouse.client;

import java.time.Duration;

/**
 * How a message is sent.
 *
 * @param until what a submission waits for
 * @param timeout how long; null: the client's
 * @param traceparent the W3C trace context that the job's events continue; null: none
 */
public record How(Wait until, Duration timeout, String traceparent) {
    /** Until the decision. */
    public static final How DEFAULT = new How(Wait.DECIDED, null, null);

    /** The same, waiting for something else. */
    public How waiting(Wait other) {
        return new How(other, timeout, traceparent);
    }

    /** The same, with a time limit. */
    public How within(Duration limit) {
        return new How(until, limit, traceparent);
    }

    /** The same, as part of a trace. */
    public How traced(String context) {
        return new How(until, timeout, context);
    }
}
