package dev.dormouse.client;

/** What a submission waits for. */
public enum Wait {
    /** The broker has stored it. */
    ACCEPTED,
    /** It is admitted, or the future fails with {@link DormouseException.Refused}. */
    DECIDED,
    /** Its containers run. */
    STARTED,
    /** It has completed, failed or been cancelled. */
    ENDED
}
