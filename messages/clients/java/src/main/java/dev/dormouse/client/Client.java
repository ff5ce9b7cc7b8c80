package dev.dormouse.client;

import io.nats.client.Dispatcher;
import io.nats.client.Message;
import io.nats.client.Options;
import io.nats.client.impl.Headers;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;

/**
 * A tenant's connection. It may be used by many threads.
 *
 * <p>A message is published with a reply subject; the broker's acknowledgement means that it is
 * stored. What became of it comes on the status subjects, to which the client listens before it
 * publishes. If the connection is lost in between, the message is sent again: the job's name makes
 * that safe. Futures fail with a {@link DormouseException}; {@link #await} throws it as it is.
 */
public final class Client implements AutoCloseable {
    private static final Pattern NAME = Pattern.compile("[a-z0-9-]{1,63}");
    private static final Set<String> ENDS = Set.of("completed", "failed", "cancelled");
    /** What may become of a message. */
    private static final List<String> DECISIONS = List.of("job.*", "service.measured", "submissions.rate_limited");
    /** How long a decision may be silent before it is asked for: a status message can be lost. */
    private static final long SILENCE_MS = 2_000;
    /** Messages that are on their way to the broker at once: more would wait there. */
    private static final int AT_ONCE = 256;
    /**
     * Bytes of a message that a tenant's account may send. A broker closes the connection of what is longer,
     * and does not say before that an account may send less than others.
     */
    private static final long MAX_MESSAGE = 2 << 20;
    /** The broker's words where as many of the tenant's messages wait to be recorded as may. */
    private static final String FULL = "maximum messages per subject";
    /** Until one is sent again. */
    private static final long FULL_PAUSE_MS = 50;
    /** Until a question is asked again, where as many of the tenant's wait as may. */
    private static final long BUSY_PAUSE_MS = 100;
    /** Decisions that came before the acknowledgement of their message are kept, so many. */
    private static final int RECENT = 20_000;

