package dev.dormouse.client;

import java.time.Instant;
import java.util.Map;
import java.util.Set;

/**
 * Something that happened to a job. Unknown types and fields may come: pass over them.
 *
 * @param type such as {@code job.completed}
 * @param version of the type
 * @param id the same event has the same id
 * @param subject what it is about: {@code tenant/name}, as a rule
 * @param time when it was decided or seen
 * @param sequence its place on the cluster's log; 0 where it is not known
 * @param traceparent its W3C trace context, or null
 * @param data as the reference of events says
 */
public record Event(
        String type,
        int version,
        String id,
        String subject,
        Instant time,
        long sequence,
        String traceparent,
        Map<String, Object> data) {
    private static final Set<String> ENDS = Set.of("job.completed", "job.failed", "job.cancelled");

    /** Whether the job is over with it. */
    public boolean isEnd() {
        return ENDS.contains(type);
    }

    String text(String field) {
        return String.valueOf(data.getOrDefault(field, ""));
    }
}
