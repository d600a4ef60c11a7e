"""One run of the fuzzer: a real coordinator and a real worker, all sources of requests at once, and what was seen.

Campaign(folder, seed=1).run(requests=3000) returns a report; `report.findings` must be empty.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from deborgen_shared import contract
from deborgen_shared.states import Role
from fuzz import steady_worker
from fuzz.findings import KINDS, Counts, Finding, Target, drained, new_queue, started
from fuzz.from_openapi import send_from_openapi
from fuzz.job_files import send_job_files
from fuzz.own_requests import send_requests
from fuzz.raw_sockets import send_raw
from fuzz.report import MIB, Report
from support.coordinator import CoordinatorProcess, children_of
from support.pool import Pool

#: The names of the workers that the fuzzer plays.
PLAYED = ("played-1", "played-2")
ROLES = (Role.ADMIN, Role.SUBMITTER, Role.WORKER)
#: A source that has not ended this many seconds after the end of the run hangs.
END_SECONDS = 90.0
#: The real worker has ended its last job this many seconds after the run, or hangs.
WORKER_SECONDS = 120.0
#: A run tells how far it is after this many seconds each.
SAY_SECONDS = 15.0
#: What must not be in the log of a process.
BAD_LOG = re.compile(rb"Traceback|\bCRITICAL\b|failed unexpectedly|Error handling request")


class Campaign:
    """A pool and everything that attacks it.

    `slowest_heartbeat` is in seconds, and `most_growth` the bytes by which the coordinator's memory may grow after the
    first tenth of the requests. A loud run prints how far it is, and each finding at once.
    """

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        slowest_heartbeat: float = 5.0,
        most_growth: int = 64 * MIB,
        env: dict[str, str] | None = None,
        database: str = "",
        loud: bool = False,
    ) -> None:
        self._is_loud, self._serving = loud, 0
        self._slowest_heartbeat, self._most_growth = slowest_heartbeat, most_growth
        self.report = Report(seed)
        # A submission of 100,000 jobs is valid; one in a thousand requests would still fill the disk.
        self.coordinator = CoordinatorProcess(folder, database, env=env, max_jobs_per_run=100)
        self.pool = Pool(self.coordinator)
        self._latencies = new_queue()
        self._folder = folder
        #: Each source of requests: its function, and the arguments besides the target and the name.
        self._sources: dict[str, tuple[Any, ...]] = {
            **{str(role): (send_requests, role) for role in ROLES},
            "raw": (send_raw,),
            "openapi": (send_from_openapi,),
            "job files": (send_job_files, str(folder / "home")),
            steady_worker.NAME: (steady_worker.send_heartbeats, self._latencies),
        }

    def run(self, requests: int = 0, seconds: float = 0.0) -> Report:
        """Attack until this many requests are sent, or this many seconds have passed, or somebody says stop."""
        with self.pool:
            # Logs are stored in the database while they grow, and a long one would look like growing memory.
            self.pool.add_worker("box", drain_grace=1, kill_grace=1, log_cap="1MiB")
            target = self._target()
            processes = self._start(target)
            target.begin.wait()
            began = said = time.monotonic()
            with contextlib.suppress(KeyboardInterrupt):
                while not (requests and self._sent(target) >= requests):
                    now = time.monotonic()
                    if seconds and now - began >= seconds:
                        break
                    self._look(target, processes)
                    if self._is_loud and now - said > SAY_SECONDS:
                        said = now
                        print(self._progress(target), flush=True)
                    time.sleep(0.25)
            self.report.seconds = time.monotonic() - began
            self._end(target, processes)
            self._look(target, {})
            self._let_the_worker_end()
        self._read_logs()
        self._audit()
        self._judge()
        return self.report

    def _progress(self, target: Target) -> str:
        size = self.report.memory[-1][1] / MIB
        return f"{self._sent(target):,} requests, {size:.0f} MiB, {len(self.report.findings)} findings"

    def _target(self) -> Target:
        token = self.coordinator.token
        tokens: dict[str, str] = {role: token(role, f"fuzz-{role}") for role in Role}
        tokens |= {
            steady_worker.NAME: token(Role.WORKER, steady_worker.NAME),
            "job-files": token(Role.SUBMITTER, "job-files"),
        }
        host, _, port = self.coordinator.url.removeprefix("http://").partition(":")
        played = {name: token(Role.WORKER, name) for name in PLAYED}
        return Target((host, int(port)), self.report.seed, tokens, played, str(self._folder), len(self._sources) + 1)

    def _start(self, target: Target) -> dict[str, BaseProcess]:
        target.counts = {name: Counts() for name in self._sources}
        return {name: started(function, target, name, *more) for name, (function, *more) in self._sources.items()}

    def _sent(self, target: Target) -> int:
        return sum(counts.get("requests") for counts in target.counts.values())

    def _look(self, target: Target, processes: dict[str, BaseProcess]) -> None:
        """Take in what has happened since the last look."""
        assert self.coordinator.process is not None
        serving = (*children_of(self.coordinator.process.pid), 0)[0]
        if serving != (self._serving or serving):
            self._find("coordinator", "the serving process has died, and was started again")
        self._serving = serving
        self._take_in(target)
        with contextlib.suppress(psutil.NoSuchProcess):
            self.report.memory.append((self._sent(target), psutil.Process(serving).memory_info().rss))
        if self.pool.workers["box"].process.poll() is not None:  # type: ignore[union-attr]
            self._find("worker", "the real worker has died")
        for name, process in processes.items():
            if not process.is_alive():
                self._find(name, f"this source of requests ended with {process.exitcode}")

    def _take_in(self, target: Target, seconds: float = 0.0) -> None:
        """Take in what the sources have found and measured, or will within this many seconds."""
        for finding in drained(target.findings, seconds):
            self._note(finding)
        self.report.heartbeats += drained(self._latencies)

    def _find(self, source: str, what: str) -> None:
        self._note(Finding(source, what))

    def _note(self, finding: Finding) -> None:
        if finding not in self.report.findings:
            self.report.findings.append(finding)
            if self._is_loud:
                print(f"\n{finding.shown()}\n", flush=True)

    def _end(self, target: Target, processes: dict[str, BaseProcess]) -> None:
        target.stop.set()
        end = time.monotonic() + END_SECONDS
        while any(process.is_alive() for process in processes.values()) and time.monotonic() < end:
            self._take_in(target)
            time.sleep(0.1)
        for name, process in processes.items():
            if process.is_alive():
                process.kill()
                self._find(name, f"it had not ended {END_SECONDS:.0f} s after the run")
        self._take_in(target, 0.3)
        self.report.counts = {name: {kind: each.get(kind) for kind in KINDS} for name, each in target.counts.items()}
        del self.report.counts[steady_worker.NAME]

    def _let_the_worker_end(self) -> None:
        """Cancel what is left for the real worker, and wait until it holds nothing."""
        admin, end = self.pool.admin, time.monotonic() + WORKER_SECONDS
        path = contract.LIST_RUNS.path
        while time.monotonic() < end:
            left = admin.get(f"{path}?submitter=job-files&state=queued&limit=100").json()["items"]
            left += admin.get(f"{path}?submitter=job-files&state=running&limit=100").json()["items"]
            for run in left:
                admin.post(
                    contract.CANCEL_RUN.path.format(run=run["id"]), json={"reason": "the run of the fuzzer is over"}
                )
            worker = admin.get(contract.GET_WORKER.path.format(name="box")).json()
            if not left and not worker["running"]:
                break
            time.sleep(0.5)
        else:
            self._find("worker", f"the real worker still holds {worker['running']}")
        path = f"{contract.LIST_JOBS.path}?worker=box&limit=1000"
        page = admin.get(path).json()
        while page["next"]:
            self.report.jobs_run += len(page["items"])
            page = admin.get(f"{path}&cursor={page['next']}").json()
        self.report.jobs_run += len(page["items"])
        if worker["state"] not in ("open", "paused"):
            self._find("worker", f"the real worker is {worker['state']}: {worker['reason']}")

    def _read_logs(self) -> None:
        for source, path in (("coordinator", self.coordinator.log), ("worker", self.pool.workers["box"].log)):
            lines = path.read_bytes().splitlines()
            for number, line in enumerate(lines):
                if BAD_LOG.search(line):
                    after = b"\n".join(lines[max(0, number - 1) : number + 40]).decode(errors="replace")
                    self._find(source, f"its log says:\n{after}")
                    break

    def _audit(self) -> None:
        done = subprocess.run(
            [*self.coordinator.command("audit"), "--json"], capture_output=True, text=True, check=False, timeout=1800
        )
        if done.returncode:
            self._find("audit", f"it ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
            return
        audit = json.loads(done.stdout)
        if audit["findings"]:
            self._find("audit", f"{audit['findings'][:10]}")

    def _judge(self) -> None:
        report = self.report
        if not report.heartbeats:
            self._find(steady_worker.NAME, "no heartbeat was answered")
        elif max(report.heartbeats) > self._slowest_heartbeat:
            self._find(steady_worker.NAME, f"a heartbeat took {max(report.heartbeats):.1f} s")
        grown = report.memory[-1][1] - report.memory_after(0.1)
        if grown > self._most_growth:
            self._find("coordinator", f"its memory grew by {grown / MIB:.0f} MiB after the first tenth of the requests")
