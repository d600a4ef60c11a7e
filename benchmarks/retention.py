"""Whether retention holds up claims: the time of a claim while the data of a million finished jobs is removed.

    python benchmarks/retention.py [--jobs 1000000] [--seconds 60]

The jobs of the history have succeeded, in runs of a thousand; each has left an artifact. A worker submits, claims and
finishes one job after the other: first at a coordinator without retention, then at one that removes the whole history.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_coordinator.storage.models import Artifact, Blob
from deborgen_coordinator.storage.transactions import Tx
from history import JOBS_PER_RUN, make_pool
from support.coordinator import CoordinatorProcess
from support.in_process import InProcessCoordinator
from support.scripted_worker import ScriptedWorker

BATCH = 50 * JOBS_PER_RUN


def insert(tx: Tx, artifacts: list[tuple[Any, ...]], stored: list[tuple[Any, ...]]) -> None:
    tx.connection.bulk_insert(Artifact, ["job_id", "number", "path", "digest", "size"], artifacts)
    tx.connection.bulk_insert(Blob, ["digest", "size", "touched_at"], stored)


def add_artifacts(folder: Path, jobs: int) -> None:
    pool = InProcessCoordinator(folder)
    for done in range(0, jobs, BATCH):
        runs = range(10 + done // JOBS_PER_RUN, 10 + min(jobs, done + BATCH) // JOBS_PER_RUN)
        keys = [(run << 20) + index for run in runs for index in range(1, JOBS_PER_RUN + 1)]
        artifacts = [(key, 1, "out", f"{key:064x}", 1000) for key in keys]
        stored = [(f"{key:064x}", 1000, 1.0) for key in keys]

        pool.ctx.store.write(partial(insert, artifacts=artifacts, stored=stored))
    pool.stop()


def count(folder: Path, table: str) -> int:
    with sqlite3.connect(f"file:{folder / 'deborgen.sqlite'}?mode=ro", uri=True) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def claims(folder: Path, seconds: float, **settings: Any) -> list[float]:
    """The seconds of each claim, in order of length."""
    took = []
    with CoordinatorProcess(folder, **settings) as process:
        worker = ScriptedWorker(process, "bench")
        person = process.client("submitter", "bench")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            person.post("/v1/runs", json={"run": "true"}).raise_for_status()
            began = time.perf_counter()
            (assignment,) = worker.claim()
            took.append(time.perf_counter() - began)
            worker.finish(assignment["attempt"])
    return sorted(took)


def show(name: str, took: list[float]) -> None:
    p50, p99 = (took[int(len(took) * part)] * 1000 for part in (0.5, 0.99))
    print(f"{name:20} {len(took):8} {p50:10.1f} {p99:10.1f} {took[-1] * 1000:10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
    data = folder / "coordinator"
    try:
        make_pool(data, given.jobs)
        add_artifacts(data, given.jobs)
        print(f"{'':20} {'claims':>8} {'p50, ms':>10} {'p99, ms':>10} {'worst, ms':>10}")
        show("without retention", claims(folder, given.seconds))
        before = count(data, "artifact")
        show("while it removes", claims(folder, given.seconds, retention_days=1))
        print(
            f"In {given.seconds:g} s the data of {before - count(data, 'artifact'):,} of {before:,} jobs was removed."
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
