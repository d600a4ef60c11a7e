"""How fast the coordinator is, next to its goals: `python benchmarks/coordinator.py [--quick] [--postgres] [NAME …]`.

Everything is durable and goes through a real server on this machine, except the cost of one claim, which is measured on
the operation itself so that HTTP does not hide it. Figures that are compared are measured in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from plain_http import BareClient, echo_server  # noqa: E402
from support.coordinator import CoordinatorProcess, children_of  # noqa: E402
from support.postgres import PostgresCluster, running_cluster  # noqa: E402

GIB = 2**30
#: What was measured, the figure, the goal, and whether the goal is reached.
Row = tuple[str, str, str, bool]
ROOM = {"cpus": 1000, "memory": 4096 * GIB, "gpus": 0}
decode = msgspec.json.decode


class DatabaseChoice:
    """Where the coordinators keep their rows: in a file, or in new databases of this cluster."""

    cluster: PostgresCluster | None = None

    @classmethod
    def setting(cls) -> dict[str, Any]:
        return {"database": cls.cluster.database()} if cls.cluster else {}


@contextmanager
def coordinator(**settings: Any) -> Iterator[CoordinatorProcess]:
    folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
    try:
        with CoordinatorProcess(folder, **settings, **DatabaseChoice.setting()) as process:
            yield process
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def in_processes(count: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """Call the function in this many processes at once, each with its own number, and return all results."""
    context = multiprocessing.get_context("fork")
    with context.Pool(count) as pool:
        return pool.starmap(work, [(number, *args) for number in range(count)])


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# Full cycles


def run_a_worker(number: int, url: str, token: str, batch: int) -> tuple[int, float, float]:
    """Take and finish jobs until there are none. Returns how many, and when it began and ended."""
    client, name, session = BareClient(url, token), f"w{number}", f"s{number}"
    register = {"session": session, "labels": {"runner.process": True}, "capacity": ROOM}
    assert client("PUT", f"/v1/workers/{name}", register)[0] == 200
    done, began = 0, time.monotonic()
    for claim_number in itertools.count():
        claim = {"session": session, "request_id": f"{session}-{claim_number}", "free": ROOM, "max": batch}
        status, body = client("POST", f"/v1/workers/{name}/claim", claim)
        if status == 204:
            return done, began, time.monotonic()
        given = [assignment["attempt"] for assignment in decode(body)["assignments"]]
        beat = {"session": session, "holding": [{"attempt": attempt} for attempt in given]}
        assert client("POST", f"/v1/workers/{name}/heartbeat", beat)[0] == 200
        results = [{"attempt": attempt, "outcome": "succeeded", "exit_code": 0, "seconds": 0.1} for attempt in given]
        status, body = client("POST", f"/v1/workers/{name}/finish", {"session": session, "results": results})
        assert status == 200
        assert set(decode(body)["results"].values()) == {"accepted"}
        done += len(given)
    raise AssertionError


def cycles(quick: bool) -> list[Row]:
    jobs = 8_000 if quick else 40_000
    with coordinator() as server:
        admin = BareClient(server.url, server.token("submitter"))
        tokens = [server.token("worker", f"w{number}") for number in range(8)]
        submit = {"run": "true", "sweep": {"grid": {"n": {"from": 1, "to": jobs}}}}
        assert admin("POST", "/v1/runs", submit)[0] == 201
        context = multiprocessing.get_context("fork")
        with context.Pool(8) as pool:
            parts = pool.starmap(run_a_worker, [(number, server.url, tokens[number], 64) for number in range(8)])
    seconds = max(end for _, _, end in parts) - min(began for _, began, _ in parts)
    assert sum(done for done, _, _ in parts) == jobs
    return [
        (
            "claim, heartbeat, finish; 8 workers, batches of 64",
            f"{jobs / seconds:,.0f} jobs/s",
            ">= 2,000",
            jobs / seconds >= 2000,
        )
    ]


# Single submits, compared with an echo


def run_a_client(number: int, url: str, token: str, path: str, body: Any, seconds: float) -> tuple[int, list[float]]:
    """Send the request again and again. Returns how many were answered, and how long each took."""
    client, took = BareClient(url, token), []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        status, _ = client("POST", path, body)
        assert status in (200, 201), status
        took.append(time.monotonic() - began)
    return len(took), took


def submits(quick: bool) -> list[Row]:
    seconds, rounds = (1.5, 2) if quick else (4.0, 3)
    body = {"run": "echo hello"}
    rates: dict[str, list[float]] = {"echo": [], "submit": []}
    took: list[float] = []
    with echo_server() as (echo, _), coordinator() as server:
        token = server.token("submitter")
        for _ in range(rounds):
            parts = in_processes(8, run_a_client, echo, "x", "/echo", body, seconds)
            rates["echo"].append(sum(count for count, _ in parts) / seconds)
            parts = in_processes(8, run_a_client, server.url, token, "/v1/runs", body, seconds)
            rates["submit"].append(sum(count for count, _ in parts) / seconds)
            took += [value for _, values in parts for value in values]
    echoed, submitted = statistics.median(rates["echo"]), statistics.median(rates["submit"])
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    return [
        ("bare Flask + gunicorn echo, no database, 8 clients", f"{echoed:,.0f} requests/s", "", True),
        ("single durable submits, 8 clients", f"{submitted:,.0f} submits/s", "", True),
        ("… as a share of the echo", f"{submitted / echoed:.2f}", ">= 0.70", submitted / echoed >= 0.7),
        ("… p50 / p99", f"{p50 * 1000:.1f} / {p99 * 1000:.1f} ms", "p99 <= 3 × p50", p99 <= 3 * p50),
    ]


# The cost of one claim


def claim_cost(queued: int, classes: int) -> float:
    """The median time of a claim of one job, in seconds, with this many jobs queued in this many classes."""
    from support.in_process import InProcessCoordinator

    folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
    pool = InProcessCoordinator(folder, max_jobs_per_run=1_000_000, **DatabaseChoice.setting())
    each = queued // classes
    for class_number in range(classes):
        for part in range(0, each, 100_000):
            size = min(100_000, each - part)
            pool.submit(resources={"memory": f"{class_number + 16}MiB"}, sweep={"grid": {"n": {"from": 1, "to": size}}})
    worker = pool.worker(memory=1024 * GIB, cpus=10**4)
    took = []
    for number in range(300):
        began = time.perf_counter()
        assert len(worker.claim(1)) == 1
        took.append(time.perf_counter() - began)
        if number == 50:  # the first claims only warm up
            took.clear()
    pool.stop()
    shutil.rmtree(folder)
    return statistics.median(took)


def claims(quick: bool) -> list[Row]:
    many = 100_000 if quick else 1_000_000
    rows: list[Row] = []
    for classes in (1, 200):
        few, full = claim_cost(1_000, classes), claim_cost(many, classes)
        ratio = full / few
        rows.append(
            (
                f"one claim, {classes} classes: 1,000 / {many:,} queued",
                f"{few * 1000:.2f} / {full * 1000:.2f} ms, × {ratio:.2f}",
                "<= 1.5",
                ratio <= 1.5,
            )
        )
    return rows


# A large sweep, and the memory of a long queue


def resident(server: CoordinatorProcess) -> int:
    """The memory of the server's processes together. Pages that they share are counted once."""
    assert server.process is not None
    total = 0
    for pid in [server.process.pid, *children_of(server.process.pid)]:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def sweeps(quick: bool) -> list[Row]:
    count = 2 if quick else 10
    took = []
    with coordinator() as server:
        client = BareClient(server.url, server.token("submitter"))
        body = {
            "run": "python sim.py",
            "sweep": {"grid": {"seed": {"from": 1, "to": 1000}, "x": {"from": 1, "to": 100}}},
        }
        for _ in range(count):
            began = time.monotonic()
            assert client("POST", "/v1/runs", body)[0] == 201
            took.append(time.monotonic() - began)
        memory = resident(server) / 2**20
    median = statistics.median(took)
    return [
        ("submit a sweep of 100,000 jobs", f"{median:.2f} s (worst {max(took):.2f})", "<= 3 s", median <= 3),
        (
            f"coordinator memory with {count * 100_000:,} queued jobs",
            f"{memory:.0f} MiB",
            "< 150 MB",
            memory < 150e6 / 2**20,
        ),
    ]


