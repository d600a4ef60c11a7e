"""Container jobs per second, compared with a loop of `podman run --rm` with the same options and the same parallelism.

python benchmarks/worker_containers.py [--jobs 20] [--slots 2] [--rounds 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess
from support.podman import CONF, IMAGE, ROOT, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

OPTIONS = [
    "--rm", "--network", "none", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--read-only",
    "--read-only-tmpfs=false", "--init", "--http-proxy=false", "--pids-limit", "1024", "--memory", "64m",
    "--memory-swap", "64m", "--cpus", "1", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096",
    "--ulimit", "core=0:0", "--tmpfs", "/tmp:size=256m,mode=1777", "--workdir", "/job", "--timeout", "90",
]  # fmt: skip


def plain_loop(podman: Podman, folder: Path, jobs: int, slots: int) -> float:
    def one(number: int) -> None:
        work = folder / f"plain-{number}-{time.monotonic_ns()}"
        work.mkdir()
        subprocess.run(
            ["podman", "run", *OPTIONS, "-v", f"{work}:/job", IMAGE, "/bin/true"],
            env=podman.env, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    began = time.monotonic()
    with ThreadPoolExecutor(slots) as threads:
        list(threads.map(one, range(jobs)))
    return jobs / (time.monotonic() - began)


def deborgen(pool: Pool, worker: WorkerProcess, jobs: int) -> float:
    worker.command("pause")
    run = pool.submit(
        run=["/bin/true"], image=IMAGE, resources={"cpus": 1, "memory": "64MiB"}, timeout="1m",
        sweep={"grid": {"seed": {"from": 1, "to": jobs}}},
    )  # fmt: skip
    began = time.monotonic()
    worker.command("resume")
    wait_until(lambda: pool.run(run)["jobs"]["succeeded"] == jobs, 300)
    return jobs / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    subprocess.run([ROOT / "tools" / "podman.sh", IMAGE], check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        podman = Podman(folder)
        settings = {"runner": "podman", "cpus": options.slots, "env": {"CONTAINERS_CONF": str(CONF)}}
        with CoordinatorProcess(folder) as coordinator, WorkerProcess(folder, coordinator, **settings) as worker:
            pool = Pool(coordinator)
            wait_until(lambda: "is registered" in worker.said(), 60)
            deborgen(pool, worker, 4)  # warms up
            print(f"{options.jobs} containers of /bin/true, {options.slots} at once")
            print(f"{'round':>6} {'podman run --rm':>16} {'deborgen':>12} {'share':>8}")
            for number in range(1, options.rounds + 1):
                plain = plain_loop(podman, folder, options.jobs, options.slots)
                ours = deborgen(pool, worker, options.jobs)
                print(f"{number:>6} {plain:>14.1f}/s {ours:>10.1f}/s {ours / plain:>8.0%}")
            print("the goal is at least 100 %")


if __name__ == "__main__":
    main()
