"""500 jobs in real containers over a network that fails one request in ten, on both databases.

Every job ends exactly once, logs and artifacts are byte-exact, and no container is left. These tests take long:
`make chaos-long` runs them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess
from support.fault_proxy import FaultProxy
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.worker import WorkerProcess

JOBS = 500
long = pytest.mark.skipif(not os.environ.get("DEBORGEN_LONG"), reason="long: make chaos-long")


@long
@pytest.mark.podman
@pytest.mark.root
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_500_jobs_over_a_network_that_fails_one_request_in_ten_all_end_exactly_once(
    database: str, podman: Podman, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else ""
    with (
        CoordinatorProcess(tmp_path, url, lease_seconds=30, heartbeat_seconds=2) as own,
        FaultProxy(own.url, rate=0.1, seed=11, delay=0.1) as proxy,
    ):
        pool = Pool(own)
        script = "echo begin $DEBORGEN_PARAM_N; echo made by $DEBORGEN_PARAM_N > out; echo end >&2"
        run = pool.submit(
            run=script, image=IMAGE, artifacts=["out"], resources={"cpus": 0.25, "memory": "64MiB"}, max_attempts=5,
            sweep={"grid": {"n": {"from": 1, "to": JOBS}}},
        )  # fmt: skip
        settings: dict[str, Any] = {"runner": "podman", "podman_socket": str(podman.socket)}
        with WorkerProcess(tmp_path, own, url=proxy.url, env={"CONTAINERS_CONF": str(CONF)}, **settings) as worker:
            done = pool.done(run, 2700)
            name = worker.name
        assert done["jobs"]["succeeded"] == JOBS, done
        for number in range(1, JOBS + 1):
            job = pool.job(f"{run}.{number}")
            assert [each["outcome"] for each in job["history"]] == ["succeeded"], job
            assert pool.log(f"{run}.{number}") == b"begin %d\nend\n" % number
            [artifact] = job["artifacts"]
            assert artifact["sha256"] == hashlib.sha256(b"made by %d\n" % number).hexdigest()
        assert podman.of(name) == []
        assert all(proxy.seen[fault] for fault in ("drop_before", "drop_after", "delay", "duplicate", "cut"))
        done_audit = subprocess.run([*own.command("audit"), "--json"], capture_output=True, text=True, check=False)
        assert json.loads(done_audit.stdout)["findings"] == []


@long
@pytest.mark.timeout(3000)
def test_fault_38_an_artifact_of_5_gib_takes_constant_memory_and_is_resumed(tmp_path: Path) -> None:
    """Seen to fail when a large file is read in pieces of half a gigabyte."""
    with CoordinatorProcess(tmp_path, lease_seconds=30, heartbeat_seconds=2) as own:
        pool = Pool(own)
        with FaultProxy(own.url, rate=0.02, seed=3, faults=("drop_before", "drop_after")) as proxy:
            run = pool.submit(
                run="truncate -s 5G big; printf end >> big", artifacts=["big"], resources={"disk": "6GiB"}
            )
            with WorkerProcess(tmp_path, own, url=proxy.url) as worker:
                job = pool.until(run, seconds=2700)
                assert worker.process is not None
                assert own.process is not None
                assert _peak(worker.process.pid) < 300 << 20
                assert max(map(_peak, _family(own.process.pid))) < 300 << 20
            assert proxy.seen["drop_before"] + proxy.seen["drop_after"] > 0
        assert job["state"] == "succeeded", job
        assert job["artifacts"][0]["size"] == 5 * 2**30 + 3
        done = subprocess.run([*own.command("audit")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def _family(pid: int) -> list[int]:
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
