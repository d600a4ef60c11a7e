"""Jobs of mixed sizes (0.25 to 2 CPUs, 10 ms to 2 s) on a worker with two CPUs, compared with their best packing.

    python benchmarks/worker_mixed.py [--jobs 120] [--seed 1]

Each job sleeps, so its size is only what it reserves. The busy share is the sum of CPUs times seconds, divided by
what the worker had from the first start to the last end. The best packing is the shortest of a few thousand orders in
which the same jobs could start, each as soon as it fits, with no time between two of them. `in order` is the order in
which they were submitted: a worker that does not know how long jobs take cannot be expected to do better.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_worker import control
from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

CPUS = 2.0
SIZES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
#: How many CPUs it reserves, and how many seconds it sleeps.
Job = tuple[float, float]


def some_jobs(count: int, seed: int) -> list[Job]:
    chance = random.Random(seed)
    return [(chance.choice(SIZES), round(chance.uniform(0.01, 2.0) * chance.random(), 3)) for _ in range(count)]


def length(order: list[Job]) -> float:
    """How long the jobs take in this order: at each moment the first that fits is started."""
    waiting, free, now = list(order), CPUS, 0.0
    running: list[tuple[float, float]] = []
    while waiting or running:
        for job in list(waiting):
            if job[0] <= free:
                waiting.remove(job)
                free -= job[0]
                heapq.heappush(running, (now + job[1], job[0]))
        now, cpus = heapq.heappop(running)
        free += cpus
    return now


def best_packing(jobs: list[Job], tries: int = 3000) -> float:
    orders = [sorted(jobs, key=lambda job: -job[0] * job[1]), sorted(jobs, key=lambda job: (-job[0], -job[1]))]
    chance = random.Random(0)
    found = min(map(length, orders))
    for _ in range(tries):
        order = orders[0][:]
        for _ in range(chance.randrange(1, 12)):
            one, other = chance.randrange(len(order)), chance.randrange(len(order))
            order[one], order[other] = order[other], order[one]
        found = min(found, length(order))
    return found


def through_pool(jobs: list[Job]) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with CoordinatorProcess(folder) as coordinator, WorkerProcess(folder, coordinator, cpus=CPUS) as worker:
            wait_until(lambda: "is registered" in worker.said())
            pool = Pool(coordinator)
            worker.command("pause")
            runs = [
                pool.submit(run=["/bin/sleep", str(seconds)], resources={"cpus": cpus, "memory": "16MiB"})
                for cpus, seconds in jobs
            ]
            began = time.monotonic()
            control.ask(worker.state, {"command": "resume"})
            for run in runs:
                wait_until(lambda: pool.run(run)["state"] == "succeeded", 300, every=0.01)  # noqa: B023
            return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    jobs = some_jobs(options.jobs, options.seed)
    area = sum(cpus * seconds for cpus, seconds in jobs) / CPUS
    best, in_order, took = best_packing(jobs), length(jobs), through_pool(jobs)
    print(f"{len(jobs)} jobs, {area:.1f} s of work for {CPUS:g} CPUs")
    print(f"best packing {best:.2f} s: busy for {area / best:.0%} of the time")
    print(f"in order     {in_order:.2f} s: busy for {area / in_order:.0%}, which is {best / in_order:.0%} of the best")
    print(f"deborgen     {took:.2f} s: busy for {area / took:.0%}, which is {best / took:.0%} of the best")
    print("the goal is 90 %")


if __name__ == "__main__":
    main()
