"""The client: one NATS connection of a tenant.

A message is published with a reply subject; the broker's acknowledgement means that it is stored.
What became of it comes on the status subjects, to which the client listens before it publishes.
If the connection is lost in between, the message is sent again: the job's name makes that safe.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import nats
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, MaxPayloadError, NoServersError

from .codec import CONTENT_TYPES, Encoding, Event, Submission, encode, event
from .errors import Denied, Refused, TimedOut, Unavailable

Wait = Literal["accepted", "decided", "started", "ended"]

_NAME = re.compile(r"[a-z0-9-]{1,63}\Z")
_DENIED = re.compile(r"permissions violation for (?:publish|subscription) to \"([^\"]+)\"", re.I)
# Decisions that came before the acknowledgement of their message, or that nobody waits for.
_RECENT = 20_000
# What may become of a message.
_DECISIONS = ("job.*", "service.measured", "submissions.rate_limited")
# How long a decision may be silent before it is asked for: a status message can be lost.
_SILENCE_S = 2.0
# Messages that are on their way to the broker at once: more would wait there.
_AT_ONCE = 256
# Bytes of a message that a tenant's account may send. A broker closes the connection of what is longer, and
# does not say before that an account may send less than others.
_MAX_MESSAGE = 2 << 20
# The broker's words where as many of the tenant's messages wait to be recorded as may, and how long
# until one is sent again.
_FULL = "maximum messages per subject"
_FULL_PAUSE_S = 0.05
# Until a question is asked again, where as many of the tenant's wait as may.
_BUSY_PAUSE_S = 0.1


def _too_large(payload: bytes, most: int) -> Refused:
    return Refused("too_large", f"the document has {len(payload)} bytes, more than the {most} that the broker takes")


class Client:
    """A tenant's connection. Use `await Client.connect(...)`, or `async with Client.connect(...)`."""

    def __init__(self, tenant: str, prefix: str, encoding: Encoding, timeout: float) -> None:
        self.tenant, self._prefix, self._encoding, self._timeout = tenant, prefix, encoding, timeout
        self._nc = nats.NATS()
        self._inbox = ""
        self._token = 0
        self._pending: dict[str, tuple[str, asyncio.Future[Msg | None]]] = {}
        self._deciding: dict[int, asyncio.Future[Event]] = {}
        self._recent: OrderedDict[int, Msg] = OrderedDict()
        self._listening: asyncio.Future[None] | None = None
        self._denied: set[str] = set()
        self._publishing = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def connect(
        cls,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        tenant: str = "default",
        prefix: str = "dormouse",
        encoding: Encoding = "json",
        timeout: float = 10.0,
        **options: Any,
    ) -> _Connecting:
        """Connects. `options` are those of nats-py, such as `nkeys_seed`, `user_credentials`, `tls`."""
        return _Connecting(cls(tenant, prefix, encoding, timeout), servers, options)

    async def _open(self, servers: str | list[str], options: dict[str, Any]) -> None:
        async def on_error(error: Exception) -> None:
            self._on_error(error)

        async def on_reconnected() -> None:
            for _, waiting in list(self._pending.values()):
                if not waiting.done():
                    waiting.set_result(None)

        options = {"connect_timeout": 5, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.2, **options}
        try:
            await self._nc.connect(servers, error_cb=on_error, reconnected_cb=on_reconnected, **options)
        except (NoServersError, OSError, asyncio.TimeoutError) as error:
            raise Unavailable(f"no broker at {servers}: {error}") from error
        self._inbox = self._nc.new_inbox()
        await self._nc.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def close(self) -> None:
        """Ends the connection."""
        await self._nc.close()

    # What people call

    async def submit(
        self,
        job: Mapping[str, Any],
        wait: Wait = "decided",
        *,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Submission:
        """Submits a job document (see `types.JobDocument`).

        `wait` says for what: `accepted` (the broker has stored it), `decided` (admitted, or
        `Refused` is raised), `started` (its containers run), `ended`. A document without a name is
        given one. Sending the same document under the same name again is safe, and succeeds.
        """
        document = dict(job)
        name = document.get("name")
        if name is None:
            name = document["name"] = f"job-{secrets.token_hex(8)}"
        payload = encode(document, self._encoding)
        if wait in ("accepted", "decided") or not _NAME.match(str(name)):
            return await self._submit(name, payload, wait, timeout, traceparent)
        limit = asyncio.get_running_loop().time() + timeout if timeout is not None else None
        async with self._events(str(name)) as events:
            submission = await self._submit(name, payload, "decided", timeout, traceparent)
            return await self._follow(submission, events, wait, limit)

    async def cancel(self, job: str, *, timeout: float | None = None, traceparent: str | None = None) -> Event:
        """Ends a job: `job.cancel_requested`, or `job.cancelled` where it was still queued."""
        return await self._change("cancel", {"job": job}, timeout, traceparent)

    async def revise(
        self,
        job: str,
        *,
        weight: int | None = None,
        containers: Mapping[str, int] | None = None,
        priority: int | None = None,
        held: bool | None = None,
        force: bool | None = None,
        time_limit_s: int | None = None,
        queue_limit_s: int | None = None,
        gpu_limit: float | str | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Event:
        """Changes what is given of a job: `job.revised`.

        `held` puts it on hold (`True`) or lets it go (`False`); one that runs without a checkpoint
        begins again, which `force` allows. `gpu_limit` is the most of a GPU, of a job with a part of
        one, and holds for running containers at once.
        """
        changes = {
            "job": job,
            "weight": weight,
            "containers": containers,
            "priority": priority,
            "held": held,
            "force": force,
            "time_limit_s": time_limit_s,
            "queue_limit_s": queue_limit_s,
            "gpu_limit": gpu_limit,
        }
        document = {key: value for key, value in changes.items() if value is not None}
        return await self._change("revise", document, timeout, traceparent)

    async def measure(
        self, measurement: Mapping[str, Any], *, timeout: float | None = None, traceparent: str | None = None
    ) -> Event:
        """Says what clients of a service saw at a proxy of your own (see `measured.MeasuredDocument`).

        `service.measured`, or `Refused` is raised. One that has timed out may count or not: measure on.
        """
        return await self._change("measured", measurement, timeout, traceparent)

    @asynccontextmanager
    async def watch(self, job: str) -> AsyncIterator[AsyncIterator[Event]]:
        """The job's events from now on, up to its end: `async with client.watch(job) as events`.

        Inside, the client listens already: what is submitted there is seen from its admission.
        """
        async with self._events(job) as events:

            async def to_the_end() -> AsyncIterator[Event]:
                async for found in events:
                    yield found
                    if found.is_end:
                        return

            yield to_the_end()

    async def query(
        self, name: str, request: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Asks about this tenant: `job`, `jobs`, `ledger`, `tenant`, `timeline`."""
        subject = f"{self._prefix}.tenant.{self.tenant}.api.{name}"
        payload = b"" if request is None else json.dumps(request).encode()
        loop = asyncio.get_running_loop()
        limit = loop.time() + (self._timeout if timeout is None else timeout)
        while True:
            answer = await self._ask(subject, payload, {}, timeout)
            refused = (answer.headers or {}).get("Nats-Service-Error")
            if refused is None:
                return json.loads(answer.data)
            code, _, reason = refused.partition(": ")
            if code != "busy" or loop.time() >= limit:
                raise Refused(code, reason)
            await asyncio.sleep(_BUSY_PAUSE_S)

    # Messages and decisions

    async def _submit(
        self, name: Any, payload: bytes, wait: Wait, timeout: float | None, traceparent: str | None
    ) -> Submission:
        job, sha256 = f"{self.tenant}/{name}", hashlib.sha256(payload).hexdigest()
        if wait == "accepted":
            sequence = await self._publish("submit", payload, timeout, traceparent)
            return Submission(job, sequence, "stored", sha256=sha256)
        await self._listen()
        sequence = await self._publish("submit", payload, timeout, traceparent)
        try:
            decision = await self._decision(sequence, timeout, job, sha256)
        except Refused as refused:
            known = await self._known(job, sha256) if refused.code == "name_in_use" else None
            if known is None:
                raise
            return known
        if isinstance(decision, Submission):
            return decision
        return Submission(job, sequence, "admitted", sha256=sha256)

    async def _change(
        self, verb: str, document: Mapping[str, Any], timeout: float | None, traceparent: str | None
    ) -> Event:
        await self._listen()
        sequence = await self._publish(verb, encode(document, self._encoding), timeout, traceparent)
        decision = await self._decision(sequence, timeout)
        assert isinstance(decision, Event)
        return decision

    async def _publish(self, verb: str, payload: bytes, timeout: float | None, traceparent: str | None) -> int:
        if len(payload) > _MAX_MESSAGE:
            raise _too_large(payload, _MAX_MESSAGE)
        headers = {"Content-Type": CONTENT_TYPES[self._encoding]}
        if traceparent is not None:
            headers["traceparent"] = traceparent
        subject = f"{self._prefix}.in.{self.tenant}.{verb}"
        limit = asyncio.get_running_loop().time() + (self._timeout if timeout is None else timeout)
        async with self._publishing:
            while True:
                try:
                    answer = await self._ask(subject, payload, headers, timeout)
                except MaxPayloadError:
                    raise _too_large(payload, self._nc.max_payload) from None
                ack = json.loads(answer.data)
                if "error" not in ack:
                    return int(ack["seq"])
                why = ack["error"].get("description", str(ack["error"]))
                if _FULL not in why or asyncio.get_running_loop().time() >= limit:
                    raise Unavailable(f"the broker has not stored it: {why}")
                await asyncio.sleep(_FULL_PAUSE_S)

    async def _decision(
        self, sequence: int, timeout: float | None, job: str | None = None, sha256: str = ""
    ) -> Event | Submission:
        loop = asyncio.get_running_loop()
        recent = self._recent.pop(sequence, None)
        if recent is not None:
            return self._taken(event(recent.data, recent.headers))
        decided = self._deciding[sequence] = loop.create_future()
        limit = loop.time() + (self._timeout if timeout is None else timeout)
        try:
            while True:
                left = limit - loop.time()
                done, _ = await asyncio.wait([decided], timeout=max(min(left, _SILENCE_S), 0))
                if done:
                    return self._taken(decided.result())
                known = await self._known(job, sha256, sequence) if job is not None else None
                if known is not None:
                    return known
                if loop.time() >= limit:
                    what = f"message {sequence} is stored, but nothing has decided on it yet: is admission running?"
                    raise TimedOut(what, stored=True)
        finally:
            del self._deciding[sequence]

    @staticmethod
    def _taken(decision: Event) -> Event:
        if decision.type == "job.refused":
            data = decision.data
            raise Refused(data["code"], data["reason"], data["ingress_sequence"])
        if decision.type == "submissions.rate_limited":
            what = "measurements" if decision.data.get("verb") else "messages"
            raise Refused("too_fast", f"more than {decision.data['max_rate']} {what} a second; send fewer")
        return decision

    async def _known(self, job: str, sha256: str, sequence: int = 0) -> Submission | None:
        """What the cluster knows of a submission of which nothing is heard."""
        try:
            row = await self.query("job", {"job": job})
            if row["sha256"] == sha256:
                existing = row["ingress_sequence"] != sequence
                return Submission(job, row["ingress_sequence"], "admitted", existing, sha256=sha256)
        except (Refused, Unavailable, TimedOut):
            pass
        return None

    async def _follow(self, submission: Submission, events: AsyncIterator[Event], wait: Wait, limit: float | None) -> Submission:
        """Waits for the start or the end; asks now and then, as a status message can be lost."""
        loop = asyncio.get_running_loop()
        following = asyncio.ensure_future(anext(events))
        silent = submission.existing
        try:
            while True:
                if not silent:
                    left = _SILENCE_S if limit is None else min(limit - loop.time(), _SILENCE_S)
                    done, _ = await asyncio.wait([following], timeout=max(left, 0))
                    if done:
                        found = following.result()
                        if found.is_end:
                            state, reason = found.type.removeprefix("job."), found.data.get("reason", "")
                            return _with(submission, state, reason)
                        if wait == "started" and found.type == "partition.started":
                            return _with(submission, "started")
                        following = asyncio.ensure_future(anext(events))
                        continue
                silent = False
                try:
                    row = await self.query("job", {"job": submission.job})
                except (Unavailable, TimedOut):
                    row = {"phase": ""}
                if row["phase"] in ("completed", "failed", "cancelled"):
                    return _with(submission, row["phase"], row["reason"])
                if wait == "started" and row.get("first_started_at") is not None:
                    return _with(submission, "started")
                if limit is not None and loop.time() >= limit:
                    raise TimedOut(f"{submission.job} has not {wait} yet", stored=True)
        finally:
            following.cancel()

    # The connection

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str], timeout: float | None) -> Msg:
        loop = asyncio.get_running_loop()
        limit = loop.time() + (self._timeout if timeout is None else timeout)
        while True:
            self._token += 1
            token = f"{self._inbox}.{self._token}"
            answered: asyncio.Future[Msg | None] = loop.create_future()
            self._pending[token] = (subject, answered)
            # A denial has no answer: it is reported on the connection, after which this is set.
            timer = loop.call_later(max(limit - loop.time(), 0), _expire, answered)
            try:
                await self._nc.publish(subject, payload, token, headers or None)
                answer = await answered
            except asyncio.TimeoutError:
                raise TimedOut(f"no answer on {subject} in time") from None
            except ConnectionClosedError:
                raise Unavailable("the connection is closed") from None
            finally:
                timer.cancel()
                del self._pending[token]
            if answer is None:
                # The connection was lost meanwhile: nobody knows whether it arrived.
                continue
            if (answer.headers or {}).get("Status") == "503":
                raise Unavailable(f"nothing answers on {subject}: is `dormouse up` running, and under this prefix?")
            return answer

    async def _on_answer(self, message: Msg) -> None:
        _, waiting = self._pending.get(message.subject, ("", None))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def _on_error(self, error: Exception) -> None:
        denied = _DENIED.search(str(error))
        if denied is None:
            return
        # nats-py reports it in small letters.
        subject = denied.group(1).lower()
        self._denied.add(subject)
        for asked, waiting in list(self._pending.values()):
            if asked.lower() == subject and not waiting.done():
                waiting.set_exception(Denied(asked))

    async def _listen(self) -> None:
        """Listens to what becomes of this tenant's messages, once for all."""
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._subscribe_decisions())
        try:
            await asyncio.shield(self._listening)
        except BaseException:
            if self._listening is not None and self._listening.done():
                # Not for good: the next message tries again.
                self._listening = None
            raise

    async def _subscribe_decisions(self) -> None:
        subjects = [f"{self._prefix}.status.{self.tenant}._in.*.{decision}" for decision in _DECISIONS]
        for subject in subjects:
            await self._nc.subscribe(subject, cb=self._on_decision)
        await self._nc.flush()
        for subject in subjects:
            if subject.lower() in self._denied:
                raise Denied(subject)

    async def _on_decision(self, message: Msg) -> None:
        sequence = int(message.subject.rsplit(".", 3)[1])
        waiting = self._deciding.get(sequence)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(event(message.data, message.headers))
            return
        self._recent[sequence] = message
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    @asynccontextmanager
    async def _events(self, job: str) -> AsyncIterator[AsyncIterator[Event]]:
        name = job.removeprefix(f"{self.tenant}/")
        if not _NAME.match(name):
            raise Refused("bad_name", f"job name {name!r} is not 1 to 63 of a-z, 0-9 and '-'")
        subject = f"{self._prefix}.status.{self.tenant}.{name}.>"
        subscription = await self._nc.subscribe(subject)
        await self._nc.flush()
        if subject.lower() in self._denied:
            raise Denied(subject)

        async def events() -> AsyncIterator[Event]:
            last = 0
            async for message in subscription.messages:
                found = event(message.data, message.headers)
                # An event may come twice when another copy of the service shows them.
                if found.sequence > last:
                    last = found.sequence
                    yield found

        try:
            yield events()
        finally:
            if not self._nc.is_closed:
                await subscription.unsubscribe()


def _expire(waiting: asyncio.Future[Any]) -> None:
    if not waiting.done():
        waiting.set_exception(asyncio.TimeoutError())


def _with(submission: Submission, state: str, reason: str = "") -> Submission:
    return Submission(
        submission.job, submission.ingress_sequence, state, submission.existing, reason, submission.sha256
    )


class _Connecting:
    """Lets `Client.connect(...)` be awaited or entered."""

    def __init__(self, client: Client, servers: str | list[str], options: dict[str, Any]) -> None:
        self._client, self._servers, self._options = client, servers, options

    def __await__(self) -> Any:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Client:
        await self._client._open(self._servers, self._options)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
