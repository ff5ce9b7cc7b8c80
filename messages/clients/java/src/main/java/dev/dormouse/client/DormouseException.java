package dev.dormouse.client;

/** What can go wrong, as types. */
public abstract sealed class DormouseException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private DormouseException(String message) {
        super(message);
    }

    /** The cluster has refused a message or a query, for good. */
    public static final class Refused extends DormouseException {
        private static final long serialVersionUID = 1;
        private final String code;
        private final String reason;

        Refused(String code, String reason) {
            super(code + ": " + reason);
            this.code = code;
            this.reason = reason;
        }

        /** For programs. */
        public String code() {
            return code;
        }

        /** What is wrong, and what to do. */
        public String reason() {
            return reason;
        }
    }

    /** Nothing listens there: no cluster runs under this prefix, or the broker is away. */
    public static final class Unavailable extends DormouseException {
        private static final long serialVersionUID = 1;

        Unavailable(String message) {
            super(message);
        }
    }

    /** No answer in time. */
    public static final class TimedOut extends DormouseException {
        private static final long serialVersionUID = 1;
        private final boolean stored;

        TimedOut(String message, boolean stored) {
            super(message);
            this.stored = stored;
        }

        /**
         * Whether the broker has acknowledged the message: then it will be decided. If not, nobody
         * knows: send the same document under the same name again, which is safe.
         */
        public boolean stored() {
            return stored;
        }
    }

    /** The broker's permissions do not allow the subject. */
    public static final class Denied extends DormouseException {
        private static final long serialVersionUID = 1;

        Denied(String subject) {
            super("the broker denies " + subject + ": use the tenant that these credentials are for");
        }
    }
}
