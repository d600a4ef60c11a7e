"""kill -9 of the worker at each step of an attempt: the job ends exactly once, with the right result."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import deborgen_worker
from deborgen_worker.crash import VARIABLE
from support.podman import IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess, shared_file

Make = Callable[..., WorkerProcess]
SOURCE = Path(deborgen_worker.__file__).parent
#: Every crash point of the worker.
POINTS = sorted(
    {
        name
        for each in SOURCE.rglob("*.py")
        for name in re.findall(r'\bcrash_point\("(.+?)"\)', each.read_text())
        if "checkpoint" not in name  # see test_checkpoints.py
    }
)


def ended_once(job: dict[str, Any]) -> None:
    """Check that there is one result, and that it used up one attempt. Attempts that were given back do not count."""
    outcomes = [each["outcome"] for each in job["history"]]
    assert outcomes.count("succeeded") == 1, job["history"]
    assert set(outcomes) <= {"succeeded", "released"}, job["history"]
    assert job["attempts"] == 1


@pytest.mark.parametrize("place", POINTS)
def test_fault_11_a_worker_killed_at_any_step_delivers_one_correct_result(
    place: str, new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when an attempt that was started before is started again."""
    ran = tmp_path / "ran"
    run = pool.submit(
        run=f'echo once >> {ran}; echo hello; echo \'{{"type": "told"}}\' >> $DEBORGEN_EVENTS; sleep 0.2;'
        " echo made > out.txt; echo '{\"n\": 7}' > $DEBORGEN_RESULT",
        artifacts=["out.txt"],
    )
    worker = new_worker().start(**{VARIABLE: place})
    assert worker.process is not None
    assert worker.process.wait(90) == -signal.SIGKILL

    worker.start()
    job = pool.until(run)

    assert job["state"] == "succeeded", job["reason"]
    ended_once(job)
    assert ran.read_text() == "once\n"
    assert pool.log(run) == b"hello\n"
    assert job["result"] == {"n": 7}
    assert [each["path"] for each in job["artifacts"]] == ["out.txt"]
    events = pool.admin.get(f"/v1/events?job={run}.1&limit=1000").json()["items"]
    assert [each["data"]["type"] for each in events if each["type"] == "job.event"] == ["told"]
    wait_until(lambda: worker.command("status").returncode == 0)
    wait_until(lambda: worker.status()["unsent"] == 0)


def test_fault_11_short_jobs_in_chains_all_end_once_however_often_the_worker_is_killed(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when an attempt that was started before is started again."""
    jobs = 400
    ran = shared_file(tmp_path / "ran")
    run = pool.submit(
        run=f"echo $DEBORGEN_PARAM_N >> {ran}", resources={"cpus": 0.1, "memory": "64MiB"},
        sweep={"grid": {"n": {"from": 1, "to": jobs}}},
    )  # fmt: skip
    worker = new_worker(slots=2)
    for part in (1, 2, 3, 4):
        worker.start()
        wait_until(lambda: len(ran.read_text().splitlines()) > part * jobs // 5)  # noqa: B023
        worker.kill()
    worker.start()
    done = pool.done(run)
    assert done["jobs"]["succeeded"] == jobs, done
    assert sorted(map(int, ran.read_text().split())) == list(range(1, jobs + 1))
    for number in range(1, jobs + 1):
        ended_once(pool.job(f"{run}.{number}"))


def test_fault_10_a_plain_process_goes_on_while_the_worker_is_dead(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when nothing of an earlier session is adopted."""
    gate = tmp_path / "gate"
    run = pool.submit(run=f"echo one; while [ ! -e {gate} ]; do sleep 0.02; done; echo two; exit 3")
    worker = new_worker().start()
    wait_until(lambda: pool.log(run) == b"one\n")
    worker.kill()
    gate.touch()

    worker.start()
    job = pool.until(run)

    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 3, 1)
    assert pool.log(run) == b"one\ntwo\n"
    assert "is still running" in worker.said() or "ended while no worker was running" in worker.said()


