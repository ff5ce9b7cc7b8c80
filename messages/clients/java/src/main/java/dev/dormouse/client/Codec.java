package dev.dormouse.client;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.nats.client.Message;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.HexFormat;
import java.util.Map;
import org.msgpack.jackson.dataformat.MessagePackFactory;

/**
 * Documents to bytes, and status messages to events. The same document has the same bytes in every
 * language's client (keys sorted, nothing added), so that a submission that is sent again is known by
 * its hash.
 */
final class Codec {
    private static final TypeReference<Map<String, Object>> FIELDS = new TypeReference<>() {};
    /** Characters beyond 16 bits are written as they are, as in every other language. */
    private static final ObjectMapper JSON = JsonMapper.builder()
            .enable(JsonWriteFeature.COMBINE_UNICODE_SURROGATES_IN_UTF8)
            .enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS)
            .build();
    private static final ObjectMapper MSGPACK = new ObjectMapper(new MessagePackFactory())
            .enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);

    private Codec() {}

    static byte[] encode(Map<String, ?> document, Encoding encoding) {
        try {
            return (encoding == Encoding.JSON ? JSON : MSGPACK).writeValueAsBytes(document);
        } catch (IOException error) {
            throw new UncheckedIOException("the document cannot be written", error);
        }
    }

    static Map<String, Object> json(byte[] bytes) {
        try {
            return JSON.readValue(bytes, FIELDS);
        } catch (IOException error) {
            throw new UncheckedIOException("the answer is no JSON object", error);
        }
    }

    static Event event(Message message) {
        try {
            Map<String, Object> read = MSGPACK.readValue(message.getData(), FIELDS);
            String type = (String) read.get("type");
            int cut = type.lastIndexOf(".v");
            String sequence = header(message, "Nats-Sequence");
            @SuppressWarnings("unchecked")
            Map<String, Object> data = (Map<String, Object>) read.getOrDefault("data", Map.of());
            return new Event(
                    type.substring("dormouse.".length(), cut),
                    Integer.parseInt(type.substring(cut + 2)),
                    (String) read.get("id"),
                    (String) read.getOrDefault("subject", ""),
                    Instant.parse((String) read.get("time")),
                    sequence == null ? 0 : Long.parseLong(sequence),
                    (String) read.get("traceparent"),
                    data);
        } catch (IOException error) {
            throw new UncheckedIOException("a status message is no event", error);
        }
    }

    static String header(Message message, String name) {
        return message.getHeaders() == null ? null : message.getHeaders().getFirst(name);
    }

    static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java has SHA-256", error);
        }
    }
}
