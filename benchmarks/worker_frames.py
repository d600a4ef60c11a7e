"""How much of the machine its owner keeps: the frame times of a program beside two real jobs.

    python benchmarks/worker_frames.py [--seconds 4] [--rounds 3]

The owner's program computes for 10 ms per frame, as fast as it can, in a session of its own. It runs alone, beside two
jobs that run as processes, and beside two in containers; once with the priority that jobs have, and once, for
comparison, with the priority of other programs. The cases take turns, because other load on the machine changes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.coordinator import CoordinatorProcess
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

FRAME_SECONDS = 0.010
BUSY = "while :; do :; done"
#: The cases: as what the jobs run, and their priority.
CASES = [("alone", ""), ("process", "idle"), ("container", "idle"), ("process", "normal"), ("container", "normal")]


def play(seconds: float) -> list[float]:
    """The owner's program: the milliseconds that each of its frames took."""
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began, done = time.perf_counter(), time.thread_time() + FRAME_SECONDS
        while time.thread_time() < done:
            pass
        found.append((time.perf_counter() - began) * 1000)
    return found


def frames(seconds: float) -> list[float]:
    """Play in a process of its own, in a session of its own, as a program of the owner does."""
    command = [sys.executable, __file__, "--play", "--seconds", str(seconds)]
    done = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@contextlib.contextmanager
def two_jobs(pool: Pool, worker: WorkerProcess, kind: str) -> Iterator[None]:
    """Two busy jobs on this worker; they are canceled afterwards."""
    image: dict[str, Any] = {"image": IMAGE} if kind == "container" else {}
    needs = {"requires": {"case": worker.name}, "resources": {"cpus": 1, "memory": "64MiB"}}
    runs = [pool.submit(run=BUSY, **image, **needs) for _ in range(2)]
    wait_until(lambda: worker.stages() == ["running", "running"], 120)
    yield
    for run in runs:
        pool.admin.post(f"/v1/jobs/{run}.1/cancel", json={})
    wait_until(lambda: worker.stages() == [], 120)


def measure(pool: Pool, workers: dict[str, WorkerProcess], options: argparse.Namespace) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = {case: [] for case in CASES}
    for _ in range(options.rounds):
        for kind, priority in CASES:
            beside = two_jobs(pool, workers[priority], kind) if priority else contextlib.nullcontext()
            with beside:
                found[kind, priority] += frames(options.seconds)
    return found


def report(found: dict[Any, list[float]]) -> None:
    alone = found[CASES[0]]
    print(f"{'the owner plays':<44} {'p50':>8} {'p95':>8}   throughput")
    for (kind, priority), values in found.items():
        words = f"beside two jobs as {kind}, priority {priority}" if priority else kind
        p95 = sorted(values)[int(len(values) * 0.95)]
        share = len(values) / len(alone)
        print(f"{words:<44} {statistics.median(values):>5.1f} ms {p95:>5.1f} ms   {share:>6.0%}")
    print("the goal beside jobs is a p95 of at most 1.2 times that alone, and 90 % of the throughput")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--play", action="store_true", help="only be the owner's program")
    options = parser.parse_args()
    if options.play:
        print(json.dumps(play(options.seconds)))
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        podman = Podman(folder).start_service()
        stack.callback(podman.stop_service)
        coordinator = stack.enter_context(CoordinatorProcess(folder))
        workers = {}
        for priority in ("idle", "normal"):
            worker = WorkerProcess(
                folder, coordinator, name=f"frames-{priority}-{os.getpid()}", runner="both", priority=priority,
                podman_socket=str(podman.socket), env={"CONTAINERS_CONF": str(CONF)}, kill_grace="1s",
            )  # fmt: skip
            worker.settings["labels"] = f"case={worker.name}"
            workers[priority] = stack.enter_context(worker)
            wait_until(worker.answers, 60)
        report(measure(Pool(coordinator), workers, options))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
