package dev.dormouse.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nats.client.Options;
import java.io.File;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The driver of conformance.json for this client: one line of JSON a case. */
public final class Conformance {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, String> arguments = new HashMap<>();
    private final Map<String, Client> clients = new HashMap<>();

    /** {@code --schema JOB MEASURED} compares {@link Job} and {@link Measured}; else see conformance.py. */
    public static void main(String[] words) throws Exception {
        if (words[0].equals("--schema")) {
            checkSchema(JSON.readTree(new File(words[1])), Job.class);
            checkSchema(JSON.readTree(new File(words[2])), Measured.class);
            return;
        }
        Conformance driver = new Conformance();
        for (int index = 0; index + 1 < words.length; index += 2) {
            driver.arguments.put(words[index].substring(2), words[index + 1]);
        }
        for (JsonNode test : JSON.readTree(new File(driver.arguments.get("cases"))).get("cases")) {
            System.out.println(JSON.writeValueAsString(driver.run(test)));
        }
        driver.clients.values().forEach(Client::close);
        System.exit(0);
    }

    private static void checkSchema(JsonNode schema, Class<?> written) {
        schema.get("properties").fieldNames().forEachRemaining(field -> {
            String method = field.replaceAll("_s$", "S");
            for (int at = method.indexOf('_'); at >= 0; at = method.indexOf('_')) {
                method = method.substring(0, at) + Character.toUpperCase(method.charAt(at + 1)) + method.substring(at + 2);
            }
            String wanted = method;
            boolean there = java.util.Arrays.stream(written.getMethods()).anyMatch(found -> found.getName().equals(wanted));
            if (!there) {
                System.err.println(written.getSimpleName() + " has no method " + wanted + " for the field " + field);
                System.exit(1);
            }
        });
    }

    private Map<String, Object> run(JsonNode test) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("case", test.get("name").asText());
        try {
            Object result = null;
            for (JsonNode step : test.get("steps")) {
                result = step(test, step);
            }
            line.put("ok", result);
        } catch (DormouseException error) {
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("class", error.getClass().getSimpleName());
            if (error instanceof DormouseException.Refused refused) {
                said.put("code", refused.code());
            }
            if (error instanceof DormouseException.TimedOut timedOut) {
                said.put("stored", timedOut.stored());
            }
            line.put("error", said);
        }
        return line;
    }

    private Client client(String broker, String tenant, String encoding, int number) {
        return clients.computeIfAbsent(broker + " " + tenant + " " + encoding + " " + number, key -> Client.connect(
                new Options.Builder().server(arguments.get(broker)),
                tenant,
                "dormouse",
                Encoding.valueOf(encoding.toUpperCase()),
                Duration.ofSeconds(10)));
    }

    @SuppressWarnings("unchecked")
    private Object step(JsonNode test, JsonNode step) {
        String tenant = test.path("tenant").asText(arguments.get("tenant"));
        Client client = client(
                test.path("broker").asText("main"), tenant, step.path("encoding").asText("json"), step.path("client").asInt(1));
        How how = How.DEFAULT;
        if (step.has("timeout_ms")) {
            how = how.within(Duration.ofMillis(step.get("timeout_ms").asLong()));
        }
        if (step.has("submit")) {
            how = how.waiting(Wait.valueOf(step.path("wait").asText("decided").toUpperCase()));
            Submission done = Client.await(client.submit((Map<String, ?>) value(step.get("submit"), tenant), how));
            return Map.of("state", done.state(), "existing", done.existing(), "sha256", done.sha256());
        }
        if (step.has("cancel")) {
            return changed(client.cancel(step.get("cancel").asText(), how));
        }
        if (step.has("revise")) {
            Map<String, Object> changes = (Map<String, Object>) value(step.get("revise"), tenant);
            return changed(client.revise((String) changes.remove("job"), changes, how));
        }
        if (step.has("measure")) {
            return changed(client.measure((Map<String, ?>) value(step.get("measure"), tenant), how));
        }
        if (step.has("query")) {
            Map<String, ?> request = (Map<String, ?>) value(step.path("request"), tenant);
            return Client.await(client.query(step.get("query").asText(), request, how));
        }
        Map<String, ?> document = (Map<String, ?>) value(step.get("watched"), tenant);
        try (Events events = client.watch((String) document.get("name"))) {
            Client.await(client.submit(document, how.traced(step.get("traceparent").asText())));
            List<String> types = new ArrayList<>();
            String trace = null;
            for (Event event : events) {
                types.add(event.type());
                trace = trace == null ? event.traceparent().split("-")[1] : trace;
            }
            return Map.of("types", types, "trace", trace);
        }
    }

    private static Object changed(CompletableFuture<Event> change) {
        Event event = Client.await(change);
        return Map.of("type", event.type(), "data", event.data());
    }

    /** A document of the suite, with its special values. */
    private static Object value(JsonNode written, String tenant) {
        if (written.isArray()) {
            List<Object> items = new ArrayList<>();
            written.forEach(item -> items.add(value(item, tenant)));
            return items;
        }
        if (!written.isObject()) {
            return JSON.convertValue(written, Object.class);
        }
        if (written.has("$u64")) {
            return new BigInteger(written.get("$u64").asText());
        }
        if (written.has("$float")) {
            return Double.valueOf(written.get("$float").asText());
        }
        if (written.has("$repeat")) {
            return written.get("$repeat").get(0).asText().repeat(written.get("$repeat").get(1).asInt());
        }
        if (written.has("$tenant")) {
            String name = written.get("$tenant").asText();
            return name.isEmpty() ? tenant : tenant + "/" + name;
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        written.fields().forEachRemaining(field -> fields.put(field.getKey(), value(field.getValue(), tenant)));
        return fields;
    }
}
