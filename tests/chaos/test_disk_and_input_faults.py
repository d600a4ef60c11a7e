"""Faults of disks and of input: power cuts at every byte, flushes before answers, hostile text."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load
from deborgen_shared.messages import Assignment, Result
from deborgen_worker.disk import Disk
from deborgen_worker.spool import ResultRecord, Spool
from support.coordinator import CoordinatorProcess
from support.scripted_worker import ScriptedWorker
from support.waiting import wait_until


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_fault_03_every_answer_comes_after_the_flush_of_the_data_it_acknowledges(tmp_path: Path) -> None:
    """Power cannot be cut here, so the test reads a trace of the system calls. Between the arrival of a request and
    the first byte of its answer, the database's log is flushed, and for a blob also the file and its folder. Seen to
    fail when commits are not flushed to the disk; when blobs are not flushed to the disk.
    """
    with CoordinatorProcess(tmp_path) as coordinator:
        person = coordinator.client("submitter")
        admin = coordinator.client("admin")
        assert person.get("/v1/runs").status_code == 200
        assert coordinator.process is not None
        trace = tmp_path / "trace"
        children = Path(f"/proc/{coordinator.process.pid}/task/{coordinator.process.pid}/children").read_text().split()
        calls = "fsync,fdatasync,rename,renameat,sendto,sendmsg,write,writev,recvfrom,openat,msync"
        strace = subprocess.Popen(
            ["strace", "-f", "-y", "-s", "48", "-e", f"trace={calls}", "-o", str(trace), "-p", children[0]],
            stderr=subprocess.PIPE,
        )
        try:
            assert strace.stderr is not None
            assert b"attached" in strace.stderr.readline()
            data = b"a blob that must be durable"
            digest = hashlib.sha256(data).hexdigest()
            for _ in range(3):
                assert person.post("/v1/runs", json={"run": "true"}).status_code == 201
            assert person.put(f"/v1/blobs/{digest}", data=data).status_code < 300
            assert admin.post("/v1/tokens", json={"role": "viewer", "name": "v"}).status_code == 201
            wait_until(lambda: "POST /v1/tokens" in trace.read_text(errors="replace"))
        finally:
            strace.terminate()
            strace.wait()
    seen = trace.read_text(errors="replace")
    submits = _between(seen, "POST /v1/runs")
    assert len(submits) == 3
    assert all("sqlite-wal" in _flushes(each) for each in submits), submits[0]
    [put] = _between(seen, f"PUT /v1/blobs/{digest[:12]}")
    flushed = _flushes(put)
    assert "sqlite-wal" in flushed
    assert "/blobs/uploads/" in flushed
    assert re.search(rf"/blobs/{digest[:2]}>", put), "the folder of the blob is flushed"
    assert put.index("/blobs/uploads/") < put.index(digest), "the file is flushed before it gets its name"
    assert all("sqlite-wal" in _flushes(each) for each in _between(seen, "POST /v1/tokens"))


def _between(trace: str, request: str) -> list[str]:
    """The system calls between the request and the start of its answer."""
    found = []
    for part in trace.split(f'"{request}')[1:]:
        answer = re.search(r'"HTTP/1\.1 2', part)
        assert answer, f"{request} was not answered"
        found.append(part[: answer.start()])
    return found


def _flushes(part: str) -> str:
    return "\n".join(line for line in part.splitlines() if "fsync(" in line or "fdatasync(" in line)


def test_fault_14_power_lost_at_any_byte_of_a_result_leaves_the_old_spool_or_the_new_one(tmp_path: Path) -> None:
    """Seen to fail when a torn record is taken for a complete one."""
    spool = Spool(tmp_path / "spool", Disk(), "boot")
    given = Assignment(
        attempt="1.1/1", job="1.1", number=1, spec={"run": "true"}, params={}, inputs=[], secrets={},
        timeout_seconds=60.0, lease_seconds=60.0,
    )  # fmt: skip
    spool.claim_asked("r1")
    spool.claim_answered("r1", [given])
    journal = tmp_path / "spool" / "journal"
    before = journal.stat().st_size
    result = Result(attempt="1.1/1", outcome="succeeded", exit_code=0, result={"x": "y" * 200})
    spool.ended(ResultRecord("1.1/1", result))
    spool.commit()
    spool.close()
    whole = journal.read_bytes()
    found = []
    for size in range(before, len(whole) + 1):
        folder = tmp_path / f"cut-{size}"
        folder.mkdir()
        (folder / "journal").write_bytes(whole[:size])
        again = Spool(folder, Disk(), "boot")
        found.append(again.entries["1.1/1"].result)
        again.close()
    assert set(map(repr, found[:-1])) == {"None"}
    assert found[-1] == result


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefghij")).replace("*a", "x"),
        "run: !!python/object/apply:os.system ['touch PWNED']\n",
        "run: !!python/name:os.system\n",
        "run: !unknown x\n",
    ],
)  # fmt: skip
def test_fault_67_an_alias_bomb_or_a_tag_in_yaml_is_refused(text: str, tmp_path: Path) -> None:
    """Seen to fail when aliases may expand without end; when tags are accepted."""
    with pytest.raises(JobFileInvalid):
        load(text)
    assert not list(tmp_path.rglob("PWNED"))


HOSTILE = [
    "'; DROP TABLE job; --",
    "<script>alert(1)</script>",
    "$(touch /tmp/deborgen-pwned) `id` && reboot",
    "line\r\nSet-Cookie: x=y",
    "\u202egnp.exe",
    "日本 \U0001f600 \u0000-free",
]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("hostile")) as process:
        yield process


@pytest.mark.parametrize("text", [each.replace("\u0000", "") for each in HOSTILE])
def test_fault_68_hostile_text_is_stored_unchanged_and_is_inert_everywhere(
    coordinator: CoordinatorProcess, text: str
) -> None:
    """Seen to fail when a reason is written as HTML."""
    person = coordinator.client("submitter")
    answer = person.post("/v1/runs", json={"run": ["true"], "env": {"EVIL": text}, "labels": {"evil": text}})
    if answer.status_code == 422:  # an invalid label is refused with a message, not changed
        answer = person.post("/v1/runs", json={"run": ["true"], "env": {"EVIL": text}})
    assert answer.status_code == 201, answer.text
    run = answer.json()["id"]
    worker = ScriptedWorker(coordinator, f"w{run}")
    [given] = worker.claim()
    assert given["spec"]["env"]["EVIL"] == text
    answered = worker.finish(given["attempt"], "failed", exit_code=1, reason=text, result={"evil": text})
    assert answered == "accepted"
    job = person.get(f"/v1/jobs/{run}.1")
    assert job.json()["spec"]["env"]["EVIL"] == text
    assert job.json()["reason"] == text
    assert job.json()["result"] == {"evil": text}
    for path in (f"/v1/jobs/{run}.1", f"/v1/events?run={run}", f"/v1/runs/{run}/results?format=csv"):
        page = person.get(path)
        assert page.status_code == 200
        assert "Set-Cookie" not in page.headers
        assert "html" not in page.headers["Content-Type"]
    assert not Path("/tmp/deborgen-pwned").exists()
    assert coordinator.client("admin").get("/health").status_code == 200
