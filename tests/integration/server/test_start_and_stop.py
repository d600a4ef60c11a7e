"""How a coordinator starts, stops and crashes, and that no other one uses its data."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess, children_of, clean_environment
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


def run(coordinator: CoordinatorProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = coordinator.command(*arguments)
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60)


def test_the_first_start_prints_the_address_and_how_to_create_a_token(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path) as coordinator:
        assert coordinator.url.startswith("http://127.0.0.1:")
        assert not coordinator.url.endswith(":0")
        wait_until(lambda: "token create --role admin" in coordinator.greeting)
        assert str(coordinator.data_dir) in coordinator.greeting
        token = run(coordinator, "token", "create", "--role", "admin", "--name", "ada")
        assert token.stdout.startswith("dbg_admin_")
        assert len(token.stdout.splitlines()) == 1, "the secret alone"
        assert token.stderr == ""
        coordinator.restart()
        assert coordinator.client("admin").get("/v1/tokens").status_code == 200
        assert "token create" not in coordinator.greeting


def test_a_stop_answers_long_polls_and_ends_streams_at_once(own_coordinator: CoordinatorProcess) -> None:
    worker = ScriptedWorker(own_coordinator, "w1")
    viewer = own_coordinator.client("viewer")
    answers: dict[str, Any] = {}

    def claim() -> None:
        body = {"request_id": "r1", "free": {"cpus": 1}, "wait_seconds": 60}
        answers["claim"] = worker.post("claim", body).status_code

    def listen() -> None:
        with viewer.get("/v1/events", headers={"Accept": "text/event-stream"}, stream=True) as answer:
            answers["listening"] = True
            answers["events"] = b"".join(answer.iter_content(None))

    threads = [threading.Thread(target=work, daemon=True) for work in (claim, listen)]
    for thread in threads:
        thread.start()
    wait_until(lambda: answers.get("listening"))
    other = own_coordinator.client("admin")
    wait_until(lambda: other.get("/v1/workers/w1").json()["last_seen_at"])
    begin = time.monotonic()
    assert own_coordinator.stop() == 0
    assert time.monotonic() - begin < 10
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert answers["claim"] == 204
    assert answers["events"].startswith(b"retry: ")


def test_a_second_coordinator_on_the_same_data_refuses_to_start(own_coordinator: CoordinatorProcess) -> None:
    second = run(own_coordinator, "serve", "--listen", "127.0.0.1:0")
    assert second.returncode == 1
    assert second.stdout == ""
    (sentence,) = second.stderr.splitlines()
    assert "another coordinator" in sentence
    assert str(own_coordinator.data_dir) in sentence
    assert own_coordinator.client(None).get("/health").status_code == 200
    migrating = run(own_coordinator, "migrate")
    assert (migrating.returncode, "another coordinator" in migrating.stderr) == (1, True)


def test_a_serving_process_that_dies_is_replaced(own_coordinator: CoordinatorProcess) -> None:
    admin = own_coordinator.client("admin")
    run_id = admin.post("/v1/runs", json={"run": "true"}).json()["id"]
    assert own_coordinator.process is not None
    (child,) = children_of(own_coordinator.process.pid)
    os.kill(child, signal.SIGKILL)

    def answers() -> bool:
        try:
            return own_coordinator.client("admin").get(f"/v1/runs/{run_id}").status_code == 200
        except OSError:
            return False

    wait_until(answers)
    assert children_of(own_coordinator.process.pid) != [child]


def test_an_idle_serving_process_keeps_reporting_to_its_parent(own_coordinator: CoordinatorProcess) -> None:
    """One that does not is killed after a few minutes. It reports by touching a file that was unlinked."""
    assert own_coordinator.process is not None
    (child,) = children_of(own_coordinator.process.pid)
    (file,) = [fd for fd in Path(f"/proc/{child}/fd").iterdir() if "wgunicorn-" in str(fd.readlink())]
    for _ in range(3):
        told = file.stat().st_mtime
        wait_until(lambda told=told: file.stat().st_mtime != told, what="the next report")  # type: ignore[misc]


def test_a_serving_process_does_not_outlive_its_parent(own_coordinator: CoordinatorProcess) -> None:
    assert own_coordinator.process is not None
    (child,) = children_of(own_coordinator.process.pid)
    os.kill(own_coordinator.process.pid, signal.SIGKILL)
    own_coordinator.process.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    own_coordinator.start()
    assert own_coordinator.client(None).get("/health").status_code == 200


def test_no_signal_makes_a_second_serving_process(own_coordinator: CoordinatorProcess) -> None:
    assert own_coordinator.process is not None
    (child,) = children_of(own_coordinator.process.pid)
    for number in (signal.SIGHUP, signal.SIGTTIN, signal.SIGUSR2):
        seen = own_coordinator.logged().count("ignored a signal")
        own_coordinator.process.send_signal(number)
        wait_until(lambda: own_coordinator.logged().count("ignored a signal") > seen)  # noqa: B023
        assert children_of(own_coordinator.process.pid) == [child]
    assert own_coordinator.client(None).get("/health").status_code == 200


def test_a_port_in_use_is_reported_in_one_line(own_coordinator: CoordinatorProcess, tmp_path: Path) -> None:
    other = CoordinatorProcess(tmp_path / "other")
    other.folder.mkdir()
    started = run(other, "serve", "--listen", own_coordinator.url.removeprefix("http://"))
    assert started.returncode == 1
    assert started.stdout == ""
    (sentence,) = started.stderr.splitlines()
    assert "cannot listen" in sentence
    assert "in use" in sentence


def test_a_database_of_a_newer_release_is_refused_in_one_line(own_coordinator: CoordinatorProcess) -> None:
    own_coordinator.stop()
    (file,) = own_coordinator.data_dir.glob("*.sqlite")
    with sqlite3.connect(file) as database:
        database.execute("INSERT INTO schema_version (version) VALUES (12345)")
    database.close()
    started = run(own_coordinator, "serve", "--listen", "127.0.0.1:0")
    assert started.returncode == 1
    assert "install a newer one" in started.stderr
    assert "Traceback" not in started.stderr


def test_a_backup_into_a_missing_folder_is_refused_in_one_line(own_coordinator: CoordinatorProcess) -> None:
    done = run(own_coordinator, "backup", "/nowhere/at/all/backup.tar")
    assert done.returncode == 1
    assert "/nowhere/at/all" in done.stderr
    assert "No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_fault_44_a_damaged_database_is_refused_with_the_way_back(own_coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a damaged file is an error like any other."""
    admin = own_coordinator.client("admin")
    for _ in range(50):
        admin.post("/v1/runs", json={"run": "true"})
    own_coordinator.stop()
    (file,) = own_coordinator.data_dir.glob("*.sqlite")
    data = bytearray(file.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = os.urandom(200)
    file.write_bytes(data)
    started = run(own_coordinator, "serve", "--listen", "127.0.0.1:0")
    assert started.returncode == 1
    assert "damaged" in started.stderr
    assert "restore FILE" in started.stderr
    assert "Traceback" not in started.stderr


def test_fault_44_a_truncated_database_is_refused(own_coordinator: CoordinatorProcess) -> None:
    """Seen to fail when a damaged file is an error like any other."""
    own_coordinator.client("admin").post("/v1/runs", json={"run": "true"})
    own_coordinator.stop()
    (file,) = own_coordinator.data_dir.glob("*.sqlite")
    file.write_bytes(file.read_bytes()[:10_000])
    started = run(own_coordinator, "serve", "--listen", "127.0.0.1:0")
    assert started.returncode == 1
    assert "Traceback" not in started.stderr


def test_fault_42_a_locked_database_is_503_with_retry_after_and_then_all_is_well(
    own_coordinator: CoordinatorProcess,
) -> None:
    """Seen to fail when an error of the database is passed on as it is."""
    admin = own_coordinator.client("admin")
    before = admin.post("/v1/runs", json={"run": "true"}).json()["id"]
    (file,) = own_coordinator.data_dir.glob("*.sqlite")
    lock = sqlite3.connect(file, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        refused = admin.post("/v1/runs", json={"run": "true"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert int(refused.headers["Retry-After"]) >= 1
        assert admin.get(f"/v1/runs/{before}").status_code == 200, "reading goes on"
        assert admin.get("/health").status_code == 503
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    assert wait_until(lambda: admin.get("/health").status_code == 200)
    assert admin.post("/v1/runs", json={"run": "true"}).json()["id"] == before + 1, "what was refused is not there"


def test_backup_and_restore_bring_everything_back(own_coordinator: CoordinatorProcess, tmp_path: Path) -> None:
    admin = own_coordinator.client("admin")
    worker = ScriptedWorker(own_coordinator, "w1")
    admin.post("/v1/runs", json={"run": "true"})
    (assignment,) = worker.claim()
    worker.write_log(assignment["attempt"], 0, b"hello")
    worker.finish(assignment["attempt"], log_size=5)
    before = admin.get("/v1/jobs/1.1").json()
    file = tmp_path / "backup.file"
    saved = run(own_coordinator, "backup", str(file))
    assert saved.returncode == 0, saved.stderr
    own_coordinator.stop()
    elsewhere = CoordinatorProcess(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    back = run(elsewhere, "restore", str(file))
    assert back.returncode == 0, back.stderr
    with elsewhere:
        elsewhere._tokens = own_coordinator._tokens
        assert elsewhere.client("admin").get("/v1/jobs/1.1").json() == before
        assert elsewhere.client("admin").get("/v1/jobs/1.1/log").content == b"hello"


@pytest.mark.parametrize("keeps", [[], ["notes.txt"]], ids=["no folder", "a folder"])
def test_a_restore_that_fails_leaves_nothing_behind(
    own_coordinator: CoordinatorProcess, tmp_path: Path, keeps: list[str]
) -> None:
    admin = own_coordinator.client("admin")
    bytes_of_blob = os.urandom(5 << 20)
    admin.put(f"/v1/blobs/{hashlib.sha256(bytes_of_blob).hexdigest()}", data=bytes_of_blob).raise_for_status()
    file = tmp_path / "backup.file"
    assert run(own_coordinator, "backup", str(file)).returncode == 0
    elsewhere = CoordinatorProcess(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    for name in keeps:
        elsewhere.data_dir.mkdir()
        (elsewhere.data_dir / name).touch()

    full = subprocess.run(
        elsewhere.command("restore", str(file)), capture_output=True, text=True, env=clean_environment(), timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20)),
    )  # fmt: skip
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert "the disk is full; nothing was changed" in full.stderr
    file.write_bytes(file.read_bytes()[:-1])
    cut = run(elsewhere, "restore", str(file))
    assert (cut.returncode, cut.stderr.count("\n")) == (1, 1)
    assert "is not a valid backup" in cut.stderr
    assert "nothing was changed" in cut.stderr
    assert elsewhere.data_dir.exists() == bool(keeps)
    assert [path.name for path in elsewhere.folder.rglob("*") if path.is_file()] == keeps