def test_a_supervisor_that_is_killed_ends_its_jobs_as_errors(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    beats = [tmp_path / "beat", tmp_path / "apart"]
    loop = "while true; do date +%N > {}; sleep 0.02; done"
    run = pool.submit(run=f"setsid sh -c '{loop.format(beats[1])}' & {loop.format(beats[0])}")
    worker = new_worker().start()
    wait_until(lambda: all(beat.exists() for beat in beats))
    worker._end_supervisor()

    job = pool.until(run)

    assert (job["state"], job["history"][0]["outcome"]) == ("failed", "error")
    assert "supervisor" in job["reason"]
    before = [beat.read_text() for beat in beats]
    assert pool.until(pool.submit(run="sleep 0.2; true"))["state"] == "succeeded"
    assert [beat.read_text() for beat in beats] == before, "an orphan was not killed"


def test_fault_12_a_reboot_during_a_job_is_never_a_success(new_worker: Make, pool: Pool) -> None:
    """Seen to fail when a reboot is not noticed."""
    run = pool.submit(run="sleep 60")
    worker = new_worker().start(DEBORGEN_WORKER_BOOT_ID="first")
    pool.until(run, "running")
    wait_until(lambda: worker.stages() == ["running"])
    pool.until_named(run)
    worker.kill()

    worker.start(DEBORGEN_WORKER_BOOT_ID="second")
    job = pool.until(run)

    assert (job["state"], job["history"][0]["outcome"]) == ("failed", "lost")
    assert "lost when this machine was restarted" in worker.said()


def test_fault_13_a_result_in_the_spool_is_delivered_after_a_reboot(new_worker: Make, pool: Pool) -> None:
    """Seen to fail when after a reboot no result counts."""
    run = pool.submit(run="echo done; exit 4")
    worker = new_worker().start(**{VARIABLE: "after-result-written", "DEBORGEN_WORKER_BOOT_ID": "first"})
    assert worker.process is not None
    worker.process.wait(90)

    worker.start(DEBORGEN_WORKER_BOOT_ID="second")
    job = pool.until(run)

    assert (job["state"], job["exit_code"]) == ("failed", 4)
    assert [each["outcome"] for each in job["history"]] == ["failed"]
    assert pool.log(run) == b"done\n"


@pytest.mark.podman
@pytest.mark.root
@pytest.mark.parametrize("place", ["after-start-written", "after-started", "after-exited", "after-result-appended"])
def test_fault_11_a_container_runs_once_wherever_the_worker_is_killed(
    place: str, container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when an attempt that was started before is started again."""
    run = pool.submit(image=IMAGE, run="echo hello; sleep 0.5; echo made > out.txt", artifacts=["out.txt"])
    worker = container_worker().start(**{VARIABLE: place})
    assert worker.process is not None
    assert worker.process.wait(90) == -signal.SIGKILL

    worker.start()
    job = pool.until(run, seconds=120)

    assert job["state"] == "succeeded", job["reason"]
    ended_once(job)
    assert pool.log(run) == b"hello\n"
    assert [each["path"] for each in job["artifacts"]] == ["out.txt"]
    wait_until(lambda: podman.of(worker.name) == [])


@pytest.mark.podman
@pytest.mark.root
def test_fault_10_a_container_is_adopted_with_its_whole_log_and_its_exit_code(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when nothing of an earlier session is adopted."""
    run = pool.submit(image=IMAGE, run="seq 1 20; while [ ! -e go ]; do sleep 0.02; done; seq 21 40; exit 5")
    worker = container_worker().start()
    wait_until(lambda: b"20\n" in pool.log(run), 90)
    [container] = podman.of(worker.name)
    worker.kill()

    worker.start()
    wait_until(lambda: "is still running" in worker.said(), 90)
    assert podman.of(worker.name) == [container]
    (worker.state / "attempts" / f"{run}.1-1" / "work" / "go").touch()
    job = pool.until(run)

    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 5, 1)
    assert pool.log(run) == b"".join(b"%d\n" % number for number in range(1, 41))


@pytest.mark.podman
@pytest.mark.root
def test_fault_55_a_workers_own_leftovers_are_removed_and_those_of_others_are_not(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when leftovers are not removed."""
    worker = container_worker()
    label = f"deborgen.worker={worker.name}"
    podman(
        "run", "-d", "--network", "none", "--label", label, "--label", "deborgen.attempt=9.9/9", IMAGE, "sleep", "100"
    )
    foreign = podman(
        "run", "-d", "--network", "none", "--label", f"deborgen.worker={worker.name}x", IMAGE, "sleep", "100"
    )
    plain = podman("run", "-d", "--network", "none", IMAGE, "sleep", "100")
    try:
        worker.start()
        wait_until(lambda: podman.of(worker.name) == [], 90)
        assert podman("inspect", "-f", "{{.State.Running}}", foreign) == "true"
        assert podman("inspect", "-f", "{{.State.Running}}", plain) == "true"
    finally:
        podman("rm", "-f", "-t", "0", foreign, plain)


@pytest.mark.podman
@pytest.mark.root
def test_fault_12_a_container_of_another_boot_is_lost_and_removed(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when a reboot is not noticed."""
    run = pool.submit(image=IMAGE, run="sleep 60; exit 0")
    worker = container_worker().start(DEBORGEN_WORKER_BOOT_ID="first")
    wait_until(lambda: podman.of(worker.name), 90)
    pool.until_named(run)
    worker.kill()

    worker.start(DEBORGEN_WORKER_BOOT_ID="second")
    job = pool.until(run)

    assert (job["state"], job["history"][0]["outcome"]) == ("failed", "lost")
    wait_until(lambda: podman.of(worker.name) == [], 90)
