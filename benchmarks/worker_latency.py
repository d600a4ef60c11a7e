"""The time from submit to the start of the process, on an idle worker that runs plain processes.

    python benchmarks/worker_latency.py [--jobs 40]

The time is taken just before the request is sent. The process itself records when it started.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess


def stamp(path: Path) -> list[str]:
    """A program that writes the time at which it runs, in nanoseconds, as quickly as a program can."""
    return ["/bin/sh", "-c", f"date +%s%N > {path}.tmp; mv {path}.tmp {path}"]


def bare(folder: Path, jobs: int) -> list[float]:
    found = []
    for number in range(jobs):
        path = folder / f"bare-{number}"
        began = time.time_ns()
        subprocess.run(stamp(path), check=True)
        found.append((int(path.read_text()) - began) / 1e6)
    return found


def through_pool(pool: Pool, folder: Path, jobs: int) -> list[float]:
    found = []
    for number in range(jobs):
        path = folder / f"job-{number}"
        began = time.time_ns()
        run = pool.submit(run=stamp(path))
        wait_until(path.exists, 20, every=0.001)
        found.append((int(path.read_text()) - began) / 1e6)
        pool.until(run)
        time.sleep(0.03)  # until the next claim is waiting
    return found


def row(name: str, values: list[float]) -> str:
    values = sorted(values)
    return f"{name:<28} {statistics.median(values):>8.1f} {values[int(len(values) * 0.9)]:>8.1f} {values[-1]:>8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)  # a root worker runs the programs as other users, and they write their times here
        with CoordinatorProcess(folder) as coordinator, WorkerProcess(folder, coordinator) as worker:
            wait_until(lambda: "is registered" in worker.said())
            pool = Pool(coordinator)
            through_pool(pool, folder, 3)  # warms up
            for each in folder.glob("job-*"):
                each.unlink()
            print("milliseconds until the process runs           p50      p90      max")
            print(row("bare subprocess.run", bare(folder, options.jobs)))
            print(row("submit, claim, start", through_pool(pool, folder, options.jobs)))
            print("the goal is a p50 of at most 15 ms")


if __name__ == "__main__":
    main()
