"""Faults between a real worker and a real coordinator: lost messages, and stops of either side.

Every test counts how often the program really ran: it appends a line to a file.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.scripted_worker import ScriptedWorker
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until
from support.worker import WorkerProcess, shared_file

LEASE = 8.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path, lease_seconds=LEASE, heartbeat_seconds=0.5) as coordinator:
        yield coordinator


def events(pool: Pool, run: int) -> list[str]:
    return [event["type"] for event in pool.admin.get(f"/v1/events?run={run}&limit=1000").json()["items"]]


class First:
    """The fault, for the first `most` requests with this path whose body contains `word`."""

    def __init__(self, fault: str, path: str, word: bytes = b"", most: int = 1) -> None:
        self.fault, self.path, self.word, self.left = fault, path, word, most

    def __call__(self, line: str, body: bytes) -> str:
        if self.left and self.path in line and self.word in body:
            self.left -= 1
            return self.fault
        return ""


def counting(folder: Path, then: str = "true") -> str:
    return f"echo x >> {shared_file(folder / 'ran')}; {then}"


def test_fault_06_a_claim_whose_answer_is_lost_gets_the_same_attempts_and_each_runs_once(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when a repeated claim gets other jobs; when a claim whose answer was lost is forgotten."""
    pool = Pool(own)
    run = pool.submit(run=counting(tmp_path), sweep={"grid": {"x": [1, 2]}})
    with TargetedProxy(own.url, First("drop_after", "/claim", most=3)) as proxy:
        with WorkerProcess(tmp_path, own, url=proxy.url):
            assert pool.done(run)["jobs"]["succeeded"] == 2
        assert [fault for line, fault in proxy.log if "/claim" in line][:3] == ["drop_after"] * 3
    assert (tmp_path / "ran").read_text() == "x\nx\n"
    assert events(pool, run).count("lease.granted") == 2


def test_fault_09_a_first_heartbeat_whose_answer_is_lost_starts_no_second_program(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when an attempt that is named a second time counts as another worker's."""
    pool = Pool(own)
    go = tmp_path / "go"
    run = pool.submit(run=counting(tmp_path, f"while [ ! -e {go} ]; do sleep 0.05; done"))
    with (
        TargetedProxy(own.url, First("drop_after", "/heartbeat", b'"attempt"', most=2)) as proxy,
        WorkerProcess(tmp_path, own, url=proxy.url),
    ):
        wait_until((tmp_path / "ran").read_text)
        # The answers to two heartbeats were lost. The first answer renews the lease, and when the next heartbeat is
        # sent, that answer has been applied.
        before = len(proxy.log)
        wait_until(lambda: len([line for line, _ in proxy.log[before:] if "/heartbeat" in line]) >= 5)
        go.touch()
        assert pool.until(run)["state"] == "succeeded"
        assert "drop_after" in {fault for _, fault in proxy.log}
    assert (tmp_path / "ran").read_text() == "x\n"
    assert len(pool.job(run)["history"]) == 1


def test_fault_15_a_partition_shorter_than_the_lease_changes_nothing(own: CoordinatorProcess, tmp_path: Path) -> None:
    """Seen to fail when log bytes count as sent before they are."""
    pool = Pool(own)
    cut, go = tmp_path / "cut", tmp_path / "go"
    run = pool.submit(run=counting(tmp_path, f"echo line 1; while [ ! -e {cut} ]; do sleep 0.05; done; "
                                   f"for n in 2 3 4 5 6 7 8 9; do echo line $n; sleep 0.2; done; "
                                   f"while [ ! -e {go} ]; do sleep 0.05; done; echo end"))  # fmt: skip
    with TargetedProxy(own.url) as proxy, WorkerProcess(tmp_path, own, url=proxy.url):
        pool.until(run, "running")
        wait_until(lambda: b"line 1" in pool.log(run))
        proxy.cut_off.set()
        before = len(proxy.log)
        cut.touch()
        for what, times in (("/log?", 1), ("/heartbeat", 2)):
            wait_until(lambda: len([line for line, _ in proxy.log[before:] if what in line]) >= times)  # noqa: B023
        proxy.cut_off.clear()
        go.touch()
        job = pool.until(run)
    assert job["state"] == "succeeded"
    assert pool.log(run) == b"".join(b"line %d\n" % n for n in range(1, 10)) + b"end\n"
    assert [each for each in events(pool, run) if each.startswith("lease.")] == ["lease.granted"]


def test_fault_18_while_answers_are_lost_leases_are_renewed_and_nothing_happens_twice(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when a heartbeat renews nothing."""
    pool = Pool(own)
    go = tmp_path / "go"
    run = pool.submit(run=counting(tmp_path, f"while [ ! -e {go} ]; do sleep 0.05; done; echo end"))
    mute = False
    with (
        TargetedProxy(own.url, lambda _line, _body: "drop_after" if mute else "") as proxy,
        WorkerProcess(tmp_path, own, url=proxy.url),
    ):
        pool.until(run, "running")
        wait_until((tmp_path / "ran").read_text)
        mute = True
        silent = ScriptedWorker(own, "silent", alone=True)
        other = pool.submit(run="true", requires={"alone": "true"})
        assert silent.claim(wait=5)
        wait_until(lambda: "lease.expired" in events(pool, other), 90, what="the later lease of a silent worker to end")
        assert pool.job(run)["state"] == "running"
        go.touch()
        wait_until(lambda: pool.job(run)["state"] == "succeeded")
        mute = False
        wait_until(lambda: any("/finish" in line and not fault for line, fault in proxy.log))
    assert (tmp_path / "ran").read_text() == "x\n"
    seen = events(pool, run)
    assert (seen.count("job.succeeded"), seen.count("lease.expired")) == (1, 0)
    assert pool.log(run) == b"end\n"


def test_an_answer_that_trickles_in_is_accepted(own: CoordinatorProcess, tmp_path: Path) -> None:
    pool = Pool(own)
    run = pool.submit(run=counting(tmp_path, "echo hello"))
    with (
        TargetedProxy(own.url, First("trickle", "/v1/", most=12)) as proxy,
        WorkerProcess(tmp_path, own, url=proxy.url),
    ):
        assert pool.until(run)["state"] == "succeeded"
    assert pool.log(run) == b"hello\n"


def test_fault_27_a_coordinator_stopped_for_longer_than_the_lease_loses_no_lease(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when time in which no lease could be renewed counts."""
    pool = Pool(own)
    go = tmp_path / "go"
    run = pool.submit(run=counting(tmp_path, f"while [ ! -e {go} ]; do sleep 0.05; done"))
    with TargetedProxy(own.url) as proxy, WorkerProcess(tmp_path, own, url=proxy.url):
        pool.until(run, "running")
        wait_until((tmp_path / "ran").read_text)
        # The worker comes back a little later than the coordinator, so it cannot renew before the first lease check.
        proxy.cut_off.set()
        _signal_all(own, signal.SIGSTOP)
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() - stopped > 2.5 * LEASE, 4 * LEASE)
        _signal_all(own, signal.SIGCONT)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 0.2 * LEASE, LEASE)
        proxy.cut_off.clear()
        wait_until(lambda: time.monotonic() - began > 1.5 * LEASE, 3 * LEASE)
        assert pool.job(run)["state"] == "running"
        go.touch()
        assert pool.until(run)["state"] == "succeeded"
    assert "lease.expired" not in events(pool, run)
    assert (tmp_path / "ran").read_text() == "x\n"


