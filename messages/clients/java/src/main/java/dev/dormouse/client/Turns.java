package dev.dormouse.client;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;

/** Lets so many in at once; the others wait in order, without a thread. */
final class Turns {
    private final Queue<CompletableFuture<Void>> waiting = new ArrayDeque<>();
    private int free;

    Turns(int atOnce) {
        free = atOnce;
    }

    /** Completes when there is room. */
    CompletableFuture<Void> enter() {
        synchronized (waiting) {
            CompletableFuture<Void> turn = new CompletableFuture<>();
            if (free > 0) {
                free -= 1;
                turn.complete(null);
            } else {
                waiting.add(turn);
            }
            return turn;
        }
    }

    void leave() {
        CompletableFuture<Void> next;
        synchronized (waiting) {
            next = waiting.poll();
            if (next == null) {
                free += 1;
            }
        }
        if (next != null) {
            next.completeAsync(() -> null);
        }
    }
}
