"""Jobs a second of `/bin/true`, through a real coordinator and a real worker, beside a bare loop that spawns it.

python benchmarks/worker_throughput.py [--jobs 1000] [--slots 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess, wait_until
from support.worker import Pool, WorkerProcess

#: What `/bin/true` needs. How many run at once is the worker's `--slots`.
NEEDS = {"cpus": 0.02, "memory": "16MiB", "disk": "1MiB"}


def bare_loop(jobs: int, slots: int) -> float:
    """What this machine can do at most: a Python loop that spawns and waits, in as many threads as slots."""
    left = [jobs]
    lock = threading.Lock()

    def lane() -> None:
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            subprocess.run(["/bin/true"], check=True)

    lanes = [threading.Thread(target=lane) for _ in range(slots)]
    began = time.monotonic()
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    return jobs / (time.monotonic() - began)


def deborgen(pool: Pool, worker: WorkerProcess, jobs: int) -> float:
    """The worker is paused while the jobs are queued, so that the time is that of the worker alone."""
    worker.command("pause")
    run = pool.submit(
        run=["/bin/true"], resources={"cpus": 0.1, "memory": "64MiB"}, sweep={"grid": {"seed": {"from": 1, "to": jobs}}}
    )
    began = time.monotonic()
    worker.command("resume")
    wait_until(lambda: pool.run(run)["jobs"]["succeeded"] == jobs, 300, every=0.01)
    return jobs / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with CoordinatorProcess(place) as coordinator, WorkerProcess(place, coordinator, slots=options.slots) as worker:
            pool = Pool(coordinator)
            wait_until(lambda: "is registered" in worker.said())
            deborgen(pool, worker, 50)
            print(f"{options.jobs} jobs of /bin/true, {options.slots} slots, everything durable")
            print(f"{'round':>6} {'bare loop':>12} {'deborgen':>12} {'share':>8}")
            best = 0.0
            for number in range(1, options.rounds + 1):
                bare = bare_loop(options.jobs, options.slots)
                ours = deborgen(pool, worker, options.jobs)
                best = max(best, ours)
                print(f"{number:>6} {bare:>10.0f}/s {ours:>10.0f}/s {ours / bare:>8.0%}")
            print(f"best {best:.0f} jobs/s; the goals are 500 jobs/s and 40 % of the bare loop")


if __name__ == "__main__":
    main()
