"""A real pool: a coordinator process, its worker processes, and the persons who use it.

with Pool(CoordinatorProcess(tmp_path)) as pool:
    pool.add_worker("box")
    assert pool.until(pool.submit(run="true"))["state"] == "succeeded"
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from support.coordinator import Client, CoordinatorProcess
from support.person import Person
from support.waiting import wait_until
from support.worker import WorkerProcess

ENDED = ("succeeded", "failed", "canceled")


class Pool:
    """Everything around one coordinator.

    As a context manager it starts the coordinator, and stops it and the workers that were added. Otherwise it is only a
    view of a coordinator that is already running.
    """

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self.folder = coordinator.folder
        self.workers: dict[str, WorkerProcess] = {}

    def __enter__(self) -> Pool:
        self.coordinator.start()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for worker in self.workers.values():
                worker.stop()
        finally:
            self.coordinator.stop()

    @cached_property
    def admin(self) -> Client:
        """A session that may do everything."""
        return self.coordinator.client("admin")

    def person(self, name: str, role: str = "submitter") -> Person:
        """Somebody who has a token for the pool in the environment."""
        return Person(
            self.folder / "homes" / name,
            DEBORGEN_URL=self.coordinator.url,
            DEBORGEN_TOKEN=self.coordinator.token(role, name),
        )

    def add_worker(self, name: str, **settings: Any) -> WorkerProcess:
        """Start a worker, and return once it is open for work."""
        worker = self.workers[name] = WorkerProcess(self.folder, self.coordinator, name, **settings)
        worker.start()
        wait_until(lambda: self.state_of(name) == "open", what=f"{name} to join", log=worker.log)
        return worker

    def state_of(self, worker: str) -> str:
        """The state of a worker, or "unknown" before it has registered."""
        answer = self.admin.get(f"/v1/workers/{worker}")
        return str(answer.json()["state"]) if answer.status_code == 200 else "unknown"

    def submit(self, **body: Any) -> int:
        """Submit a job file. Its jobs have one attempt unless it sets more: a second one would hide what went wrong."""
        answer = self.admin.post("/v1/runs", json={"max_attempts": 1, **body})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def run(self, run: int) -> dict[str, Any]:
        return dict(self.admin.get(f"/v1/runs/{run}").json())

    def job(self, job: int | str) -> dict[str, Any]:
        """A job by its name, or the first job of a run by the number of the run."""
        answer = self.admin.get(f"/v1/jobs/{_name(job)}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def log(self, job: int | str, attempt: int | None = None) -> bytes:
        query = f"?attempt={attempt}" if attempt else ""
        answer = self.admin.get(f"/v1/jobs/{_name(job)}/log{query}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def until(self, run: int, *states: str, seconds: float = 90.0) -> dict[str, Any]:
        """The run's first job, once it is in one of these states. The states that end a job are the default."""
        wanted = states or ENDED
        wait_until(lambda: self.job(run)["state"] in wanted, seconds, f"job {run}.1 to be {' or '.join(wanted)}")
        return self.job(run)

    def until_named(self, run: int, seconds: float = 90.0) -> dict[str, Any]:
        """The run's first job, once its worker has said when the program of its newest attempt began.

        An attempt that ends before that has never been named, and costs the job nothing.
        """
        wait_until(lambda: (self.job(run)["history"] or [{"started_at": None}])[-1]["started_at"], seconds,
                   f"the worker to say when the program of {run}.1 began")  # fmt: skip
        return self.job(run)

    def done(self, run: int, seconds: float = 120.0) -> dict[str, Any]:
        """The run, once all its jobs have ended."""

        def all_ended() -> bool:
            counts = self.run(run)["jobs"]
            return bool(counts["queued"] == counts["running"] == 0)

        wait_until(all_ended, seconds, f"all jobs of run {run} to end")
        return self.run(run)

    def unfinished(self) -> list[int]:
        """The runs, of the newest thousand, that have a queued or a running job."""
        runs = self.admin.get("/v1/runs?limit=1000").json()["items"]
        return [int(run["id"]) for run in runs if run["jobs"]["queued"] or run["jobs"]["running"]]

    def clear(self) -> None:
        """Make the pool free for the next test: the coordinator runs, no job is left, and every worker is open.

        When a test left nothing behind, this costs one request for the runs and one for each worker.
        """
        if self.coordinator.process is None:
            self.coordinator.start()
        for name in self.workers:
            self._reopen(name)
        left = self.unfinished()
        for run in left:
            self.admin.post(f"/v1/runs/{run}/cancel", json={"reason": "the test is over"})
        if left:
            wait_until(lambda: not self.unfinished(), what=f"the canceled jobs of runs {left} to end")

    def _reopen(self, name: str) -> None:
        worker = self.workers[name]
        if self.state_of(name) == "open":
            return
        self.admin.patch(f"/v1/workers/{name}", json={"paused": False, "drain": False})
        if worker.process is None or worker.process.poll() is not None:
            worker.start()
        wait_until(lambda: self.state_of(name) == "open", what=f"{name} to be open again", log=worker.log)


def _name(job: int | str) -> str:
    return f"{job}.1" if isinstance(job, int) else job