def _signal_all(coordinator: CoordinatorProcess, number: int) -> None:
    assert coordinator.process is not None
    pid = coordinator.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        os.kill(each, number)


def test_fault_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede(tmp_path: Path) -> None:
    """Seen to fail when a start of the coordinator counts as the time of two leases; when a worker that finds no job
    asks again at once.
    """
    with CoordinatorProcess(tmp_path, lease_seconds=30, heartbeat_seconds=10) as own:
        pool = Pool(own)
        run = pool.submit(run="true", sweep={"grid": {"x": {"from": 1, "to": 200}}})
        fleet = [_worker_with_token(own, f"w{n}") for n in range(200)]
        held = {worker.name: worker.claim()[0]["attempt"] for worker in fleet}
        assert len(set(held.values())) == 200
        own.restart()
        # All ask at once, at the worst moment. Each answer says when to ask again.
        waits = [worker.http.post(f"/v1/workers/{worker.name}/claim", json={
            "session": worker.session, "request_id": f"again-{worker.name}", "free": {}, "max": 1, "wait_seconds": 0,
        }) for worker in fleet]  # fmt: skip
        assert {answer.status_code for answer in waits} == {204}
        assert min(float(answer.headers["Retry-After"]) for answer in waits) >= 1.0
        for worker in fleet:
            attempt = held[worker.name]
            assert worker.heartbeat(attempt)["attempts"] == {attempt: "continue"}
        for worker in fleet:
            assert worker.finish(held[worker.name]) == "accepted"
        assert pool.run(run)["jobs"]["succeeded"] == 200
        assert "lease.expired" not in events(pool, run)


def _worker_with_token(own: CoordinatorProcess, name: str) -> ScriptedWorker:
    """A worker whose token is created over HTTP, which is much quicker than with the command."""
    made = own.client("admin").post("/v1/tokens", json={"role": "worker", "name": name})
    assert made.status_code == 201, made.text
    own._tokens["worker", name] = made.json()["token"]
    return ScriptedWorker(own, name)


