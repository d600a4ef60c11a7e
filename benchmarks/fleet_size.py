"""How one coordinator serves many workers: `python benchmarks/fleet_size.py [--postgres] [--sweep JOBS] [WORKERS …]`.

The workers are simulated in this process, over real HTTP: each has a connection with a claim that waits, and another
one for its heartbeats. Every worker has a token of its own. The processor time of the simulation competes with
the coordinator's, so the figures are worse than with the same number of real machines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.coordinator import CoordinatorProcess, family_of  # noqa: E402
from support.postgres import running_cluster  # noqa: E402

ROOM = {"cpus": 16, "memory": 2**36, "gpus": 0, "disk": 2**36}
LABELS = {"runner.process": True}
HEARTBEAT_SECONDS = 10.0
SINGLE_JOBS, LABELLED_JOBS, IDLE_SECONDS = 100, 20, 10.0
#: Workers join at this rate.
JOINS_AT_ONCE = 50


class Line:
    """One connection to the coordinator."""

    def __init__(self, address: str, token: str, count: list[int]) -> None:
        self._host, _, port = address.removeprefix("http://").rpartition(":")
        self._port, self._token, self._count = int(port), token, count
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self._count[0] += 1
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: pool\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
        answer = await reader.readexactly(length) if length else b""
        if "connection: close" in head:
            writer.close()
            self._streams = None
        retry_after = head.partition("retry-after:")[2].partition("\r\n")[0]
        return status, json.loads(answer) if answer else {"retry_after": float(retry_after or 0)}


class Fleet:
    """All workers. `claimed` has the moment at which each job reached its worker."""

    def __init__(self, url: str, tokens: list[str]) -> None:
        self.url, self.tokens = url, tokens
        self.requests = [0]
        self.claimed: dict[str, float] = {}
        self.finished = 0
        self._joining = asyncio.Semaphore(JOINS_AT_ONCE)
        self.joined = 0

    async def work(self, number: int) -> None:
        name, session = f"w{number}", f"s{number}"
        waiting, other = (Line(self.url, self.tokens[number], self.requests) for _ in range(2))
        labels = LABELS | ({"only": "here"} if number == 0 else {})
        register = {"session": session, "labels": labels, "capacity": ROOM}
        async with self._joining:
            status, _ = await other.ask("PUT", f"/v1/workers/{name}", register)
            assert status == 200, status
        self.joined += 1
        beating = asyncio.create_task(self._beat(other, name, session, number))
        for claim in range(10**9):
            body = {"session": session, "request_id": f"{session}-{claim}", "free": ROOM, "max": 16, "wait_seconds": 20}
            status, answer = await waiting.ask("POST", f"/v1/workers/{name}/claim", body)
            if status != 200:
                await asyncio.sleep(answer.get("retry_after", 1.0))
                continue
            now = time.monotonic()
            given = answer["assignments"]
            self.claimed.update((each["job"], now) for each in given)
            results = [{"attempt": a["attempt"], "outcome": "succeeded", "exit_code": 0, "seconds": 0.1} for a in given]
            status, _ = await waiting.ask(
                "POST", f"/v1/workers/{name}/finish", {"session": session, "results": results}
            )
            assert status == 200, status
            self.finished += len(given)
        beating.cancel()

    async def _beat(self, line: Line, name: str, session: str, number: int) -> None:
        await asyncio.sleep(HEARTBEAT_SECONDS * (number % 97) / 97)
        while True:
            await line.ask("POST", f"/v1/workers/{name}/heartbeat", {"session": session, "holding": []})
            await asyncio.sleep(HEARTBEAT_SECONDS)


def used_by(server: CoordinatorProcess) -> tuple[float, float]:
    """The processor seconds that the coordinator has used, and its memory in MiB."""
    assert server.process is not None
    seconds = memory = 0.0
    for pid in family_of(server.process.pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return seconds, memory


async def until(condition: Any, what: str, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.01)


def figures(values: list[float]) -> str:
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99)]
    return f"p50 {at[0]:,.0f} ms, p99 {at[1]:,.0f} ms"


async def latencies(fleet: Fleet, line: Line, count: int, **job: Any) -> list[float]:
    """Submit jobs one after the other; the seconds until each is at its worker."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        status, run = await line.ask("POST", "/v1/runs", {"run": "true", **job})
        assert status == 201, run
        name = f"{run['id']}.1"
        await until(lambda: name in fleet.claimed, f"job {name} to be claimed")  # noqa: B023
        took.append(fleet.claimed[name] - began)
        await asyncio.sleep(0.02)
    return took


async def measure(server: CoordinatorProcess, count: int, sweep: int) -> None:
    admin = Line(server.url, server.token("admin"), [0])
    tokens = []
    for number in range(count):
        _, made = await admin.ask("POST", "/v1/tokens", {"role": "worker", "name": f"w{number}"})
        tokens.append(made["token"])
    fleet = Fleet(server.url, tokens)
    workers = [asyncio.create_task(fleet.work(number)) for number in range(count)]
    await until(lambda: fleet.joined == count or any(worker.done() for worker in workers), "the workers to join")
    await asyncio.sleep(HEARTBEAT_SECONDS)
    before, asked = used_by(server)[0], fleet.requests[0]
    await asyncio.sleep(IDLE_SECONDS)
    cpu, memory = used_by(server)
    rate = (fleet.requests[0] - asked) / IDLE_SECONDS
    print(
        f"  idle: {rate:,.0f} requests/s, {100 * (cpu - before) / IDLE_SECONDS:.0f} % of a processor, {memory:,.0f} MiB"
    )
    print(f"  a job that anyone can take, submit to claim: {figures(await latencies(fleet, admin, SINGLE_JOBS))}")
    only = await latencies(fleet, admin, LABELLED_JOBS, requires={"only": "here"})
    print(f"  a job that one worker alone can take: {figures(only)}, worst {max(only) * 1000:,.0f} ms")
    done, began, before = fleet.finished, time.monotonic(), used_by(server)[0]
    await admin.ask("POST", "/v1/runs", {"run": "true", "sweep": {"grid": {"n": {"from": 1, "to": sweep}}}})
    await until(lambda: fleet.finished - done >= sweep, "the sweep to end")
    took, (cpu, memory) = time.monotonic() - began, used_by(server)
    busy = 100 * (cpu - before) / took
    print(
        f"  a sweep of {sweep:,} jobs: {sweep / took:,.0f} jobs/s, {busy:.0f} % of a processor, {memory:,.0f} MiB",
        flush=True,
    )
    for worker in workers:
        worker.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workers", nargs="*", type=int, default=[100, 1000, 5000])
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    parser.add_argument("--sweep", type=int, default=100_000, help="how many jobs the sweep has")
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for count in given.workers:
        folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
        settings: dict[str, Any] = {
            "max_waiters": count + 10,
            "threads": count + 100,
            "max_connections": 4 * count + 400,
        }
        try:
            if given.postgres:
                with running_cluster() as cluster:
                    run(folder, cluster.database(), settings, count, given.sweep)
            else:
                run(folder, "", settings, count, given.sweep)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, database: str, settings: dict[str, Any], count: int, sweep: int) -> None:
    print(f"{count:,} workers on {'PostgreSQL' if database else 'SQLite'}", flush=True)
    with CoordinatorProcess(folder, database, heartbeat_seconds=HEARTBEAT_SECONDS, **settings) as server:
        asyncio.run(measure(server, count, sweep))


if __name__ == "__main__":
    main()
