package dev.dormouse.client;

import java.util.AbstractMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What clients of a service saw in one window at a proxy of your own, field by field. It is a map, so
 * that any field can be set by its name too; a test compares its methods with
 * messages/schema/measured-document.json.
 */
public final class Measured extends AbstractMap<String, Object> {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    /** Of this service: so many requests in so many seconds. */
    public Measured(String job, int windowS, long requests) {
        job(job).windowS(windowS).requests(requests);
    }

    @Override
    public Set<Entry<String, Object>> entrySet() {
        return fields.entrySet();
    }

    @Override
    public Object put(String field, Object value) {
        return fields.put(field, value);
    }

    private Measured with(String field, Object value) {
        fields.put(field, value);
        return this;
    }

    /** Counts by upper bound: one count more than bounds, that of what lies above the last. */
    public static Map<String, Object> histogram(List<? extends Number> bounds, List<? extends Number> counts) {
        return Map.of("bounds", bounds, "counts", counts);
    }

    /** The service: its name, with or without the tenant before it. */
    public Measured job(String value) {
        return with("job", value);
    }

    /** What the proxy is called, of those before this service; {@code proxy} where it has no name. */
    public Measured gateway(String value) {
        return with("gateway", value);
    }

    /** Seconds of the window, 1 to 60. The windows of one proxy follow one another. */
    public Measured windowS(int value) {
        return with("window_s", value);
    }

    /** Requests that arrived. */
    public Measured requests(long value) {
        return with("requests", value);
    }

    /** Those that arrived in each second of the window, the oldest first. */
    public Measured arrivals(List<? extends Number> value) {
        return with("arrivals", value);
    }

    /** Requests in the system, waiting ones too: the mean of the window. */
    public Measured concurrency(double value) {
        return with("concurrency", value);
    }

    /** Requests that wait at the proxy at the window's end. */
    public Measured queued(int value) {
        return with("queued", value);
    }

    /** From a request's arrival at the proxy to its answer's end: a {@link #histogram}. */
    public Measured latencyMs(Map<String, ?> value) {
        return with("latency_ms", value);
    }

    /** From its passing to a replica to its answer's end: a {@link #histogram}. */
    public Measured serviceMs(Map<String, ?> value) {
        return with("service_ms", value);
    }

    /** Answers with 5xx, and connections that broke. */
    public Measured errors(long value) {
        return with("errors", value);
    }

    /** Requests that were turned away because no replica was free in time. */
    public Measured shed(long value) {
        return with("shed", value);
    }

    /** Replicas that the proxy uses, at the window's end. */
    public Measured ready(int value) {
        return with("ready", value);
    }

    /** When the window ended, as RFC 3339; when it was published, where it does not say. */
    public Measured until(String value) {
        return with("until", value);
    }
}
