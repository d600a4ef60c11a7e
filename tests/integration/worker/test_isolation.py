"""What a hostile program can reach, per kind of isolation: it tries, and the table of docs/security.md is compared."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from deborgen_worker.folders import WORK
from deborgen_worker.runners import landlock
from deborgen_worker.runners.isolation import LABEL, LANDLOCK, NONE, USER
from deborgen_worker.settings import FIRST_USER
from support.documents import ROOT
from support.podman import IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

pytestmark = pytest.mark.root
HOSTILE = Path(__file__).with_name("hostile.py")
PYTHON = "/usr/bin/python3"
#: A user who is neither root nor known to the system.
SOMEBODY = 1_800_000_000
#: The columns of the table, and its rows by the names that `hostile.py` gives to its tries.
COLUMNS = {"container": 1, USER: 2, LANDLOCK: 3, NONE: 4}
ROWS = {
    "token": "the worker's token",
    "spool": "the worker's journal and history",
    "other jobs": "the folders of other jobs",
    "owner's files": "files that only the worker's user may read",
    "signals": "signals to processes of the worker and of other jobs",
    "memory": "the memory and the environment of those processes, with the secrets of other jobs",
    "commands": "the owner's commands",
    "network": "the network",
    "devices": "the machine's disks, past its file systems",
    "setuid": "more rights, by a setuid program",
    "stays": "running on after the job's end",
}
NewWorker = Callable[..., WorkerProcess]


def table(kind: str, root: bool) -> dict[str, bool]:
    """What the document says that a program can reach."""
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "security.md").read_text().splitlines() if "|" in line]
    cells = {row[0].strip(): row[COLUMNS[kind]].strip() for row in rows if len(row) == len(COLUMNS) + 1}
    found = {}
    for name, title in ROWS.items():
        word = cells[title].split()[0].strip(",;")
        assert word in {"yes", "no"}, f"{title}: {cells[title]}"
        found[name] = word == "yes" and (root or "if the worker is root" not in cells[title])
    return found


def run_as(pool: Pool, worker: WorkerProcess, folder: Path) -> dict[str, bool]:
    """What a hostile program reaches on this worker, beside another job."""
    requires = {"test": worker.name}
    victim = pool.submit(run="umask 077; echo mine > secret; pwd > where; sleep 900", requires=requires)
    attempts = worker.state / "attempts"
    wait_until(lambda: list(attempts.glob(f"*/{WORK}/where")), what="the other job to run", log=worker.log)
    where = next(attempts.glob(f"*/{WORK}/where")).read_text().strip()
    targets = make_targets(worker, folder, where)
    targets |= {
        "victim_pid": psutil.Process(targets["supervisor"]).children()[0].pid,
        "address": ["127.0.0.1", int(pool.coordinator.url.rpartition(":")[2])],
    }
    run = pool.submit(
        run=[PYTHON, "-c", HOSTILE.read_text()], env={"TARGETS": json.dumps(targets)}, requires=requires
    )  # fmt: skip
    job = pool.until(run, seconds=120)
    assert job["state"] == "succeeded", pool.log(run)
    reached: dict[str, Any] = dict(job["result"])
    wait_until(lambda: worker.stages() == ["running"], what="the job to be forgotten")
    stayed = [each for each in psutil.process_iter() if targets["mark"] in words_of(each)]
    reached["stays"] = bool(stayed)
    for each in stayed:
        each.kill()
    pool.admin.post(f"/v1/runs/{victim}/cancel", json={})
    return reached


def make_targets(worker: WorkerProcess, folder: Path, victim: str) -> dict[str, Any]:
    """What a hostile program is after: files, and the numbers of processes."""
    private, setuid = folder / "private", folder / "setuid-id"
    private.write_text("of the owner")
    private.chmod(0o600)
    os.chown(private, worker.user or 0, worker.user or 0)
    shutil.copy("/usr/bin/id", setuid)
    setuid.chmod(0o4755)
    assert worker.process is not None
    return {
        "token": str(worker.token_file), "state": str(worker.state), "victim": victim, "private": str(private),
        "worker": worker.process.pid, "setuid": str(setuid), "mark": f"stays-{worker.folder}",
        "supervisor": next(each.pid for each in psutil.process_iter() if is_supervisor(each, worker)),
    }  # fmt: skip


#: The same tries without Python, for a container. Nobody answers on a socket that is not there.
IN_CONTAINER = """
set +e
reach() { if (eval "$2") >/dev/null 2>&1; then echo "\\"$1\\": true,"; else echo "\\"$1\\": false,"; fi; }
{
echo "{"
reach token "cat $TOKEN"
reach spool "cat $STATE/journal || cat $STATE/history.jsonl"
reach 'other jobs' "cat $VICTIM/secret"
reach \"owner's files\" "cat $PRIVATE"
reach signals "kill -0 $WORKER || kill -0 $SUPERVISOR"
reach memory "cat /proc/$WORKER/environ || cat /proc/$SUPERVISOR/environ"
reach commands "test -S $STATE/control.sock || test -S $STATE/owner.sock || test -S $STATE/supervisor.sock"
reach network "wget -q -T 5 -O - http://$ADDRESS/health || ip -o link | grep -v ': lo:'"
reach devices 'for each in /dev/*; do test -b $each && exit 0; done; exit 1'
reach setuid "test -e $SETUID"
(setsid env -i sleep 900 $MARK &)
echo '"end": true}'
} > $DEBORGEN_RESULT
cat $DEBORGEN_RESULT
"""


def is_supervisor(process: psutil.Process, worker: WorkerProcess) -> bool:
    words = words_of(process)
    return str(worker.state) in words and any("supervisor.py" in word for word in words)


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def labels(pool: Pool, worker: WorkerProcess) -> dict[str, Any]:
    return dict(pool.admin.get(f"/v1/workers/{worker.name}").json()["labels"])


@pytest.mark.parametrize(
    ("kind", "user", "isolation"),
    [(USER, None, "auto"), (LANDLOCK, SOMEBODY, "auto"), (NONE, SOMEBODY, "off"), (NONE, None, "off")],
    ids=["root", "landlock", "nothing", "nothing-as-root"],
)
def test_fault_97_a_hostile_program_reaches_what_the_table_says(
    kind: str, user: int | None, isolation: str, new_worker: NewWorker, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when plain processes of a root worker run as root, and by hand when they are in no fence, may gain
    privileges, may talk to the worker's sockets, or are not ended with their user."""
    if kind == LANDLOCK and landlock.version() < landlock.SCOPES:
        pytest.skip("this kernel's Landlock is older than the table")
    name = f"hostile-{kind}-{user or 0}"
    worker = new_worker(name=name, user=user, isolation=isolation, labels=f"test={name}").start()
    wait_until(lambda: pool.state_of(name) == "open", what="the worker to join", log=worker.log)
    assert labels(pool, worker)[LABEL] == kind, worker.said()
    assert run_as(pool, worker, tmp_path) == table(kind, root=user is None)


