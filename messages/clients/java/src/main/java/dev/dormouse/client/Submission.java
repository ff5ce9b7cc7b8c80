package dev.dormouse.client;

/**
 * A job that the cluster has, or (state {@code stored}) that the broker has for it.
 *
 * @param job {@code tenant/name}
 * @param ingressSequence the message's, as the broker acknowledged it
 * @param state {@code stored}, {@code admitted}, {@code started}, {@code completed}, {@code failed}
 *     or {@code cancelled}
 * @param existing whether the same document was submitted under this name before
 * @param reason why it ended
 * @param sha256 of the document's bytes, in hex
 */
public record Submission(
        String job, long ingressSequence, String state, boolean existing, String reason, String sha256) {
    Submission with(String otherState, String otherReason) {
        return new Submission(job, ingressSequence, otherState, existing, otherReason, sha256);
    }
}
