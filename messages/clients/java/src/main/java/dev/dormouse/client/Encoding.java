package dev.dormouse.client;

/** How documents are written. */
public enum Encoding {
    /** JSON. */
    JSON("application/json"),
    /** MessagePack. */
    MSGPACK("application/msgpack");

    final String contentType;

    Encoding(String contentType) {
        this.contentType = contentType;
    }
}
