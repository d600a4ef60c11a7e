"""Jobs of `/bin/true` per second, through a real coordinator and a real worker, compared with a loop that spawns it.

python benchmarks/worker_throughput.py [--jobs 1000] [--slots 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_worker import control
from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess


def bare_loop(jobs: int, slots: int) -> float:
    """One Python loop that keeps as many processes running as there are slots, and does nothing else."""
    running: dict[int, subprocess.Popen[bytes]] = {}
    left = jobs
    began = time.monotonic()
    while left or running:
        while left and len(running) < slots:
            process = subprocess.Popen(["/bin/true"])
            running[process.pid] = process
            left -= 1
        pid, status = os.waitpid(-1, 0)
        if pid in running:
            running.pop(pid).returncode = os.waitstatus_to_exitcode(status)
    return jobs / (time.monotonic() - began)


def bare_threads(jobs: int, slots: int) -> float:
    """The most that this machine can do: one thread per slot, which spawns and waits."""
    left = [jobs]
    lock = threading.Lock()

    def spawn() -> None:
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            subprocess.run(["/bin/true"], check=True)

    threads = [threading.Thread(target=spawn) for _ in range(slots)]
    began = time.monotonic()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return jobs / (time.monotonic() - began)


def deborgen(pool: Pool, worker: WorkerProcess, jobs: int) -> float:
    """The worker is paused while the jobs are queued, and resumed without starting another Python."""
    worker.command("pause")
    run = pool.submit(run=["/bin/true"], sweep={"grid": {"seed": {"from": 1, "to": jobs}}})
    began = time.monotonic()
    control.ask(worker.state, {"command": "resume"})
    wait_until(lambda: pool.run(run)["jobs"]["succeeded"] == jobs, 300, every=0.02)
    return jobs / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with CoordinatorProcess(path) as coordinator, WorkerProcess(path, coordinator, slots=options.slots) as worker:
            pool = Pool(coordinator)
            wait_until(lambda: "is registered" in worker.said())
            deborgen(pool, worker, 50)  # warms up
            print(f"{options.jobs} jobs of /bin/true, {options.slots} slots, everything durable")
            print(f"{'round':>6} {'bare loop':>12} {'threads':>14} {'deborgen':>12} {'of loop':>9} {'of threads':>11}")
            best = 0.0
            for number in range(1, options.rounds + 1):
                loop = bare_loop(options.jobs, options.slots)
                threads = bare_threads(options.jobs, options.slots)
                ours = deborgen(pool, worker, options.jobs)
                best = max(best, ours)
                row = f"{number:>6} {loop:>10.0f}/s {threads:>12.0f}/s {ours:>10.0f}/s"
                print(f"{row} {ours / loop:>9.0%} {ours / threads:>11.0%}")
            print(f"best {best:.0f} jobs/s; the goals are 500 jobs/s and 40 % of a bare loop")


if __name__ == "__main__":
    main()
