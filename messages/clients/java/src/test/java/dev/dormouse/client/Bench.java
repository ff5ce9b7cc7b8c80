package dev.dormouse.client;

import io.nats.client.Options;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;

/** Submissions a second, and the time of a decision: URL TENANT [COUNT]. */
public final class Bench {
    private static Job job(String name) {
        return new Job(name).start("true").demand(Map.of("cpu", 1000, "memory", "1Gi"));
    }

    /** Runs it. */
    public static void main(String[] words) {
        int count = words.length > 2 ? Integer.parseInt(words[2]) : 10_000;
        var options = new Options.Builder().server(words[0]);
        try (var client = Client.connect(options, words[1], "dormouse", Encoding.JSON, Duration.ofMinutes(1))) {
            // One after the other: a twentieth.
            long[] decided = IntStream.range(0, count / 20).mapToLong(index -> {
                long began = System.nanoTime();
                try {
                    Client.await(client.submit(job("one-" + index)));
                } catch (DormouseException.Refused refused) {
                    // Larger than any node: a decision too.
                }
                return System.nanoTime() - began;
            }).toArray();
            Arrays.sort(decided);
            long began = System.nanoTime();
            How stored = How.DEFAULT.waiting(Wait.ACCEPTED);
            CompletableFuture.allOf(IntStream.range(0, count)
                            .mapToObj(index -> client.submit(job("many-" + index), stored))
                            .toArray(CompletableFuture[]::new))
                    .join();
            double rate = count * 1e9 / (System.nanoTime() - began);
            System.out.printf("java: %.0f submissions/s acknowledged; decision in %.2f ms (median of %d)%n", rate, decided[decided.length / 2] / 1e6, decided.length);
        }
        System.exit(0);
    }
}
