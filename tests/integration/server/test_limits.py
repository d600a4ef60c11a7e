"""Full disks, huge bodies and foreign host names do not break the coordinator."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess, children_of
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    assert os.statvfs(path).f_bavail == 0


@pytest.mark.root
def test_fault_30_a_full_disk_is_503_while_reads_go_on_and_it_recovers_by_itself(
    small_disk: Path, tmp_path: Path
) -> None:
    """Seen to fail when a full disk is written to."""
    coordinator = CoordinatorProcess(small_disk, lease_seconds=60, disk_reserve="1MiB")
    coordinator.log = tmp_path / "coordinator.log"
    with coordinator:
        admin = coordinator.client("admin")
        worker = ScriptedWorker(coordinator, "w1")
        acknowledged = [admin.post("/v1/runs", json={"run": "true"}).json()["id"]]
        (assignment,) = worker.claim()
        filler = small_disk / "filler"
        fill(filler)

        def refused() -> bool:
            answer = admin.post("/v1/runs", json={"run": "true", "env": {"FILL": "x" * 30_000}})
            assert answer.status_code in (201, 503), answer.text
            if answer.status_code == 201:
                acknowledged.append(answer.json()["id"])
                return False
            assert answer.json()["error"]["code"] == "unavailable"
            return True

        wait_until(refused)
        assert all(refused() for _ in range(60)), "what is left is for heartbeats and results"
        data = b"y" * 2_000_000
        blob = admin.put(f"/v1/blobs/{hashlib.sha256(data).hexdigest()}", data=data)
        assert (blob.status_code, blob.json()["error"]["code"]) == (503, "unavailable")
        assert admin.get(f"/v1/runs/{acknowledged[0]}").status_code == 200
        assert admin.get("/v1/jobs?limit=1000").status_code == 200
        for _ in range(20):
            assert worker.heartbeat(assignment["attempt"])["attempts"] == {assignment["attempt"]: "continue"}
        filler.unlink()
        wait_until(lambda: admin.get("/health").status_code == 200)
        wait_until(lambda: not refused())
        assert admin.put(f"/v1/blobs/{hashlib.sha256(data).hexdigest()}", data=data).status_code == 201
        assert worker.heartbeat(assignment["attempt"])["attempts"] == {assignment["attempt"]: "continue"}
        assert worker.finish(assignment["attempt"]) == "accepted"
        for run in acknowledged:
            assert admin.get(f"/v1/runs/{run}").status_code == 200


def peak_memory(coordinator: CoordinatorProcess) -> int:
    assert coordinator.process is not None
    (child,) = children_of(coordinator.process.pid)
    status = Path(f"/proc/{child}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_fault_63_refused_bodies_and_fault_38_large_blobs_leave_memory_flat(
    own_coordinator: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when a body is read in one piece."""
    admin = own_coordinator.client("admin")
    admin.post("/v1/runs", json={"run": "true"})
    before = peak_memory(own_coordinator)
    host, _, port = own_coordinator.url.removeprefix("http://").partition(":")
    for framing in ("Content-Length: 500000000", "Transfer-Encoding: chunked"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            head = (
                f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {admin.token}\r\n"
                f"Content-Type: application/json\r\n{framing}\r\n\r\n"
            )
            connection.sendall(head.encode())
            try:
                for _ in range(400):
                    connection.sendall(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
            except OSError:
                pass  # the coordinator has answered, waited a little, and closed
    large = tmp_path / "large"
    with large.open("wb") as file:
        for _ in range(200):
            file.write(b"z" * 1_000_000)
    with large.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        assert admin.put(f"/v1/blobs/{digest}", data=file).status_code == 201
    with admin.get(f"/v1/blobs/{digest}", stream=True) as download:
        assert sum(len(part) for part in download.iter_content(1_000_000)) == 200_000_000
    assert peak_memory(own_coordinator) - before < 40_000_000


def test_fault_73_with_allowed_hosts_another_name_is_403(tmp_path: Path) -> None:
    """Seen to fail when any host name is accepted."""
    with CoordinatorProcess(tmp_path, allowed_hosts="127.0.0.1,pool.example") as coordinator:
        viewer = coordinator.client("viewer")
        assert viewer.get("/v1/runs").status_code == 200
        assert viewer.get("/v1/runs", headers={"Host": "POOL.example:1234"}).status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "", "evil.example:127.0.0.1"):
            answer = viewer.get("/v1/runs", headers={"Host": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
