"""A soak: one coordinator, several workers, thousands of short jobs, and a fault every few seconds.

Every job appends a line to a file of its own when its program begins and when it ends, so that afterwards it is
known what ran, without asking deborgen. At the end all faults stop, all jobs end, and the audit runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import requests

from support.coordinator import CoordinatorProcess, children_of
from support.fault_proxy import FaultProxy
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

#: The number of jobs in each run.
BATCH = 40


class Soak:
    """A pool with faults. Call `run`, then `report`, and always `close`."""

    def __init__(self, folder: Path, workers: int = 8, seed: int = 1, database: str = "", every: float = 3.0) -> None:
        self.folder, self.every = folder, every
        self.random = random.Random(seed)
        self.ran = folder / "ran"
        self.ran.mkdir(parents=True)
        self.coordinator = CoordinatorProcess(folder, database, lease_seconds=6, heartbeat_seconds=1).start()
        self.pool = Pool(self.coordinator)
        self.proxies = [FaultProxy(self.coordinator.url, rate=0.05, seed=n, delay=0.1) for n in range(workers)]
        self.workers = [
            WorkerProcess(folder, self.coordinator, name=f"w{n}", url=proxy.url, cpus=2, drain_grace=1, kill_grace=1)
            for n, proxy in enumerate(self.proxies)
        ]
        self.faults: Counter[str] = Counter()
        self.runs: list[int] = []
        self._stopped: set[int] = set()

    def run(self, seconds: float) -> None:
        """Cause faults for this many seconds, then let all jobs end."""
        end = time.monotonic() + seconds
        for worker in self.workers:
            worker.start()
        fault_at = time.monotonic() + self.every
        while time.monotonic() < end:
            self._keep_the_queue_filled()
            if time.monotonic() >= fault_at:
                fault_at = time.monotonic() + self.random.uniform(0.3, 1.7) * self.every
                self._fault()
            threading.Event().wait(0.2)
        self._heal()

    def _keep_the_queue_filled(self) -> None:
        with contextlib.suppress(requests.RequestException, KeyError, ValueError):
            waiting = sum(self.pool.run(run)["jobs"]["queued"] for run in self.runs[-4:])
            if waiting < 3 * BATCH:
                self._submit()

    def _submit(self) -> None:
        run_id = len(self.runs) + 1
        script = (
            f"f={self.ran}/{run_id}-$DEBORGEN_PARAM_N; echo begin $DEBORGEN_ATTEMPT >> $f; echo hello $DEBORGEN_JOB_ID;"
            " sleep 0.0$((DEBORGEN_PARAM_N % 9)); echo made $DEBORGEN_JOB_ID > out; echo end $DEBORGEN_ATTEMPT >> $f;"
            " exit $((DEBORGEN_PARAM_N % 10 == 7))"
        )
        body = {
            "run": script, "resources": {"cpus": 0.25, "memory": "64MiB"}, "max_attempts": 100,
            "retry": {"backoff": "1s"}, "artifacts": ["out"], "sweep": {"grid": {"n": {"from": 1, "to": BATCH}}},
        }  # fmt: skip
        answer = self.pool.admin.post("/v1/runs", json=body, headers={"Idempotency-Key": f"soak-{run_id}"}, timeout=20)
        assert answer.status_code in (200, 201, 503), answer.text
        if answer.status_code != 503:
            self.runs.append(int(answer.json()["id"]))

    def _fault(self) -> None:
        worker, proxy = self.random.choice(list(zip(self.workers, self.proxies, strict=True)))
        kind = self.random.choice(
            ["worker killed", "worker killed", "worker stopped", "worker restarted", "partition", "partition",
             "coordinator killed", "coordinator stopped", "cancel"]
        )  # fmt: skip
        self.faults[kind] += 1
        match kind:
            case "worker killed":
                if worker.process is not None and worker.process.poll() is None:
                    worker.kill()
                worker.start()
            case "worker stopped":
                self._stop_for(worker.process, self.random.uniform(0.5, 10.0))
            case "worker restarted":
                if worker.process is not None and worker.process.poll() is None:
                    worker.process.send_signal(signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        worker.process.wait(15)
                    worker.process.kill()
                    worker.process.wait()
                worker.start()
            case "partition":
                proxy.cut_off.set()
                threading.Timer(self.random.uniform(0.5, 12.0), proxy.cut_off.clear).start()
            case "coordinator killed":
                self.coordinator.restart()
            case "coordinator stopped":
                assert self.coordinator.process is not None
                pids = [self.coordinator.process.pid, *children_of(self.coordinator.process.pid)]
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                threading.Event().wait(self.random.uniform(0.5, 8.0))
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            case "cancel" if self.runs:
                with contextlib.suppress(requests.RequestException):
                    number = f"{self.random.choice(self.runs[-3:])}.{self.random.randint(1, BATCH)}"
                    self.pool.admin.post(f"/v1/jobs/{number}/cancel", json={}, timeout=20)

    def _stop_for(self, process: subprocess.Popen[bytes] | None, seconds: float) -> None:
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)

        def resume() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

        threading.Timer(seconds, resume).start()

    def _heal(self) -> None:
        for worker, proxy in zip(self.workers, self.proxies, strict=True):
            proxy.rate = 0.0
            proxy.cut_off.clear()
            if worker.process is None or worker.process.poll() is not None:
                worker.start()
            else:
                worker.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not self.unfinished(), 900, every=0.5)

    def unfinished(self) -> int:
        counts = [self.pool.run(run)["jobs"] for run in self.runs]
        return sum(each["queued"] + each["running"] for each in counts)

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
                worker.stop()
        self.coordinator.stop()

    def report(self) -> dict[str, object]:
        """The audit's findings, and how they compare with what the programs themselves wrote."""
        done = subprocess.run(
            [*self.coordinator.command("audit"), "--json"], capture_output=True, text=True, check=False, timeout=600
        )
        audit = json.loads(done.stdout)
        wrong = self._differences_from_what_ran()
        states: Counter[str] = Counter()
        for run in self.runs:
            states.update(self.pool.run(run)["jobs"])
        return {
            "jobs": sum(states.values()), "states": dict(states), "faults": dict(self.faults),
            "proxy": dict(sum((proxy.seen for proxy in self.proxies), Counter())),
            "lost": audit["lost"], "duplicated": audit["duplicated"], "unexpected": audit["unexpected"],
            "findings": audit["findings"][:20], "wrong": wrong[:20], "attempts": audit["totals"]["attempts"],
        }  # fmt: skip

    def _differences_from_what_ran(self) -> list[str]:
        wrong = []
        for number, run in enumerate(self.runs, 1):
            jobs = self.pool.admin.get(f"/v1/runs/{run}/jobs?limit=1000").json()["items"]
            for job in jobs:
                path = self.ran / f"{number}-{job['index']}"
                lines = path.read_text().split("\n")[:-1] if path.exists() else []
                begins = [line for line in lines if line.startswith("begin")]
                if len(set(begins)) != len(begins):
                    wrong.append(f"{job['id']}: an attempt ran twice: {lines}")
                if job["state"] == "succeeded":
                    detail = self.pool.job(job["id"])
                    last = detail["history"][-1]["number"]
                    if f"end {last}" not in lines:
                        wrong.append(f"{job['id']}: succeeded, but its program did not end: {lines}")
                    if self.pool.log(job["id"]) != f"hello {job['id']}\n".encode():
                        wrong.append(f"{job['id']}: its log is {self.pool.log(job['id'])!r}")
                    if [each["path"] for each in detail["artifacts"]] != ["out"]:
                        wrong.append(f"{job['id']}: its artifact is missing")
        return wrong
