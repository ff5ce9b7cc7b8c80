package dev.dormouse.client;

import java.util.AbstractMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A job document, field by field. It is a map, so that any field can be set by its name too; a test
 * compares its methods with messages/schema/job-document.json.
 */
public final class Job extends AbstractMap<String, Object> {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    /** A job of this name. */
    public Job(String name) {
        name(name);
    }

    @Override
    public Set<Entry<String, Object>> entrySet() {
        return fields.entrySet();
    }

    @Override
    public Object put(String field, Object value) {
        return fields.put(field, value);
    }

    private Job with(String field, Object value) {
        fields.put(field, value);
        return this;
    }

    /** The command of its start, as a list of words. */
    public Job start(String... words) {
        return command(Map.of("start", List.of(words)));
    }

    /** The fewest and the most containers. */
    public Job containers(int min, int max) {
        return containers(Map.of("min", min, "max", max));
    }

    /** Checkpoint contract. */
    public Job checkpoint(Map<String, ?> value) {
        return with("checkpoint", value);
    }

    /** Command lines. */
    public Job command(Map<String, ?> value) {
        return with("command", value);
    }

    /** Fewest and most containers. */
    public Job containers(Map<String, ?> value) {
        return with("containers", value);
    }

    /** Demand of one container. */
    public Job demand(Map<String, ?> value) {
        return with("demand", value);
    }

    /** Jobs of the same tenant that must complete before it may have containers. */
    public Job dependsOn(List<?> value) {
        return with("depends_on", value);
    }

    /** Environment. */
    public Job env(Map<String, ?> value) {
        return with("env", value);
    }

    /** How each process is told its cluster. */
    public Job executor(String value) {
        return with("executor", value);
    }

    /** Image for the Docker runtime. */
    public Job image(String value) {
        return with("image", value);
    }

    /** Training or batch. */
    public Job kind(String value) {
        return with("kind", value);
    }

    /** The fewest seconds between its start and its next resize; by default the policy's. */
    public Job minRunS(int value) {
        return with("min_run_s", value);
    }

    /** Folders of the node. */
    public Job mounts(List<?> value) {
        return with("mounts", value);
    }

    /** On which nodes its containers may be: rules for labels, spread, pack, prefer. */
    public Job constraints(Map<String, ?> value) {
        return with("constraints", value);
    }

    /** Of a part of a GPU: the most that it may use while others leave it. */
    public Job gpuLimit(Object value) {
        return with("gpu_limit", value);
    }

    /** The same in thousandths. */
    public Job gpuLimitMilli(long value) {
        return with("gpu_limit_milli", value);
    }

    /** Memory of each GPU that a container has, such as 8Gi. */
    public Job gpuMemory(Object value) {
        return with("gpu_memory", value);
    }

    /** The same in bytes. */
    public Job gpuMemoryBytes(long value) {
        return with("gpu_memory_bytes", value);
    }

    /** The packed folder in which its command starts: a map of sha256 and bytes. */
    public Job workdir(Object value) {
        return with("workdir", value);
    }

    /** Python packages, of which each node makes an environment: a map of requirements, a list of lines, and version. */
    public Job python(Object value) {
        return with("python", value);
    }

    /** The token of a plan: refused where it would not be decided on as planned any more. */
    public Job ifPlan(String value) {
        return with("if_plan", value);
    }

    /** Taints of nodes that do not keep its containers away. */
    public Job tolerations(List<?> value) {
        return with("tolerations", value);
    }

    /** How its containers reach the network: none, published or host. */
    public Job network(String value) {
        return with("network", value);
    }

    /** `[a-z0-9-]`, unique within the tenant; generated if absent. */
    public Job name(String value) {
        return with("name", value);
    }

    /** Its place in the tenant's own queue: the highest goes first; the tenant's default where absent. */
    public Job priority(int value) {
        return with("priority", value);
    }

    /** Its priority class: the operator defines it and grants it to tenants. */
    public Job priorityClass(Object value) {
        return with("priority_class", value);
    }

    /** The most seconds from its admission to its first start; then it is cancelled. */
    public Job queueLimitS(int value) {
        return with("queue_limit_s", value);
    }

    /** When an incarnation counts as ready: before that it is not resized because others come and go. */
    public Job ready(String value) {
        return with("ready", value);
    }

    /** How its partition changes while it runs: `restart` or `in_place`. */
    public Job resize(Object value) {
        return with("resize", value);
    }

    /** How often a failed gang, or a failed task of a task set, is started again. */
    public Job retries(int value) {
        return with("retries", value);
    }

    /** Containers beside the workers, by name: `ps` (parameter servers) and `evaluator`. */
    public Job roles(Map<String, ?> value) {
        return with("roles", value);
    }

    /** What a service promises; of `kind: inference` and `kind: notebook` only. */
    public Job service(Map<String, ?> value) {
        return with("service", value);
    }

    /** Speed of 1, 2, … containers in speeds of one container, until it is measured. */
    public Job speed(List<Double> value) {
        return with("speed", value);
    }

    /** Smallest and largest global batch, if the program can change it. */
    public Job batch(Map<String, ?> value) {
        return with("batch", value);
    }

    /** Containers under the policy `static`; the most where it is absent. */
    public Job staticContainers(int value) {
        return with("static_containers", value);
    }

    /** When it has succeeded. */
    public Job success(String value) {
        return with("success", value);
    }

    /** A batch job of many tasks: one submission, tracked and cancelled as one. */
    public Job tasks(Map<String, ?> value) {
        return with("tasks", value);
    }

    /** Must be the ingress subject's tenant, where it is given. */
    public Job tenant(String value) {
        return with("tenant", value);
    }

    /** The most seconds that it may run, over all of its incarnations; then it is stopped and has failed. */
    public Job timeLimitS(int value) {
        return with("time_limit_s", value);
    }

    /** A signal before that. */
    public Job warning(Map<String, ?> value) {
        return with("warning", value);
    }

    /** Weight of the job's fair share. */
    public Job weight(int value) {
        return with("weight", value);
    }
}
