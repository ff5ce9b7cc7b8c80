package dev.dormouse.client;

import io.nats.client.Connection;
import io.nats.client.ConnectionListener;
import io.nats.client.Dispatcher;
import io.nats.client.ErrorListener;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Requests and answers on one connection: sent again when the connection was lost in between, and
 * ended at once by a denial, which has no answer but is reported on the connection.
 */
final class Wire implements AutoCloseable {
    private static final Pattern DENIED =
            Pattern.compile("Permissions Violation for (?:Publish|Subscription) to \"([^\"]+)\"", Pattern.CASE_INSENSITIVE);

    private record Asked(String subject, CompletableFuture<Message> answer, Runnable again) {}

    final Connection nats;
    private final String inbox;
    private final AtomicLong token = new AtomicLong();
    private final Map<String, Asked> pending = new ConcurrentHashMap<>();
    private final Set<String> denied = ConcurrentHashMap.newKeySet();

    Wire(Options.Builder options) {
        ErrorListener errors = new ErrorListener() {
            @Override
            public void errorOccurred(Connection connection, String error) {
                onError(error);
            }
        };
        ConnectionListener connections = (connection, change) -> {
            if (change == ConnectionListener.Events.RECONNECTED) {
                pending.values().forEach(asked -> asked.again().run());
            }
        };
        Options built = options.errorListener(errors).connectionListener(connections).build();
        try {
            nats = Nats.connect(built);
        } catch (IOException error) {
            throw new DormouseException.Unavailable("no broker at " + built.getServers() + ": " + error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new DormouseException.Unavailable("interrupted while connecting");
        }
        inbox = nats.createInbox();
        Dispatcher answers = nats.createDispatcher(message -> {
            Asked asked = pending.get(message.getSubject());
            if (asked != null) {
                // What waits for it must not hold up the answers behind it.
                asked.answer().completeAsync(() -> message);
            }
        });
        answers.subscribe(inbox + ".*");
    }

    CompletableFuture<Message> ask(String subject, byte[] payload, Headers headers, Duration timeout) {
        String reply = inbox + "." + Long.toString(token.incrementAndGet(), 36);
        NatsMessage message = NatsMessage.builder().subject(subject).replyTo(reply).headers(headers).data(payload).build();
        CompletableFuture<Message> answer = new CompletableFuture<>();
        pending.put(reply, new Asked(subject, answer, () -> nats.publish(message)));
        try {
            nats.publish(message);
        } catch (IllegalStateException error) {
            answer.completeExceptionally(new DormouseException.Unavailable("the connection is closed"));
        }
        return answer.orTimeout(timeout.toMillis(), TimeUnit.MILLISECONDS).handle((answered, error) -> {
            pending.remove(reply);
            if (error instanceof TimeoutException) {
                throw new DormouseException.TimedOut("no answer on " + subject + " in time", false);
            }
            if (error instanceof RuntimeException known) {
                throw known;
            }
            if (answered.isStatusMessage() && answered.getStatus().getCode() == 503) {
                throw new DormouseException.Unavailable(
                        "nothing answers on " + subject + ": is `dormouse up` running, and under this prefix?");
            }
            return answered;
        });
    }

    /** Sees to it that the broker has taken the subscription to a subject. */
    void flush(String subject, Duration timeout) {
        try {
            nats.flush(timeout);
        } catch (TimeoutException error) {
            throw new DormouseException.Unavailable("the broker does not answer");
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new DormouseException.Unavailable("interrupted");
        }
        if (denied.contains(subject)) {
            throw new DormouseException.Denied(subject);
        }
    }

    private void onError(String error) {
        Matcher found = DENIED.matcher(error);
        if (!found.find()) {
            return;
        }
        String subject = found.group(1);
        denied.add(subject);
        for (Asked asked : pending.values()) {
            if (asked.subject().equalsIgnoreCase(subject)) {
                asked.answer().completeExceptionally(new DormouseException.Denied(asked.subject()));
            }
        }
    }

    @Override
    public void close() {
        try {
            nats.close();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
