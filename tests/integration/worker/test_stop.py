"""The end of a worker: what its service manager, its terminal and its owner ask for, also when it is dead already."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import clean_environment
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until
from support.worker import WorkerProcess, shared_file

Make = Callable[..., WorkerProcess]
NOTHING = "nothing of deborgen runs"


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0].replace("Z", "")
    except OSError:
        return ""


def ours(worker: WorkerProcess) -> list[str]:
    """The command lines of all processes that name the worker's state directory, or whose environment does."""
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and int(each.name) != os.getpid() and state_of(int(each.name)):
                words = (each / "cmdline").read_bytes()
                if str(worker.state).encode() in words + (each / "environ").read_bytes():
                    found.append(words.replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def new_worker(new_worker: Make, tmp_path: Path) -> Make:
    """Workers of one test share a label, because jobs that were given back are still queued in the next test."""
    return lambda **settings: new_worker(labels=f"test={tmp_path.name}", **settings)


def label_of(worker: WorkerProcess) -> dict[str, str]:
    key, _, value = worker.settings["labels"].partition("=")
    return {key: value}


def begun(pool: Pool, worker: WorkerProcess, folder: Path, **spec: object) -> tuple[int, int]:
    """A run whose program runs until the file `go` exists, and its pid. A heartbeat has named it."""
    mark, go = shared_file(folder / "pid"), folder / "go"
    run = pool.submit(
        run=f"echo $$ > {mark}; while [ ! -e {go} ]; do sleep 0.02; done", requires=label_of(worker), **spec
    )
    wait_until(lambda: mark.read_text().strip(), what="the program to begin", log=worker.log)
    pool.until_named(run)
    return run, int(mark.read_text())


def begun_container(pool: Pool, worker: WorkerProcess, podman: Podman) -> tuple[int, str]:
    run = pool.submit(image=IMAGE, run="echo up; while [ ! -e go ]; do sleep 0.02; done", requires=label_of(worker))
    wait_until(lambda: pool.log(run) == b"up\n", what="the program to begin", log=worker.log)
    pool.until_named(run)
    [container] = podman.of(worker.name)
    return run, container


def released(pool: Pool, run: int) -> bool:
    """Whether the run's only job was given back, and lost no attempt."""
    job = pool.job(run)
    return (job["state"], job["attempts"], job["history"][0]["outcome"]) == ("queued", 0, "released")


# The service manager


@pytest.fixture
def unit() -> Iterator[str]:
    """The name of a service, with a control group as systemd makes it. Processes may join it."""
    name = f"deborgen-test-{os.getpid()}.service"
    folder = Path("/sys/fs/cgroup/systemd") if Path("/sys/fs/cgroup/systemd").exists() else Path("/sys/fs/cgroup")
    (folder / name).mkdir()
    yield name
    for pid in (folder / name / "cgroup.procs").read_text().split():
        (folder / "cgroup.procs").write_text(pid)
    (folder / name).rmdir()


def join(unit: str, pid: int) -> None:
    folder = Path("/sys/fs/cgroup/systemd") if Path("/sys/fs/cgroup/systemd").exists() else Path("/sys/fs/cgroup")
    (folder / unit / "cgroup.procs").write_text(str(pid))


def manager_says(folder: Path, script: str) -> dict[str, str]:
    """An environment with a `systemctl` that is this script. The fleet's tests ask a real systemd."""
    program = folder / "bin" / "systemctl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.root
@pytest.mark.parametrize("answer", ["echo '  7 {unit} stop running'", "exit 1"], ids=["stop", "no answer"])
def test_fault_87_a_unit_that_is_stopped_gives_its_jobs_back_at_once(
    answer: str, new_worker: Make, pool: Pool, unit: str, tmp_path: Path
) -> None:
    """With --drain-grace, the job would have ten minutes. Seen to fail when the worker hands over at every end."""
    worker = new_worker(drain_grace="10m", env=manager_says(tmp_path, answer.format(unit=unit))).start()
    run, pid = begun(pool, worker, tmp_path)
    assert worker.process is not None
    join(unit, worker.process.pid)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(90) == 0
    assert not state_of(pid)
    assert released(pool, run)
    wait_until(lambda: ours(worker) == [], what="the supervisor to end")
    status = worker.command("status")
    assert (status.returncode, NOTHING in status.stderr) == (7, True)


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_fault_87_a_unit_that_is_restarted_hands_its_jobs_over(
    number: signal.Signals, new_worker: Make, pool: Pool, unit: str, tmp_path: Path
) -> None:
    """Seen to fail when the worker never hands over."""
    answer = f"echo '1 other.service stop waiting'; echo '22 {unit} restart running'"
    worker = new_worker(env=manager_says(tmp_path, answer)).start()
    run, pid = begun(pool, worker, tmp_path)
    assert worker.process is not None
    join(unit, worker.process.pid)
    worker.process.send_signal(number)
    assert worker.process.wait(90) == 0
    assert state_of(pid)
    worker.start()
    (tmp_path / "go").touch()
    job = pool.until(run)
    assert (job["state"], len(job["history"])) == ("succeeded", 1)


def test_fault_87_a_shutdown_that_sends_term_to_all_processes_fails_no_job(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """As for a worker in a terminal, or a unit without KillMode. Seen to fail when a program is
    blamed for the signal of a shutdown."""
    worker = new_worker(drain_grace="10m").start()
    run, pid = begun(pool, worker, tmp_path)
    assert worker.process is not None
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for each in (worker.process.pid, supervisor, pid):
        os.kill(each, signal.SIGTERM)
    assert worker.process.wait(90) == 0
    assert released(pool, run)
    assert ours(worker) == []


# The terminal


def test_fault_87_a_closed_terminal_drains(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    """A short job finishes, a long one is given back. Seen to fail when the worker hands over at every end."""
    worker = new_worker()
    here, there = pty.openpty()
    command = [
        sys.executable, "-m", "deborgen_worker", "run", "--coordinator", worker.url, "--name", worker.name,
        "--token-file", str(worker.token_file), "--state-dir", str(worker.state), "--runner", "subprocess",
        "--cpus", "2", "--drain-grace", "5s", "--kill-grace", "1s", "--labels", worker.settings["labels"],
    ]  # fmt: skip

    def on_terminal() -> None:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command, stdin=there, stdout=there, stderr=there, env=clean_environment(), start_new_session=True,
        preexec_fn=on_terminal,
    )  # fmt: skip
    os.close(there)
    reader = subprocess.Popen(["cat"], stdin=here, stdout=subprocess.DEVNULL)  # the terminal's window
    try:
        folders = [tmp_path / "long", tmp_path / "short"]
        for folder in folders:
            folder.mkdir()
        (long, pid), (short, _) = (begun(pool, worker, folder) for folder in folders)
        reader.kill()
        os.close(here)  # the kernel sends HUP
        reader.wait()
        wait_until(lambda: pool.state_of(worker.name) == "draining", what="the worker to drain")
        (tmp_path / "short" / "go").touch()
        assert process.wait(90) == 0
        assert pool.job(short)["state"] == "succeeded"
        assert released(pool, long)
        assert not state_of(pid)
        assert ours(worker) == []
    finally:
        process.kill()
        process.wait()
        worker._end_supervisor()


def test_a_worker_under_nohup_outlives_its_terminal(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    """Seen to fail when the worker catches a signal that it was started to ignore."""
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        worker = new_worker().start()
    finally:
        signal.signal(signal.SIGHUP, ignored)
    _, pid = begun(pool, worker, tmp_path)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGHUP)
    assert worker.status()["state"] == "open"
    assert state_of(pid)


# The owner's commands


def test_stop_gives_all_jobs_back_and_nothing_runs_afterwards(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    worker = new_worker(drain_grace="10m").start()
    run, pid = begun(pool, worker, tmp_path)
    said = worker.command("stop").stdout
    assert said == "1 job given back; the worker has ended; nothing of deborgen runs here now\n"
    assert worker.process is not None
    assert worker.process.wait(10) == 0
    assert not state_of(pid)
    assert released(pool, run)
    assert ours(worker) == []
    assert NOTHING in worker.command("status").stderr


def test_stop_keeps_the_jobs_for_the_next_worker_if_it_is_asked_to(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    worker = new_worker().start()
    run, pid = begun(pool, worker, tmp_path)
    assert "1 job left running" in worker.command("stop", "--keep-jobs").stdout
    assert state_of(pid)
    worker.start()
    (tmp_path / "go").touch()
    job = pool.until(run)
    assert (job["state"], len(job["history"])) == ("succeeded", 1)


def test_stop_ends_a_worker_that_does_not_answer(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    """Seen to fail when a worker that hangs counts as dead."""
    worker = new_worker().start()
    _, pid = begun(pool, worker, tmp_path)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGSTOP)
    assert "1 job: " in worker.command("stop").stdout
    assert worker.process.wait(10) == -signal.SIGKILL
    assert not state_of(pid)
    assert ours(worker) == []


@pytest.mark.parametrize("command", ["stop", "leave"])
@pytest.mark.parametrize("supervised", [True, False], ids=["with its supervisor", "without"])
def test_fault_87_a_process_whose_worker_is_dead_is_ended_by_its_owner(
    command: str, supervised: bool, new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """The job runs elsewhere at once. Seen to fail when the owner's commands reach no program
    without its worker."""
    worker = new_worker().start()
    run, pid = begun(pool, worker, tmp_path)
    worker.kill()
    if not supervised:
        worker._end_supervisor()
    assert f"{run}.1/1" in worker.command("status").stdout
    said = worker.command(command).stdout
    assert f"ended 1 job: {run}.1/1; {worker.name} has left the pool until it is started again; {NOTHING}" in said
    assert not state_of(pid)
    assert ours(worker) == []
    assert released(pool, run)
    assert NOTHING in worker.command("status").stderr
    worker.start()
    (tmp_path / "go").touch()
    assert pool.until(run)["state"] == "succeeded"


def test_a_job_that_its_owner_ended_is_given_back_by_the_next_session(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """The coordinator could not be told. Seen to fail when the journal does not say who ended it."""
    worker = new_worker().start()
    run, _ = begun(pool, worker, tmp_path)
    worker.kill()
    token = worker.token_file.read_text()
    worker.token_file.unlink()
    assert "the coordinator was not told" in worker.command("stop").stdout
    worker.token_file.write_text(token)
    worker.token_file.chmod(0o600)
    worker.start()
    wait_until(lambda: pool.job(run)["history"][0]["outcome"] == "released", what="the job to be given back")
    (tmp_path / "go").touch()
    assert pool.until(run)["state"] == "succeeded"


@pytest.mark.podman
@pytest.mark.root
@pytest.mark.parametrize("supervised", [True, False], ids=["with its supervisor", "without"])
def test_fault_87_a_container_whose_worker_is_dead_is_ended_by_its_owner(
    supervised: bool, container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """A container of another state directory stays. Seen to fail when the owner's commands reach no program
    without its worker."""
    worker = container_worker().start()
    run, container = begun_container(pool, worker, podman)
    label = f"deborgen.worker={worker.name}"
    other = podman(
        "run", "-d", "--network=none", "--label", label, "--label", "deborgen.state=/other", IMAGE, "sleep", "100"
    )
    worker.kill()
    if not supervised:
        worker._end_supervisor()
    assert f"{run}.1/1" in worker.command("status").stdout
    assert f"ended 1 job: {run}.1/1" in worker.command("stop").stdout
    assert podman.of(worker.name, "--no-trunc") == [other]
    assert container not in other
    wait_until(lambda: ours(worker) == [], what="the container's monitor to end")
    assert released(pool, run)
    assert NOTHING in worker.command("status").stderr


@pytest.mark.podman
@pytest.mark.root
def test_the_workers_own_podman_service_ends_with_it(new_worker: Make, pool: Pool, podman: Podman) -> None:
    """Seen to fail when it is left to end by itself after a minute, and when the worker ends before the removal."""
    env = {"CONTAINERS_CONF": str(CONF)}
    worker = new_worker(runner="podman", env=env | {"XDG_RUNTIME_DIR": "/nonexistent"}).start()
    run = pool.submit(image=IMAGE, run="sleep 1000", requires=label_of(worker))
    pool.until_named(run)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(90) == 0
    wait_until(lambda: ours(worker) == [], what="the service to end")
    assert released(pool, run)
    assert podman.of(worker.name) == [], "its ended container is removed too"


@pytest.mark.podman
@pytest.mark.root
def test_a_container_whose_worker_dies_while_it_starts_does_not_run_on(
    new_worker: Make, pool: Pool, podman_ready: None, tmp_path: Path
) -> None:
    """Seen to fail when the supervisor hears of a container only after its start."""
    made: list[WorkerProcess] = []

    def aim(line: str, _body: bytes) -> str:
        if "/start" in line:
            made[0].kill()  # the request still reaches Podman
        return ""

    folder = tmp_path / "p"
    folder.mkdir()
    podman = Podman(folder).start_service_on_a_port()
    try:
        with TargetedProxy(podman.url.replace("tcp", "http"), aim) as proxy:
            env = {"CONTAINERS_CONF": str(CONF), "DEBORGEN_TAKE_UP_SECONDS": "2"}
            address = proxy.url.replace("http", "tcp")
            worker = new_worker(runner="podman", podman_socket=address, env=env).start()
            made.append(worker)
            pool.submit(image=IMAGE, run="sleep 1000", requires=label_of(worker))
            wait_until(lambda: podman.of(worker.name, "--filter", "status=running"), what="the container to start")
            wait_until(lambda: not podman.of(worker.name, "--filter", "status=running"), what="the container to end")
    finally:
        podman.remove_all(made[0].name)
        podman.stop_service()


# Pauses across the death of a worker


@pytest.mark.podman
@pytest.mark.root
@pytest.mark.parametrize("supervised", [True, False], ids=["with its supervisor", "without"])
def test_fault_87_a_container_that_is_resumed_while_the_worker_is_dead_does_not_stay_frozen(
    supervised: bool, container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when the owner's commands reach no program without its worker."""
    worker = container_worker(keep_frozen="10m").start()
    run, container = begun_container(pool, worker, podman)
    worker.command("pause", "--now")
    wait_until(lambda: podman.inspect(container)["State"]["Paused"])
    worker.kill()
    if not supervised:
        worker._end_supervisor()
    assert "is frozen without a worker" in worker.command("status").stdout
    assert "1 frozen job continues" in worker.command("resume").stdout
    assert not podman.inspect(container)["State"]["Paused"]
    worker.start()
    (worker.state / "attempts" / f"{run}.1-1" / "work" / "go").touch()
    job = pool.until(run)
    assert (job["state"], len(job["history"])) == ("succeeded", 1)


def test_fault_87_a_process_that_is_resumed_while_the_worker_is_dead_does_not_stay_frozen(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when the owner's commands reach no program without its worker."""
    worker = new_worker(keep_frozen="10m").start()
    run, pid = begun(pool, worker, tmp_path)
    worker.command("pause", "--now")
    wait_until(lambda: state_of(pid) == "T")
    worker.kill()
    assert "1 frozen job continues" in worker.command("resume").stdout
    wait_until(lambda: state_of(pid) in {"S", "R"})
    worker.start()
    (tmp_path / "go").touch()
    job = pool.until(run)
    assert (job["state"], len(job["history"])) == ("succeeded", 1)


@pytest.mark.podman
@pytest.mark.root
def test_pause_now_reaches_programs_whose_worker_and_supervisor_are_dead(
    container_worker: Make, pool: Pool, podman: Podman, tmp_path: Path
) -> None:
    """The next worker ends the process, whose exit code nobody would know, and adopts the container."""
    worker = container_worker(runner="both", keep_frozen="10m").start()
    run, container = begun_container(pool, worker, podman)
    lost, pid = begun(pool, worker, tmp_path)
    worker.kill()
    worker._end_supervisor()
    assert "2 running jobs are frozen" in worker.command("pause", "--now").stdout
    assert podman.inspect(container)["State"]["Paused"]
    assert state_of(pid) == "T"
    worker.start()
    wait_until(lambda: worker.answers() and "frozen" in worker.stages(), what="the container to be adopted")
    wait_until(lambda: not state_of(pid), what="the process to end")
    worker.command("resume")
    (worker.state / "attempts" / f"{run}.1-1" / "work" / "go").touch()
    assert pool.until(run)["state"] == "succeeded"
    outcomes: list[Any] = [each["outcome"] for each in pool.job(lost)["history"]]
    assert outcomes == ["lost"]
