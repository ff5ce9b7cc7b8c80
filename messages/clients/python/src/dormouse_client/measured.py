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
    Values up to each bound and above the previous; the last above all.
    """


Timestamp: TypeAlias = str


class MeasuredDocument(TypedDict):
    """
    Requests to a service in a window, measured by a tenant's proxy.
    """

    arrivals: NotRequired[list[int]]
    """
    Arrivals in each second of the window, oldest first.
    """
    concurrency: float
    """
    Mean requests in the system, including waiting ones.
    """
    errors: NotRequired[int]
    """
    Answers with 5xx, and broken connections.
    """
    gateway: NotRequired[str | None]
    """
    Name of the proxy; `proxy` if absent.
    """
    job: str
    """
    Name of the service, with or without the tenant.
    """
    latency_ms: MeasuredHistogram
    """
    From a request's arrival at the proxy to the end of its answer.
    """
    queued: NotRequired[int]
    """
    Requests waiting at the proxy at the window's end.
    """
    ready: NotRequired[int]
    """
    Replicas in use by the proxy at the window's end.
    """
    requests: int
    """
    Requests that arrived.
    """
    service_ms: NotRequired[MeasuredHistogram | None]
    """
    From a request's handover to a replica to the end of its answer.
    """
    shed: NotRequired[int]
    """
    Requests refused for lack of a free replica.
    """
    until: NotRequired[Timestamp | None]
    """
    End of the window; by default the time of publication.
    """
    window_s: int
    """
    Length of the window in seconds, 1 to 60; windows do not overlap.
    """