# From submit to the answer of a waiting claim


def wakeup(quick: bool) -> list[Row]:
    count = 50 if quick else 200
    context = multiprocessing.get_context("fork")
    with coordinator() as server:
        client = BareClient(server.url, server.token("submitter"))
        token = server.token("worker", "w0")
        ours, theirs = context.Pipe()
        waiter = context.Process(target=wait_for_jobs, args=(server.url, token, count, theirs))
        waiter.start()
        took = []
        for _ in range(count):
            assert ours.recv() == "waiting"
            time.sleep(0.02)  # let the long poll reach the server
            began = time.monotonic()
            assert client("POST", "/v1/runs", {"run": "true"})[0] == 201
            took.append(ours.recv() - began)
        waiter.join()
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    return [
        (
            "submit to the answer of a waiting claim, p50 / p99",
            f"{p50 * 1000:.1f} / {p99 * 1000:.1f} ms",
            "p50 <= 10 ms",
            p50 <= 0.01,
        )
    ]


def wait_for_jobs(url: str, token: str, count: int, pipe: Any) -> None:
    """Wait for a job this many times. Say "waiting" before each claim, and when its answer came after it."""
    client = BareClient(url, token)
    client("PUT", "/v1/workers/w0", {"session": "s", "labels": {"runner.process": True}, "capacity": ROOM})
    for number in range(count):
        pipe.send("waiting")
        claim = {"session": "s", "request_id": f"r{number}", "free": ROOM, "max": 1, "wait_seconds": 30}
        status, _ = client("POST", "/v1/workers/w0/claim", claim)
        assert status == 200
        pipe.send(time.monotonic())


BENCHMARKS = {"cycles": cycles, "submits": submits, "claims": claims, "sweeps": sweeps, "wakeup": wakeup}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="the benchmarks to run; all by default")
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    given = parser.parse_args()
    with ExitStack() as stack:
        if given.postgres:
            DatabaseChoice.cluster = stack.enter_context(running_cluster())
        run_benchmarks(given.names or list(BENCHMARKS), given.quick)


def run_benchmarks(names: list[str], quick: bool) -> None:
    database = "PostgreSQL" if DatabaseChoice.cluster else "SQLite"
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {database}\n")
    print(f"{'what':<58} {'measured':<28} {'goal':<16}")
    for name in names:
        for what, measured, goal, reached in BENCHMARKS[name](quick):
            print(
                f"{what:<58} {measured:<28} {goal:<16} {'' if not goal else 'ok' if reached else 'MISSED'}", flush=True
            )
    print(f"\npeak memory of the benchmark itself: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
