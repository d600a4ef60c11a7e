"""How long every page of the dashboard takes, and how many bytes it sends, with a long history and a large run.

    python benchmarks/dashboard.py [--jobs 1000000] [--sweep 100000]

The jobs of the history have succeeded, in runs of a thousand. The run of 100,000 jobs is a sweep of three axes whose
jobs have ended in the last two hours, each with two values. `first` is the first request after the coordinator's start,
`then` the median of the next ones, and `cpu` their processor time in the coordinator, in which other programs on the
machine do not count. The bytes of the style sheets and scripts, which a browser keeps, are at the end.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import psutil

from deborgen_coordinator.storage.transactions import Tx
from history import JOBS_PER_RUN, fill
from support.browser import Visitor
from support.coordinator import CoordinatorProcess, family_of
from support.in_process import InProcessCoordinator

REPEATS = 19
#: The pages; RUN is the number of the large run.
PAGES = (
    "/", "/runs", "/runs?state=succeeded", "/runs/RUN", "/runs/RUN/results", "/runs/RUN/results?sort=loss",
    "/runs/RUN/results?kind=points&value=accuracy&x=loss", "/runs/RUN/results?kind=line&x=seed", "/jobs/RUN.7",
    "/workers", "/workers/pc1", "/workers/pc1/timeline.svg?hours=24", "/events", "/ledger", "/ledger?by=both",
    "/runs/RUN?state=succeeded", "/events?run=RUN", "/events?worker=pc1", "/submit", "/me",
    "/charts/timeline.csv", "/charts/load.svg",
)  # fmt: skip


def end_sweep(tx: Tx, run: int, jobs: int, now: float) -> None:
    """All jobs of the run have succeeded, evenly spread over the last two hours."""
    first = run << 20
    ended = f"? - 7200.0 + (id - {first}) * 7200.0 / {jobs}"
    tx.run(
        f"UPDATE job SET state = 'succeeded', ready = 0, attempts = 1, last_attempt = 1, worker_id = 1, exit_code = 0,"
        f" started_at = {ended} - 5, finished_at = {ended},"
        " result = json_object('loss', abs(random() % 100000) / 1e5, 'accuracy', abs(random() % 100000) / 1e5)"
        f" WHERE id > {first} AND id <= {first + jobs}",
        (now, now),
    )
    tx.run("UPDATE run SET queued = 0, succeeded = jobs, finished_at = ? WHERE id = ?", (now, run))
    tx.run("UPDATE step SET unfinished = 0 WHERE run_id = ?", (run,))
    tx.run(
        "INSERT INTO attempt (job_id, number, worker_id, session, claim_id, confirmed, granted_clock, deadline_clock,"
        " started_at, began_at, finished_at, outcome, exit_code, seconds) SELECT id, 1, 1, 's',"
        " (SELECT min(id) FROM claim), 1, 0, 9, started_at, started_at + 1, finished_at, 'succeeded', 0, 4.0 FROM job"
        f" WHERE id > {first} AND id <= {first + jobs}"
    )
    tx.run(
        "INSERT INTO usage SELECT CAST(finished_at AS BIGINT) / 300 * 300, 300, 1, 1, count(*), count(*), sum(seconds),"
        f" sum(seconds), 0, sum(seconds) * 1e9 FROM attempt WHERE job_id > {first} GROUP BY 1"
    )


def make_pool(folder: Path, jobs: int, sweep: int) -> int:
    pool = InProcessCoordinator(folder)
    worker = pool.worker()
    pool.submit(labels={"project": "thesis"})
    worker.finish(worker.take(), "failed")
    batch = 50 * JOBS_PER_RUN
    for done in range(0, jobs, batch):
        pool.ctx.store.write(lambda tx, done=done: fill(tx, 10 + done // JOBS_PER_RUN, min(batch, jobs - done)))  # type: ignore[misc]
    axes = {"lr": {"from": 1, "to": 50}, "wd": {"from": 1, "to": 40}, "seed": {"from": 1, "to": sweep // 2000}}
    run = pool.submit(sweep={"grid": axes}).id
    pool.ctx.store.write(lambda tx: end_sweep(tx, run, sweep, time.time()))
    pool.stop()
    return run


def processor_ms(coordinator: CoordinatorProcess) -> float:
    assert coordinator.process is not None
    times = [psutil.Process(pid).cpu_times() for pid in family_of(coordinator.process.pid)]
    return 1000 * sum(each.user + each.system for each in times)


def measure(coordinator: CoordinatorProcess, visitor: Visitor, path: str) -> tuple[float, float, float, int, int]:
    took, before = [], 0.0
    for number in range(REPEATS + 1):
        if number == 1:
            before = processor_ms(coordinator)
        began = time.perf_counter()
        answer = visitor.get(path)
        took.append(1000 * (time.perf_counter() - began))
    used = (processor_ms(coordinator) - before) / REPEATS
    first, *then = took
    return first, sorted(then)[len(then) // 2], used, len(answer.content), answer.status_code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--sweep", type=int, default=100_000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="deborgen-bench-"))
    try:
        run = make_pool(folder / "coordinator", given.jobs, given.sweep)
        with CoordinatorProcess(folder) as coordinator, Visitor(coordinator) as visitor:
            visitor.sign_in("submitter", "alice")
            print(f"{'page':56}{'first ms':>10}{'then ms':>10}{'cpu ms':>10}{'KiB':>8}  status")
            for path in PAGES:
                first, then, used, size, status = measure(coordinator, visitor, path.replace("RUN", str(run)))
                print(f"{path:56}{first:>10.1f}{then:>10.1f}{used:>10.1f}{size / 1024:>8.1f}  {status}")
            assets = set(re.findall(r'"(/static/[^"]+)"', visitor.get(f"/runs/{run}/results").text))
            print(f"style sheets and scripts: {sum(len(visitor.get(each).content) for each in assets) / 1024:.1f} KiB")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
