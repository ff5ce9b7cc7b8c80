# Written by generate.sh from messages/schema/measured-document.json; not by hand.

from __future__ import annotations

from typing import NotRequired, TypeAlias, TypedDict


class MeasuredHistogram(TypedDict):
    """
    Counts by upper bound.
    """

    bounds: list[float]
    """
    Upper bounds in milliseconds, ascending; at most 64.
    """
    counts: list[int]
    """
    How many lie at or below each bound and above the one before; last, those above all of them.
    """


Timestamp: TypeAlias = str


class MeasuredDocument(TypedDict):
    """
    What clients of a service saw in one window, as a tenant's own proxy publishes it.
    """

    arrivals: NotRequired[list[int]]
    """
    Those that arrived in each second of the window, the oldest first.
    """
    concurrency: float
    """
    Requests in the system, waiting ones too: the mean of the window.
    """
    errors: NotRequired[int]
    """
    Answers with 5xx, and connections that broke.
    """
    gateway: NotRequired[str | None]
    """
    What the proxy is called, of those before this service; `proxy` where it has no name.
    """
    job: str
    """
    The service: its name, with or without the tenant before it.
    """
    latency_ms: MeasuredHistogram
    """
    From a request's arrival at the proxy to its answer's end.
    """
    queued: NotRequired[int]
    """
    Requests that wait at the proxy at the window's end.
    """
    ready: NotRequired[int]
    """
    Replicas that the proxy uses, at the window's end.
    """
    requests: int
    """
    Requests that arrived.
    """
    service_ms: NotRequired[MeasuredHistogram | None]
    """
    From its passing to a replica to its answer's end.
    """
    shed: NotRequired[int]
    """
    Requests that were turned away because no replica was free in time.
    """
    until: NotRequired[Timestamp | None]
    """
    When the window ended; when it was published, where it does not say.
    """
    window_s: int
    """
    Seconds of the window, 1 to 60. The windows of one proxy follow one another.
    """
