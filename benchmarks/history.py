"""How long the coordinator's start and every list take with a long history, compared with a short one.

    python benchmarks/history.py [--jobs 1000000]

The jobs of the history have succeeded, in runs of a thousand. Beside them there are ten queued and ten running jobs,
one failed and one canceled run. Each list is asked for over HTTP, on a connection that is kept open.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_coordinator.storage.models import Attempt, Claim, Event, Job, Run, Step
from deborgen_coordinator.storage.transactions import Tx
from plain_http import BareClient
from support.coordinator import CoordinatorProcess
from support.in_process import InProcessCoordinator

JOBS_PER_RUN = 1000
LISTS = (
    "jobs?limit=50", "jobs?state=queued", "jobs?state=running", "jobs?state=failed", "jobs?state=canceled",
    "jobs?state=succeeded", "jobs?worker=pc1", "runs?limit=50", "runs?state=running", "runs?state=failed",
    "runs?state=canceled", "runs?submitter=bob", "runs?label=project", "workers", "events?limit=50",
)  # fmt: skip


def fill(tx: Tx, first: int, count: int) -> None:
    """Store runs of a thousand jobs that have succeeded, each job with its attempt and four events."""
    put = tx.connection.bulk_insert
    runs = range(first, first + count // JOBS_PER_RUN)
    names = ("id name submitter_id labels warnings jobs steps queued running succeeded created_at finished_at").split()
    put(Run, names, [(run, "old", 1, "{}", "[]", JOBS_PER_RUN, 1, 0, 0, JOBS_PER_RUN, 1.0, 2.0) for run in runs])
    names = "run_id number needs spec_id first_index last_index jobs unfinished blockers".split()
    put(Step, names, [(run, 1, "[]", 1, 1, JOBS_PER_RUN, JOBS_PER_RUN, 0, 0) for run in runs])
    put(Claim, ["id", "worker_id", "request_id", "created_at"], [(run + 10, 1, f"old {run}", 1.0) for run in runs])
    keys = [(run, (run << 20) + index) for run in runs for index in range(1, JOBS_PER_RUN + 1)]
    names = (
        "id step spec_id class_id submitter_id rank params state ready attempts last_attempt worker_id exit_code result"
        " started_at finished_at"
    ).split()
    rest = (1, 1, 1, 1, 0, '{"seed":17}', "succeeded", 0, 1, 1, 1, 0, '{"loss":0.5}', 1.0, 2.0)
    put(Job, names, ((key, *rest) for _, key in keys))
    names = (
        "job_id number worker_id session claim_id confirmed granted_clock deadline_clock started_at finished_at outcome"
        " exit_code seconds"
    ).split()
    put(Attempt, names, ((key, 1, 1, "s", run + 10, 1, 0.0, 9.0, 1.0, 2.0, "succeeded", 0, 1.0) for run, key in keys))
    names = "time type job_id attempt worker actor old_state new_state".split()
    kinds = [
        ("job.queued", None, "queued"), ("lease.granted", None, None), ("job.started", "queued", "running"),
        ("job.succeeded", "running", "succeeded"),
    ]  # fmt: skip
    rows = ((1.0, kind, key, 1, "pc1", "worker:pc1", old, new) for _, key in keys for kind, old, new in kinds)
    put(Event, names, rows)


def make_pool(folder: Path, jobs: int) -> None:
    pool = InProcessCoordinator(folder)
    worker = pool.worker()
    pool.submit(labels={"project": "thesis"})
    worker.finish(worker.take(), "failed")
    pool.cancel(str(pool.submit().id))
    batch = 50 * JOBS_PER_RUN
    for done in range(0, jobs, batch):
        pool.ctx.store.write(lambda tx, done=done: fill(tx, 10 + done // JOBS_PER_RUN, min(batch, jobs - done)))  # type: ignore[misc]
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 20}}}, by="bob")
    worker.start(10)
    pool.stop()


def milliseconds(client: BareClient, path: str) -> float:
    took = []
    for _ in range(15):
        began = time.perf_counter()
        status, body = client("GET", f"/v1/{path}")
        took.append(time.perf_counter() - began)
        assert status == 200, body
        assert msgspec.json.decode(body)["items"], f"{path} found nothing"
    return sorted(took)[len(took) // 2] * 1000


def measure(folder: Path) -> tuple[float, dict[str, float]]:
    process = CoordinatorProcess(folder)
    began = time.perf_counter()
    with process:
        started = time.perf_counter() - began
        client = BareClient(process.url, process.token("viewer", "ada"))
        return started, {path: milliseconds(client, path) for path in LISTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    jobs = parser.parse_args().jobs
    found = []
    for count in (JOBS_PER_RUN, jobs):
        folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
        try:
            make_pool(folder / "coordinator", count)
            size = (folder / "coordinator" / "deborgen.sqlite").stat().st_size
            found.append((count, size, *measure(folder)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    (few, _, quick, short), (many, size, slow, long) = found
    print(f"{'':28} {few:>12,} {many:>12,} jobs, {size >> 20:,} MiB")
    print(f"{'start to first answer, s':28} {quick:12.2f} {slow:12.2f}")
    for path in LISTS:
        print(f"{'GET /v1/' + path + ', ms':28} {short[path]:12.1f} {long[path]:12.1f}")


if __name__ == "__main__":
    main()
