package dev.dormouse.client;

import io.nats.client.Dispatcher;
import io.nats.client.Message;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** A job's events, from the call of {@code watch} to the job's end. Iterating waits for the next one. */
public final class Events implements Iterable<Event>, AutoCloseable {
    private final Wire wire;
    private final Dispatcher dispatcher;
    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private volatile Consumer<Event> listener = events::add;
    private long last;

    Events(Wire wire, String subject, Duration timeout) {
        this.wire = wire;
        dispatcher = wire.nats.createDispatcher(this::take);
        dispatcher.subscribe(subject);
        wire.flush(subject, timeout);
    }

    private synchronized void take(Message message) {
        Event event = Codec.event(message);
        // An event may come twice when another copy of the service shows them.
        if (event.sequence() > last) {
            last = event.sequence();
            listener.accept(event);
        }
    }

    /** Hands over to a listener, first what is there already. */
    synchronized void listen(Consumer<Event> to) {
        events.forEach(to);
        listener = to;
    }

    @Override
    public Iterator<Event> iterator() {
        return new Iterator<>() {
            private boolean ended;

            @Override
            public boolean hasNext() {
                return !ended;
            }

            @Override
            public Event next() {
                try {
                    while (!ended) {
                        Event event = events.poll(1, TimeUnit.HOURS);
                        if (event != null) {
                            ended = event.isEnd();
                            return event;
                        }
                    }
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                    ended = true;
                }
                throw new NoSuchElementException("the job has ended");
            }
        };
    }

    @Override
    public void close() {
        if (wire.nats.getStatus() != io.nats.client.Connection.Status.CLOSED) {
            wire.nats.closeDispatcher(dispatcher);
        }
    }
}