def test_fault_39_a_hundred_thousand_small_artifacts_are_refused_before_the_upload(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when there may be any number of artifacts."""
    pool = Pool(own)
    make = "import pathlib\nfor n in range(100000): pathlib.Path(f'out/{n}').touch()"
    run = pool.submit(run=f'mkdir out; python3 -c "{make}"', artifacts=["out/*"])
    with TargetedProxy(own.url) as proxy, WorkerProcess(tmp_path, own, url=proxy.url):
        job = pool.until(run, seconds=120)
        assert not [line for line, _ in proxy.log if "/v1/blobs" in line]
    assert job["state"] == "failed"
    assert "artifacts" in job["reason"]


def test_fault_65_links_pipes_and_devices_are_skipped_and_named_and_no_file_of_the_host_is_read(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when links are followed."""
    pool = Pool(own)
    secret = tmp_path / "secret"
    secret.write_text("nobody may read this")
    script = f"mkdir out; echo fine > out/good; ln -s {secret} out/link; mkfifo out/pipe; ln -s {tmp_path} out/folder"
    run = pool.submit(run=script, artifacts=["out/**"])
    with WorkerProcess(tmp_path, own):
        job = pool.until(run)
    assert job["state"] == "succeeded"
    assert [each["path"] for each in job["artifacts"]] == ["out/good"]
    said = pool.log(run).decode()
    assert all(name in said for name in ("out/link", "out/pipe", "out/folder")), said
    assert "nobody may read" not in json.dumps(job) + said


def test_fault_91_a_pattern_made_to_backtrack_stops_neither_heartbeats_nor_a_restart(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """The files have names made for the pattern, and one has a path of 10,000 bytes. The worker is killed before they
    are collected. Seen to fail when a glob is a regular expression that backtracks."""
    pool = Pool(own)
    end, go = tmp_path / "end", tmp_path / "go"
    make = (
        "import os\nopen('a' * 250, 'w')\nfor _ in range(50): os.mkdir('a' * 200); os.chdir('a' * 200)\nopen('a', 'w')"
    )
    script = f'python3 -c "{make}"; echo made; while [ ! -e {end} ]; do sleep 0.05; done; echo ended'
    neighbour = pool.submit(run=f"while [ ! -e {go} ]; do sleep 0.05; done")
    hostile = pool.submit(run=script, artifacts=["*a" * 100 + "*b", "**/" + "*a" * 100 + "b", "x"])
    with WorkerProcess(tmp_path, own) as worker:
        wait_until(lambda: pool.log(hostile) == b"made\n", what="the files to be made", log=worker.log)
        pool.until_named(neighbour)
        worker.kill()
        end.touch()
        worker.start()
        job = pool.until(hostile)
        assert (job["state"], len(job["history"])) == ("succeeded", 1)
        assert pool.log(hostile).startswith(b"made\nended\n[deborgen: artifact '*a*a")
        seen = pool.admin.get(f"/v1/workers/{worker.name}").json()["last_seen_at"]
        wait_until(lambda: pool.admin.get(f"/v1/workers/{worker.name}").json()["last_seen_at"] > seen)
        go.touch()
        job = pool.until(neighbour)
    assert (job["state"], len(job["history"])) == ("succeeded", 1)


def test_fault_59_answers_of_a_newer_coordinator_do_not_confuse_an_older_worker(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Every JSON answer on the way to the worker gets fields that the worker does not know. Seen to fail when an
    answer with a field that is not known is refused.
    """
    pool = Pool(own)
    run = pool.submit(run=counting(tmp_path, "echo hello"))
    with _NewerProxy(own.url) as proxy, WorkerProcess(tmp_path, own, url=proxy.url):
        assert pool.until(run)["state"] == "succeeded"
        assert proxy.changed > 3
    assert pool.log(run) == b"hello\n"


class _NewerProxy(TargetedProxy):
    """Adds unknown fields to the answers, as a newer coordinator would, and counts those answers in `changed`."""

    changed = 0

    def _send(self, request: bytes) -> bytes:
        answer = super()._send(request)
        head, _, body = answer.partition(b"\r\n\r\n")
        if b"application/json" not in head or not body:
            return answer
        self.changed += 1
        newer = json.dumps(_with_unknown_fields(json.loads(body), top=True)).encode()
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        return b"\r\n".join([*lines, b"Content-Length: %d" % len(newer)]) + b"\r\n\r\n" + newer


def _with_unknown_fields(value: Any, top: bool = False) -> Any:
    """Add unknown fields to every object that is a message, but not to those whose keys are names."""
    if isinstance(value, list):
        return [_with_unknown_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    open_ended = {"attempts", "results", "missing", "params", "env", "labels", "requires", "secrets", "spec"}
    changed = {key: each if key in open_ended else _with_unknown_fields(each) for key, each in value.items()}
    return {**changed, "news": {"since": 99}, "more_news": [1, 2]} if top or changed else changed
