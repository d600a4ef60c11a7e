"""Jobs give way to the programs of the machine's owner, however the worker was started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.podman import IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
CGROUPS = Path("/sys/fs/cgroup")


def gives_way(pid: int) -> bool:
    return (
        os.sched_getscheduler(pid) == os.SCHED_IDLE
        and psutil.Process(pid).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
        and Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
    )


def processes_of(worker: WorkerProcess) -> list[int]:
    """The worker and its supervisor."""
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if str(worker.state) in (each.info["cmdline"] or ())]


def session_weight(pid: int) -> str:
    """The weight of its session for the kernel's scheduler, if the kernel weighs sessions."""
    try:
        return Path(f"/proc/{pid}/autogroup").read_text().split()[-1]
    except OSError:
        return "19"


def test_a_plain_process_and_its_children_run_only_while_nobody_else_wants_to(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when the supervisor starts programs like any other program, and, for the weight of the session, when
    each program gets a session of its own."""
    worker = new_worker(labels="test=idle", priority="idle").start()
    for number in (1, 2):
        mark, child = tmp_path / f"pid-{number}", tmp_path / f"child-{number}"
        script = f"sh -c 'echo $$ > {child}; sleep 1000' & echo $$ > {mark}; wait"
        pool.submit(run=script, requires={"test": "idle"})
        for path in (mark, child):
            pid = int(wait_until(lambda: path.exists() and path.read_text().strip(), 90, log=worker.log))  # noqa: B023
            # The supervisor sees to it just after the start, so that it never has to wait for a program that gives way.
            wait_until(lambda: gives_way(pid) and session_weight(pid) == "19", 30, "the program to give way")  # noqa: B023
    assert worker.process is not None
    assert os.sched_getscheduler(worker.process.pid) == os.SCHED_OTHER
    [supervisor] = set(processes_of(worker)) - {worker.process.pid}
    assert os.sched_getscheduler(supervisor) == os.SCHED_OTHER, "time limits must hold while jobs are busy"


@pytest.mark.podman
@pytest.mark.root
def test_containers_have_the_lowest_weight_together(container_worker: Make, pool: Pool, podman: Podman) -> None:
    """Seen to fail when only the container itself has the lowest weight: Podman's group of all containers then has as
    much weight as everything that the owner runs."""
    worker = container_worker(labels="test=light", priority="idle").start()
    run = pool.submit(run="sleep 1000", image=IMAGE, requires={"test": "light"})
    pool.until(run, "running")
    [container] = wait_until(lambda: podman.of(worker.name), 90)
    pid = wait_until(lambda: int(podman("inspect", "-f", "{{.State.Pid}}", container)))
    wait_until(lambda: gives_way(pid), what="the container's program to give way")
    groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    v1 = "cpu" in groups
    path = groups["cpu"] if v1 else groups[""]
    assert path.startswith("/deborgen/")
    weight = CGROUPS / ("cpu/deborgen/cpu.shares" if v1 else "deborgen/cpu.weight")
    assert weight.read_text().strip() == ("10" if v1 else "1")
    pool.admin.post(f"/v1/jobs/{run}.1/cancel", json={})
    pool.until(run)


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A group whose processes have 300 MiB together, like a machine whose memory is nearly used up."""
    parent = next(
        line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line
    )
    folder = CGROUPS / "memory" / parent[2].lstrip("/") / f"deborgen-test-{os.getpid()}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(300 << 20))
    yield folder
    for line in (folder / "cgroup.procs").read_text().split():
        os.kill(int(line), signal.SIGKILL)
    wait_until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.mark.root
@pytest.mark.skipif(not (CGROUPS / "memory").is_dir(), reason="needs cgroups version 1")
def test_a_program_that_is_killed_because_the_machine_has_too_little_memory_is_given_back(
    new_worker: Make, pool: Pool, little_memory: Path, tmp_path: Path
) -> None:
    """It stays below the memory that its job has. Seen to fail when every SIGKILL is the program's own fault."""
    mark = tmp_path / "second"
    worker = new_worker(labels="test=short-of-memory").start()
    assert worker.process is not None
    wait_until(worker.answers, what="the worker to answer", log=worker.log)
    for pid in processes_of(worker):
        (little_memory / "cgroup.procs").write_text(str(pid))
    big = "b = bytearray(900 << 20); b[::4096] = b'x' * len(b[::4096])"
    script = f'[ -e {mark} ] && exit 0; touch {mark}; exec python3 -c "{big}"'
    run = pool.submit(run=script, requires={"test": "short-of-memory"}, resources={"memory": "2GiB"})
    job = pool.until(run, seconds=120)
    assert [each["outcome"] for each in job["history"]] == ["released", "succeeded"], job["history"]
    assert "the memory of this machine ran short" in job["history"][0]["reason"]
    assert job["attempts"] == 1
