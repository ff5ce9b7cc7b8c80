"""The same client without `async`: it runs the connection in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from .client import Client as AsyncClient
from .codec import Event, Submission

T = TypeVar("T")


class Client:
    """A tenant's connection. Arguments are those of the asynchronous client's `connect`."""

    def __init__(self, servers: str | list[str] = "nats://127.0.0.1:4222", **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dormouse-client", daemon=True)
        self._thread.start()
        try:
            self._client: AsyncClient = self._run(_awaited(AsyncClient.connect(servers, **options)))
        except BaseException:
            self._end()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, job: Mapping[str, Any], wait: Any = "decided", **options: Any) -> Submission:
        """See the asynchronous client."""
        return self._run(self._client.submit(job, wait, **options))

    def cancel(self, job: str, **options: Any) -> Event:
        """See the asynchronous client."""
        return self._run(self._client.cancel(job, **options))

    def revise(self, job: str, **options: Any) -> Event:
        """See the asynchronous client."""
        return self._run(self._client.revise(job, **options))

    def measure(self, measurement: Mapping[str, Any], **options: Any) -> Event:
        """See the asynchronous client."""
        return self._run(self._client.measure(measurement, **options))

    def query(self, name: str, request: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """See the asynchronous client."""
        return self._run(self._client.query(name, request, **options))

    @contextmanager
    def watch(self, job: str) -> Iterator[Iterator[Event]]:
        """See the asynchronous client: `with client.watch(job) as events`."""
        watching = self._client.watch(job)
        events = self._run(watching.__aenter__())

        async def following() -> Event | None:
            return await anext(events, None)

        try:
            yield iter(lambda: self._run(following()), None)
        finally:
            self._run(watching.__aexit__(None, None, None))

    def close(self) -> None:
        """Ends the connection."""
        self._run(self._client.close())
        self._end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _awaited(connecting: Any) -> AsyncClient:
    return await connecting
