"""The time until the processor is free after the owner's `pause --now`.

    python benchmarks/worker_pause.py [--pauses 50]

Two busy jobs run, as processes and then in containers. The time is taken just before the worker is told. The processor
is free when the kernel's counters of the jobs' processor time stand still. The command itself needs time to start; that
time is shown apart.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_worker import control
from support.coordinator import CoordinatorProcess, clean_environment
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

#: The jobs are busy shells with a name of their own.
BUSY = "exec sh -c 'while :; do :; done' busy-job-of-the-benchmark"
#: The processor is free if the counters have stood still for this long.
STILL_SECONDS = 0.05


def busy_processes() -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if (each.info["cmdline"] or [""])[-1] == "busy-job-of-the-benchmark"]


def used(pids: list[int]) -> list[int]:
    """The nanoseconds of processor time of each process."""
    return [int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids]


def until_free(worker: WorkerProcess, pids: list[int]) -> float:
    """Pause, and return after how many milliseconds the processes used no more processor time."""
    words = {"command": "pause", "seconds": None, "now": True}
    asking = threading.Thread(target=control.ask, args=(worker.state, words))
    last, began = used(pids), time.perf_counter()
    asking.start()
    changed = began
    while asking.is_alive() or time.perf_counter() - changed < STILL_SECONDS:
        now = used(pids)
        if now != last:
            last, changed = now, time.perf_counter()
        time.sleep(0.0005)
    return (changed - began) * 1000


def measure(pool: Pool, worker: WorkerProcess, pauses: int, **body: Any) -> list[float]:
    runs = [pool.submit(run=BUSY, resources={"cpus": 1, "memory": "64MiB"}, **body) for _ in range(2)]
    wait_until(lambda: len(busy_processes()) == 2, 120)
    pids, found = busy_processes(), []
    for _ in range(pauses):
        found.append(until_free(worker, pids))
        control.ask(worker.state, {"command": "resume"})
        before = used(pids)
        wait_until(lambda: all(map(int.__gt__, used(pids), before)), 60)  # noqa: B023
    for run in runs:
        pool.admin.post(f"/v1/jobs/{run}.1/cancel", json={})
    wait_until(lambda: not busy_processes(), 60)
    return found


def row(name: str, values: list[float]) -> str:
    values = sorted(values)
    p95 = values[int(len(values) * 0.95)]
    return f"{name:<44} {statistics.median(values):>6.0f} ms {p95:>6.0f} ms {values[-1]:>6.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pauses", type=int, default=50)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        podman = Podman(folder).start_service()
        stack.callback(podman.stop_service)
        coordinator = stack.enter_context(CoordinatorProcess(folder))
        worker = WorkerProcess(
            folder, coordinator, runner="both", podman_socket=str(podman.socket), priority="idle", kill_grace="1s",
            env={"CONTAINERS_CONF": str(CONF)},
        )  # fmt: skip
        stack.enter_context(worker)
        wait_until(worker.answers, 60)
        pool, command = Pool(coordinator), [sys.executable, "-m", "deborgen_worker", "--version"]
        starts = []
        for _ in range(10):
            began = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True, env=clean_environment())
            starts.append((time.perf_counter() - began) * 1000)
        print(f"{'until the processor is free':<44} {'p50':>9} {'p95':>9} {'max':>9}")
        print(row("two jobs as processes", measure(pool, worker, options.pauses)))
        print(row("two jobs in containers", measure(pool, worker, options.pauses, image=IMAGE)))
        print(row("besides: the start of the owner's command", starts))
        print("the goal is a p95 of at most 100 ms on a quiet machine")


if __name__ == "__main__":
    main()
