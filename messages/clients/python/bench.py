"""Submissions a second, and the time of a decision: bench.py URL TENANT [COUNT]."""

import asyncio
import statistics
import sys
import time

from dormouse_client import Client


def job(name: str) -> dict[str, object]:
    return {"name": name, "command": {"start": ["true"]}, "demand": {"cpu": 1000, "memory": "1Gi"}}


async def main() -> None:
    url, tenant, count = sys.argv[1], sys.argv[2], int((sys.argv + ["10000"])[3])
    async with Client.connect(url, tenant=tenant, timeout=60) as client:
        decided = []
        # One after the other: a twentieth.
        for index in range(count // 20):
            began = time.perf_counter()
            try:
                await client.submit(job(f"one-{index}"))
            except Exception as error:  # larger than any node: refused, which is a decision too
                assert getattr(error, "code", "") == "larger_than_any_node", error
            decided.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        await asyncio.gather(*(client.submit(job(f"many-{index}"), "accepted") for index in range(count)))
        took = time.perf_counter() - began
    print(f"python: {count / took:,.0f} submissions/s acknowledged; decision in {statistics.median(decided):.2f} ms (median of {len(decided)})")


asyncio.run(main())