@pytest.mark.podman
def test_fault_97_a_hostile_program_in_a_container_reaches_what_the_table_says(
    container_worker: NewWorker, podman: Podman, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when a container shares the processes of the machine."""
    worker = container_worker(name="hostile-container", labels="test=hostile-container").start()
    wait_until(lambda: pool.state_of(worker.name) == "open", what="the worker to join", log=worker.log)
    requires = {"test": worker.name}
    victim = pool.submit(run="echo mine > secret; sleep 900", image=IMAGE, requires=requires)
    attempts = worker.state / "attempts"
    wait_until(lambda: list(attempts.glob(f"*/{WORK}/secret")), what="the other job to run", log=worker.log)
    targets = make_targets(worker, tmp_path, str(next(attempts.glob(f"*/{WORK}/secret")).parent))
    env = {name.upper(): str(value) for name, value in targets.items()} | {"ADDRESS": pool.coordinator.url[7:]}
    run = pool.submit(run=IN_CONTAINER, image=IMAGE, env=env, requires=requires)
    job = pool.until(run, seconds=120)
    assert job["state"] == "succeeded", pool.log(run)
    assert job["result"].pop("end"), pool.log(run)
    reached = {**job["result"], "stays": any(targets["mark"] in words_of(each) for each in psutil.process_iter())}
    pool.admin.post(f"/v1/runs/{victim}/cancel", json={})
    assert reached == table("container", root=True)


def test_fault_97_each_job_has_a_user_of_its_own_and_later_sessions_know_it(
    new_worker: NewWorker, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when every folder gets the first user."""
    worker = new_worker(name="own-users", labels="test=own-users", cpus=8).start()
    go = tmp_path / "go"
    script = f"echo $(id -u) $(id -g) $(id -G); while [ ! -e {go} ]; do sleep 0.05; done; echo end > out"
    body = {"run": script, "requires": {"test": worker.name}, "resources": {"cpus": 1, "memory": "64MiB"}}
    first = pool.submit(**body, sweep={"grid": {"n": [1, 2, 3]}}, artifacts=["out"])
    wait_until(lambda: worker.answers() and worker.stages().count("running") == 3, what="three jobs to run")
    worker.kill()
    worker.start()
    second = pool.submit(**body, sweep={"grid": {"n": [1, 2, 3]}}, artifacts=["out"])
    wait_until(lambda: worker.answers() and worker.stages().count("running") == 6, what="six jobs to run")
    go.touch()
    pool.done(first), pool.done(second)
    names = [f"{run}.{number}" for run in (first, second) for number in (1, 2, 3)]
    seen = [pool.log(name).split() for name in names]
    assert all(len(each) == 3 and len(set(each)) == 1 and int(each[0]) >= FIRST_USER for each in seen), seen
    assert len({each[0] for each in seen}) == 6
    assert [len(pool.job(name)["artifacts"]) for name in names] == [1] * 6


def test_fault_97_no_file_that_only_root_may_read_becomes_an_artifact_or_a_result(
    new_worker: NewWorker, pool: Pool, tmp_path: Path
) -> None:
    """A second name for such a file. The kernel mostly forbids to make one, so the test makes it for the job. Seen to
    fail when files in a workspace are read whoever owns them."""
    worker = new_worker(name="second-names", labels="test=second-names").start()
    secret = worker.folder / "secret"
    secret.write_text('{"secret": 1}')
    secret.chmod(0o600)
    script = "pwd; while [ ! -e .deborgen/result.json ]; do sleep 0.05; done"
    run = pool.submit(run=script, artifacts=["stolen"], requires={"test": worker.name})
    wait_until(lambda: list(worker.state.glob("attempts/*/output")), what="the job to run", log=worker.log)
    folder = next(worker.state.glob("attempts/*/work"))
    for name in ("stolen", ".deborgen/progress", ".deborgen/events.jsonl", ".deborgen/result.json"):
        os.link(secret, folder / name)
    job = pool.until(run)
    assert (job["state"], job["artifacts"], job["result"]) == ("succeeded", [], None), job
    assert b"artifact 'stolen' was skipped" in pool.log(run)


def test_a_pause_also_stops_a_process_that_has_left_its_session(
    new_worker: NewWorker, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when only the job's process group is signalled."""
    worker = new_worker(name="freezes", labels="test=freezes").start()
    mark = tmp_path / "mark"
    script = f"setsid sh -c 'echo $$ > {mark}; exec sleep 900' & sleep 900"
    run = pool.submit(run=script, requires={"test": worker.name})
    wait_until(lambda: mark.exists() and mark.read_text().strip(), what="the job to run", log=worker.log)
    process = psutil.Process(int(mark.read_text()))
    worker.command("pause", "--now")
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, what="the process to be stopped")
    worker.command("resume")
    wait_until(lambda: process.status() == psutil.STATUS_SLEEPING, what="the process to be woken")
    pool.admin.post(f"/v1/runs/{run}/cancel", json={})
    wait_until(lambda: not process.is_running(), what="the process to be ended")


def test_a_job_can_use_its_files_although_the_umask_of_the_worker_closes_them(
    new_worker: NewWorker, pool: Pool
) -> None:
    """As in the playbooks' unit. Seen to fail when the modes of files are left to the umask."""
    before = os.umask(0o077)
    try:
        worker = new_worker(name="strict", labels="test=strict").start()
    finally:
        os.umask(before)
    requires, sweep = {"test": worker.name}, {"grid": {"n": [7]}}
    plain = pool.submit(run='cat "$DEBORGEN_PARAMS"', sweep=sweep, requires=requires)
    data = b"#!/bin/sh\necho given\n"
    sha256 = hashlib.sha256(data).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{sha256}", data=data).status_code in {200, 201}
    given = {"path": "deep/er/tool", "sha256": sha256, "size": len(data), "mode": 0o755}
    run = pool.submit(
        run='cat "$DEBORGEN_PARAMS"; deep/er/tool; echo more >> deep/er/tool; touch deep/new; echo tmp > $TMPDIR/tmp',
        sweep=sweep, files=[given], requires=requires,
    )  # fmt: skip
    assert pool.until(run)["state"] == "succeeded", pool.log(run)
    assert pool.log(run) == b'{"n":7}given\n'
    assert pool.until(plain)["state"] == "succeeded", pool.log(plain)
