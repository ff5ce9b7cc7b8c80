"""What can go wrong, as types."""

from __future__ import annotations


class DormouseError(Exception):
    """The base of all errors here."""


class Refused(DormouseError):
    """The cluster has refused a message or a query, for good.

    `code` is for programs, `reason` says what is wrong and what to do. `ingress_sequence` is the
    refused message's; a query has none.
    """

    def __init__(self, code: str, reason: str, ingress_sequence: int | None = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.ingress_sequence = ingress_sequence


class Unavailable(DormouseError):
    """Nothing listens there: no cluster runs under this prefix, or the broker is away."""


class TimedOut(DormouseError):
    """No answer in time.

    `stored` says whether the broker has acknowledged the message: then it will be decided. False
    means that nobody knows: send the same document under the same name again, which is safe.
    """

    def __init__(self, what: str, stored: bool = False) -> None:
        super().__init__(what)
        self.stored = stored


class Denied(DormouseError):
    """The broker's permissions do not allow the subject."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"the broker denies {subject}: use the tenant that these credentials are for")
        self.subject = subject