    private final Wire wire;
    private final String tenant;
    private final String prefix;
    private final Encoding encoding;
    private final Duration timeout;
    private final Map<Long, CompletableFuture<Message>> deciding = new LinkedHashMap<>();
    private final Map<Long, Message> recent = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, Message> eldest) {
            return size() > RECENT;
        }
    };
    private final Turns publishing = new Turns(AT_ONCE);
    private Dispatcher decisions;

    private Client(Wire wire, String tenant, String prefix, Encoding encoding, Duration timeout) {
        this.wire = wire;
        this.tenant = tenant;
        this.prefix = prefix;
        this.encoding = encoding;
        this.timeout = timeout;
    }

    /** Connects as a tenant, with the defaults. */
    public static Client connect(String servers, String tenant) {
        return connect(new Options.Builder().server(servers), tenant, "dormouse", Encoding.JSON, Duration.ofSeconds(10));
    }

    /** Connects as a tenant; {@code options} are those of jnats, such as {@code authHandler}. */
    public static Client connect(
            Options.Builder options, String tenant, String prefix, Encoding encoding, Duration timeout) {
        options.maxReconnects(-1).reconnectWait(Duration.ofMillis(200));
        return new Client(new Wire(options), tenant, prefix, encoding, timeout);
    }

    /** Waits for a future, and throws its {@link DormouseException} as it is. */
    public static <T> T await(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException error) {
            if (error.getCause() instanceof DormouseException known) {
                throw known;
            }
            throw error;
        }
    }

    /** Submits a job document and waits for the decision. */
    public CompletableFuture<Submission> submit(Map<String, ?> job) {
        return submit(job, How.DEFAULT);
    }

    /**
     * Submits a job document (see {@link Job}). One without a name is given one. Sending the same
     * document under the same name again is safe, and succeeds.
     */
    public CompletableFuture<Submission> submit(Map<String, ?> job, How how) {
        Map<String, Object> document = new LinkedHashMap<>(job);
        if (document.get("name") == null) {
            document.put("name", "job-" + UUID.randomUUID().toString().replace("-", "").substring(0, 16));
        }
        String name = String.valueOf(document.get("name"));
        byte[] payload = Codec.encode(document, encoding);
        boolean follows = how.until() == Wait.STARTED || how.until() == Wait.ENDED;
        if (!follows || !NAME.matcher(name).matches()) {
            return send(name, payload, how);
        }
        Events events = watch(name);
        CompletableFuture<Submission> followed =
                send(name, payload, how).thenCompose(submission -> new Following(submission, events, how).start());
        return followed.whenComplete((done, error) -> events.close());
    }

    /** Ends a job: {@code job.cancel_requested}, or {@code job.cancelled} where it was still queued. */
    public CompletableFuture<Event> cancel(String job, How how) {
        return change("cancel", Map.of("job", job), how);
    }

    /**
     * Changes a job: {@code job.revised}. {@code changes} are any of {@code weight}, {@code containers},
     * {@code priority}, {@code time_limit_s}, {@code queue_limit_s}, {@code gpu_limit} (of a job with a
     * part of a GPU; running containers have it at once) and {@code held}, which puts it on hold or
     * lets it go; one that runs without a checkpoint begins again, which {@code force} allows.
     */
    public CompletableFuture<Event> revise(String job, Map<String, ?> changes, How how) {
        Map<String, Object> document = new LinkedHashMap<>(changes);
        document.put("job", job);
        return change("revise", document, how);
    }

    /**
     * Says what clients of a service saw at a proxy of your own (see {@link Measured}): {@code
     * service.measured}. One that has timed out may count or not: measure on.
     */
    public CompletableFuture<Event> measure(Map<String, ?> measured, How how) {
        return change("measured", measured, how);
    }

    /** Listens to a job, which need not be submitted yet. */
    public Events watch(String job) {
        String name = job.startsWith(tenant + "/") ? job.substring(tenant.length() + 1) : job;
        if (!NAME.matcher(name).matches()) {
            throw new DormouseException.Refused("bad_name", "job name \"" + name + "\" is not 1 to 63 of a-z, 0-9 and '-'");
        }
        return new Events(wire, prefix + ".status." + tenant + "." + name + ".>", timeout);
    }

    /** Asks about this tenant: {@code job}, {@code jobs}, {@code ledger}, {@code tenant}, {@code timeline}. */
    public CompletableFuture<Map<String, Object>> query(String name, Map<String, ?> request, How how) {
        byte[] payload = request == null ? new byte[0] : Codec.encode(request, Encoding.JSON);
        String subject = prefix + ".tenant." + tenant + ".api." + name;
        return answered(subject, payload, how, System.nanoTime() + limit(how).toNanos());
    }

    /** Asks until it is not as busy any more as may be: its answer. */
    private CompletableFuture<Map<String, Object>> answered(String subject, byte[] payload, How how, long end) {
        return wire.ask(subject, payload, null, limit(how)).thenCompose(answer -> {
            String refused = Codec.header(answer, "Nats-Service-Error");
            if (refused == null) {
                return CompletableFuture.completedFuture(Codec.json(answer.getData()));
            }
            int cut = refused.indexOf(": ");
            String code = refused.substring(0, cut);
            if (!code.equals("busy") || System.nanoTime() >= end) {
                throw new DormouseException.Refused(code, refused.substring(cut + 2));
            }
            Executor later = CompletableFuture.delayedExecutor(BUSY_PAUSE_MS, TimeUnit.MILLISECONDS);
            return CompletableFuture.runAsync(() -> {}, later)
                    .thenCompose(paused -> answered(subject, payload, how, end));
        });
    }

    @Override
    public void close() {
        wire.close();
    }

    private Duration limit(How how) {
        return how.timeout() == null ? timeout : how.timeout();
    }

    private CompletableFuture<Submission> send(String name, byte[] payload, How how) {
        String job = tenant + "/" + name;
        String sha256 = Codec.sha256(payload);
        if (how.until() == Wait.ACCEPTED) {
            return publish("submit", payload, how)
                    .thenApply(sequence -> new Submission(job, sequence, "stored", false, "", sha256));
        }
        listen();
        return publish("submit", payload, how).thenCompose(sequence -> {
            Submission submission = new Submission(job, sequence, "admitted", false, "", sha256);
            Function<Void, CompletableFuture<Submission>> ask = nothing -> known(submission);
            return decision(sequence, how, ask)
                    .thenApply(decided -> decided instanceof Submission known ? known : submission)
                    .exceptionallyCompose(error -> ifTheSame(error, submission));
        });
    }

    /** A name in use is no error where the job of that name has the same document. */
    private CompletableFuture<Submission> ifTheSame(Throwable error, Submission submission) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        if (!(cause instanceof DormouseException.Refused refused) || !refused.code().equals("name_in_use")) {
            return CompletableFuture.failedFuture(cause);
        }
        return known(submission)
                .thenCompose(known -> known == null ? CompletableFuture.failedFuture(cause) : CompletableFuture.completedFuture(known));
    }

    private CompletableFuture<Event> change(String verb, Map<String, ?> document, How how) {
        listen();
        return publish(verb, Codec.encode(document, encoding), how)
                .thenCompose(sequence -> decision(sequence, how, null))
                .thenApply(Event.class::cast);
    }

    private CompletableFuture<Long> publish(String verb, byte[] payload, How how) {
        long most = Math.min(wire.nats.getMaxPayload(), MAX_MESSAGE);
        if (payload.length > most) {
            String reason = "the document has " + payload.length + " bytes, more than the " + most + " that the broker takes";
            return CompletableFuture.failedFuture(new DormouseException.Refused("too_large", reason));
        }
        Headers headers = new Headers().add("Content-Type", encoding.contentType);
        if (how.traceparent() != null) {
            headers.add("traceparent", how.traceparent());
        }
        String subject = prefix + ".in." + tenant + "." + verb;
        long end = System.nanoTime() + limit(how).toNanos();
        return publishing.enter().thenCompose(in -> stored(subject, payload, headers, how, end))
                .whenComplete((sequence, error) -> publishing.leave());
    }

    /** Sends a message until there is room for it: its sequence. */
    private CompletableFuture<Long> stored(String subject, byte[] payload, Headers headers, How how, long end) {
        return wire.ask(subject, payload, headers, limit(how)).thenCompose(answer -> {
            Map<String, Object> ack = Codec.json(answer.getData());
            if (!ack.containsKey("error")) {
                return CompletableFuture.completedFuture(((Number) ack.get("seq")).longValue());
            }
            String why = String.valueOf(ack.get("error"));
            if (!why.contains(FULL) || System.nanoTime() >= end) {
                throw new DormouseException.Unavailable("the broker has not stored it: " + why);
            }
            Executor later = CompletableFuture.delayedExecutor(FULL_PAUSE_MS, TimeUnit.MILLISECONDS);
            return CompletableFuture.runAsync(() -> {}, later)
                    .thenCompose(paused -> stored(subject, payload, headers, how, end));
        });
    }

    /** An {@link Event}, or what {@code ask} knows of the submission of which nothing is heard. */
    private CompletableFuture<Object> decision(
            long sequence, How how, Function<Void, CompletableFuture<Submission>> ask) {
        CompletableFuture<Message> decided = new CompletableFuture<>();
        synchronized (deciding) {
            Message early = recent.remove(sequence);
            if (early == null) {
                deciding.put(sequence, decided);
            } else {
                decided.complete(early);
            }
        }
        long end = System.nanoTime() + limit(how).toNanos();
        return await(decided, sequence, end, ask).whenComplete((done, error) -> {
            synchronized (deciding) {
                deciding.remove(sequence);
            }
        });
    }

    private CompletableFuture<Object> await(
            CompletableFuture<Message> decided, long sequence, long end, Function<Void, CompletableFuture<Submission>> ask) {
        long left = Math.max(TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()), 0);
        return decided.copy().completeOnTimeout(null, Math.min(left, SILENCE_MS), TimeUnit.MILLISECONDS).thenCompose(message -> {
            if (message != null) {
                Event event = Codec.event(message);
                if (event.type().equals("job.refused")) {
                    throw new DormouseException.Refused(event.text("code"), event.text("reason"));
                }
                if (event.type().equals("submissions.rate_limited")) {
                    String what = event.text("verb").isEmpty() ? "messages" : "measurements";
                    String reason = "more than " + event.text("max_rate") + " " + what + " a second; send fewer";
                    throw new DormouseException.Refused("too_fast", reason);
                }
                return CompletableFuture.completedFuture((Object) event);
            }
            CompletableFuture<Submission> asked = ask == null ? CompletableFuture.completedFuture(null) : ask.apply(null);
            return asked.thenCompose(known -> {
                if (known != null) {
                    return CompletableFuture.completedFuture((Object) known);
                }
                if (System.nanoTime() >= end) {
                    String what = "message " + sequence + " is stored, but nothing has decided on it yet: is admission running?";
                    throw new DormouseException.TimedOut(what, true);
                }
                return await(decided, sequence, end, ask);
            });
        });
    }

    /** What the cluster knows of a submission; null where it has no job of these bytes. */
    private CompletableFuture<Submission> known(Submission submission) {
        return query("job", Map.of("job", submission.job()), How.DEFAULT).handle((row, error) -> {
            if (error != null || !submission.sha256().equals(row.get("sha256"))) {
                return null;
            }
            long sequence = ((Number) row.get("ingress_sequence")).longValue();
            boolean existing = sequence != submission.ingressSequence();
            return new Submission(submission.job(), sequence, "admitted", existing, "", submission.sha256());
        });
    }

    /** Listens to what becomes of this tenant's messages, once for all. */
    private void listen() {
        synchronized (this) {
            if (decisions == null) {
                decisions = wire.nats.createDispatcher(this::decided);
                for (String decision : DECISIONS) {
                    String subject = prefix + ".status." + tenant + "._in.*." + decision;
                    decisions.subscribe(subject);
                    wire.flush(subject, timeout);
                }
            }
        }
    }

    private void decided(Message message) {
        String[] tokens = message.getSubject().split("\\.");
        long sequence = Long.parseLong(tokens[tokens.length - 3]);
        synchronized (deciding) {
            CompletableFuture<Message> waiting = deciding.get(sequence);
            if (waiting == null) {
                recent.put(sequence, message);
            } else {
                waiting.completeAsync(() -> message);
            }
        }
    }

    /** Waits for the start or the end of a job; asks now and then, as a status message can be lost. */
    private final class Following {
        private final Submission submission;
        private final Events events;
        private final How how;
        private final CompletableFuture<Submission> done = new CompletableFuture<>();

        Following(Submission submission, Events events, How how) {
            this.submission = submission;
            this.events = events;
            this.how = how;
        }

        CompletableFuture<Submission> start() {
            events.listen(this::heard);
            if (how.timeout() != null) {
                String what = submission.job() + " is not so far yet";
                CompletableFuture.delayedExecutor(how.timeout().toMillis(), TimeUnit.MILLISECONDS)
                        .execute(() -> done.completeExceptionally(new DormouseException.TimedOut(what, true)));
            }
            if (submission.existing()) {
                ask();
            } else {
                askLater();
            }
            return done;
        }

        private void heard(Event event) {
            if (event.isEnd()) {
                String state = event.type().substring("job.".length());
                done.completeAsync(() -> submission.with(state, event.text("reason")));
            } else if (how.until() == Wait.STARTED && event.type().equals("partition.started")) {
                done.completeAsync(() -> submission.with("started", ""));
            }
        }

        private void askLater() {
            CompletableFuture.delayedExecutor(SILENCE_MS, TimeUnit.MILLISECONDS).execute(this::ask);
        }

        private void ask() {
            if (done.isDone()) {
                return;
            }
            query("job", Map.of("job", submission.job()), How.DEFAULT).whenComplete((row, error) -> {
                if (error == null && ENDS.contains(String.valueOf(row.get("phase")))) {
                    done.complete(submission.with((String) row.get("phase"), (String) row.get("reason")));
                } else if (error == null && how.until() == Wait.STARTED && row.get("first_started_at") != null) {
                    done.complete(submission.with("started", ""));
                } else {
                    askLater();
                }
            });
        }
    }
}
