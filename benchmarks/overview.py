"""How long the overview of a run takes in the coordinator, for a run of 100,000 jobs and for one of a hundred.

    python benchmarks/overview.py [--jobs 100000]

Each figure is processor time of the coordinator's thread, so that other programs on the machine do not count.
`kept` is the next overview of the same run: those of large and of ended runs are kept, and not grouped again.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from deborgen_coordinator.operations.runs.overview import overview
from deborgen_shared.states import State
from support.in_process import InProcessCoordinator

REPEATS = 15
ENDED = "ready = 0, attempts = 1, last_attempt = 1, started_at = 1, finished_at = 2"
WAITING = "ready = 0, attempts = 1, last_attempt = 1, started_at = 1, wait_clock = 1000"

#: What all jobs of the run are: their state, and their columns.
CASES = {
    "queued": (State.QUEUED, "ready = 1"),
    "succeeded": (State.SUCCEEDED, ENDED),
    "succeeded, one warning for all": (State.SUCCEEDED, f"""{ENDED}, warnings = '["left out: not JSON (x)"]'"""),
    "succeeded, own warnings": (State.SUCCEEDED, f"""{ENDED}, warnings = '["left out: not JSON (' || id || ')"]'"""),
    "failed, seven reasons": (State.FAILED, f"{ENDED}, reason = 'exit code ' || (id % 7)"),
    "failed, own reasons": (State.FAILED, f"{ENDED}, reason = 'exit code ' || id"),
    "waiting, seven reasons": (State.QUEUED, f"{WAITING}, reason = 'exit code ' || (id % 7)"),
}


def measure(jobs: int, state: State, columns: str) -> tuple[float, float]:
    """The milliseconds of an overview that groups all jobs, and of the next one."""
    with tempfile.TemporaryDirectory() as folder:
        coordinator = InProcessCoordinator(Path(folder))
        coordinator.submit(run="ls", sweep={"grid": {"n": {"from": 1, "to": jobs}}})
        coordinator.stop()
        database = sqlite3.connect(next(Path(folder).glob("*.sqlite")))
        with database:
            database.execute(f"UPDATE job SET state = '{state}', {columns}")
            if state is not State.QUEUED:
                database.execute(f"UPDATE run SET queued = 0, {state} = jobs, finished_at = 2")
        database.close()
        coordinator.start()
        grouped: list[float] = []
        kept: list[float] = []
        for _ in range(REPEATS):
            coordinator.ctx.overviews.pop(1)
            for times in (grouped, kept):
                before = time.thread_time()
                overview(coordinator.ctx, 1)
                times.append(1000 * (time.thread_time() - before))
        coordinator.stop()
        return statistics.median(grouped), statistics.median(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    jobs = parser.parse_args().jobs
    print(f"{'all jobs are':32}{'100 jobs':>14}{f'{jobs:,} jobs':>20}{'kept':>12}")
    for name, (state, columns) in CASES.items():
        (small, _), (large, kept) = measure(100, state, columns), measure(jobs, state, columns)
        print(f"{name:32}{small:>11.1f} ms{large:>17.1f} ms{kept:>9.1f} ms")


if __name__ == "__main__":
    main()
