"""The driver of ../conformance.json for this client: one line of JSON a case."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from dormouse_client import Client, Denied, DormouseError, Event, Refused, TimedOut


def value(written: Any, tenant: str) -> Any:
    """A document of the suite, with its special values."""
    if isinstance(written, list):
        return [value(item, tenant) for item in written]
    if not isinstance(written, dict):
        return written
    match list(written.items()):
        case [("$u64", text)]:
            return int(text)
        case [("$float", text)]:
            return float(text)
        case [("$repeat", [text, times])]:
            return text * times
        case [("$tenant", name)]:
            return f"{tenant}/{name}" if name else tenant
    return {key: value(item, tenant) for key, item in written.items()}


class Driver:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.clients: dict[tuple[Any, ...], Client] = {}

    async def client(self, broker: str, tenant: str, encoding: str, number: int) -> Client:
        key = (broker, tenant, encoding, number)
        if key not in self.clients:
            url = getattr(self.arguments, broker)
            self.clients[key] = await Client.connect(url, tenant=tenant, encoding=encoding)  # type: ignore[arg-type]
        return self.clients[key]

    async def step(self, case: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
        tenant = case.get("tenant", self.arguments.tenant)
        client = await self.client(
            case.get("broker", "main"), tenant, step.get("encoding", "json"), step.get("client", 1)
        )
        options: dict[str, Any] = {}
        if "timeout_ms" in step:
            options["timeout"] = step["timeout_ms"] / 1000
        if "submit" in step:
            done = await client.submit(value(step["submit"], tenant), step.get("wait", "decided"), **options)
            return {"state": done.state, "existing": done.existing, "sha256": done.sha256}
        if "cancel" in step:
            return changed(await client.cancel(step["cancel"], **options))
        if "revise" in step:
            return changed(await client.revise(**step["revise"], **options))
        if "measure" in step:
            return changed(await client.measure(value(step["measure"], tenant), **options))
        if "query" in step:
            return await client.query(step["query"], step.get("request"), **options)
        document = value(step["watched"], tenant)
        async with client.watch(document["name"]) as events:
            await client.submit(document, traceparent=step["traceparent"])
            seen = [event async for event in events]
        return {"types": [event.type for event in seen], "trace": (seen[0].traceparent or "").split("-")[1]}

    async def run(self, case: dict[str, Any]) -> dict[str, Any]:
        try:
            for step in case["steps"]:
                result = await self.step(case, step)
            return {"case": case["name"], "ok": result}
        except DormouseError as error:
            said: dict[str, Any] = {"class": type(error).__name__}
            if isinstance(error, Refused):
                said["code"] = error.code
            if isinstance(error, TimedOut):
                said["stored"] = error.stored
            if isinstance(error, Denied):
                said["subject"] = error.subject
            return {"case": case["name"], "error": said}


def changed(event: Event) -> dict[str, Any]:
    return {"type": event.type, "data": event.data}


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--main", "--restricted", "--cutting", "--tenant", "--cases"):
        parser.add_argument(name, required=True)
    driver = Driver(parser.parse_args())
    with open(driver.arguments.cases, encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    for case in cases:
        print(json.dumps(await driver.run(case)), flush=True)
    for client in driver.clients.values():
        await client.close()


asyncio.run(main())
