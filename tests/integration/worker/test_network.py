"""Network faults of a worker: lost requests, lost answers, partitions, a coordinator that is down."""

from __future__ import annotations

import hashlib
import random
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from deborgen_shared.client import blobs
from deborgen_shared.client.transport import NoAnswer, Refused, Transport
from deborgen_worker.coordinator import CoordinatorClient
from support.coordinator import CoordinatorProcess
from support.fault_proxy import FAULTS, FaultProxy
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]


@pytest.fixture
def own(tmp_path: Path) -> CoordinatorProcess:
    """A coordinator that a test may stop and start."""
    return CoordinatorProcess(tmp_path, lease_seconds=10, heartbeat_seconds=0.5)


def test_300_short_jobs_over_a_faulty_network_all_end_exactly_once(own: CoordinatorProcess, tmp_path: Path) -> None:
    """A fast machine may send too few requests to meet every fault. It then gets another 300 jobs."""
    ran = tmp_path / "ran"
    ran.mkdir()
    ran.chmod(0o777)
    with own, FaultProxy(own.url, rate=0.1, seed=7, delay=0.1) as proxy:
        pool = Pool(own)
        script = f"echo $DEBORGEN_PARAM_N >> {ran}/$DEBORGEN_JOB_ID; echo out $DEBORGEN_PARAM_N; echo err >&2"
        with WorkerProcess(tmp_path, own, url=proxy.url, slots=4):
            for _ in range(10):
                run = pool.submit(
                    run=script, resources={"cpus": 0.1, "memory": "64MiB"},
                    sweep={"grid": {"n": {"from": 1, "to": 300}}}, max_attempts=1,
                )  # fmt: skip
                done = pool.done(run, 240)
                assert done["jobs"]["succeeded"] == 300, done
                for number in range(1, 301):
                    assert (ran / f"{run}.{number}").read_text() == f"{number}\n"
                    assert pool.log(f"{run}.{number}") == b"out %d\nerr\n" % number
                if all(proxy.seen[fault] for fault in FAULTS):
                    break
        assert all(proxy.seen[fault] for fault in FAULTS), proxy.seen


def test_fault_25_a_coordinator_that_is_down_during_the_whole_job_gets_everything_later(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when an upload that failed is forgotten."""
    go = tmp_path / "go"
    with own:
        pool = Pool(own)
        script = f"echo first; while [ ! -e {go} ]; do sleep 0.02; done; seq 1 20000; echo made > out; exit 0"
        run = pool.submit(run=script, artifacts=["out"])
        with WorkerProcess(tmp_path, own) as worker:
            pool.until(run, "running")
            wait_until(lambda: worker.stages() == ["running"])
            own.kill()
            go.touch()
            wait_until(lambda: worker.status()["unsent"] == 1, 90)
            wait_until(lambda: worker.said().count("cannot reach the coordinator") == 1, 90)
            own.start()
            job = pool.until(run, seconds=120)
            assert job["state"] == "succeeded"
            assert job["attempts"] == 1
            assert pool.log(run) == b"first\n" + b"".join(b"%d\n" % number for number in range(1, 20001))
            assert [each["path"] for each in job["artifacts"]] == ["out"]
            assert worker.said().count("cannot reach the coordinator") == 1


def test_fault_16_after_a_partition_longer_than_the_lease_the_same_attempt_goes_on(tmp_path: Path) -> None:
    """Seen to fail when a lost attempt is never resumed."""
    go = tmp_path / "go"
    with (
        CoordinatorProcess(tmp_path, lease_seconds=2, heartbeat_seconds=0.5) as own,
        FaultProxy(own.url, rate=0.0) as proxy,
        WorkerProcess(tmp_path, own, url=proxy.url) as worker,
    ):
        pool = Pool(own)
        run = pool.submit(run=f"while [ ! -e {go} ]; do sleep 0.02; done; echo end", max_attempts=2)
        pool.until_named(run)
        assert worker.stages() == ["running"]
        proxy.cut_off.set()
        wait_until(lambda: pool.job(run)["state"] == "queued", 90)
        proxy.cut_off.clear()
        pool.until(run, "running")
        go.touch()
        job = pool.until(run)
        assert (job["state"], len(job["history"])) == ("succeeded", 1)
        assert pool.log(run) == b"end\n"


def test_fault_17_once_another_worker_has_claimed_it_the_old_attempt_is_over(tmp_path: Path) -> None:
    """Seen to fail when a worker does not stop an attempt when told to."""
    beat = tmp_path / "beat"
    with (
        CoordinatorProcess(tmp_path, lease_seconds=2, heartbeat_seconds=0.5) as own,
        FaultProxy(own.url, rate=0.0) as proxy,
        WorkerProcess(tmp_path, own, url=proxy.url, kill_grace="1s") as first,
    ):
        pool = Pool(own)
        run = pool.submit(run=f"while true; do echo $$ > {beat}-$DEBORGEN_ATTEMPT; sleep 0.05; done", max_attempts=3)
        wait_until(Path(f"{beat}-1").exists)
        pid = int(wait_until(lambda: Path(f"{beat}-1").read_text()))
        pool.until_named(run)
        proxy.cut_off.set()
        wait_until(lambda: pool.job(run)["state"] == "queued", 90)
        with WorkerProcess(tmp_path, own):
            wait_until(Path(f"{beat}-2").exists, 90)
            proxy.cut_off.clear()
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), 90)
            assert "no longer belongs to this worker" in first.said()
            assert pool.job(run)["state"] == "running"


def test_fault_61_a_revoked_token_ends_running_jobs_and_a_new_one_is_used(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when a worker whose token is not accepted keeps working."""
    mark = tmp_path / "pid"
    with own, WorkerProcess(tmp_path, own) as worker:
        pool = Pool(own)
        run = pool.submit(run=f"echo $$ > {mark}; sleep 1000")
        pid = int(wait_until(lambda: mark.exists() and mark.read_text(), 90))
        [token] = [each for each in pool.admin.get("/v1/tokens").json()["items"] if each["name"] == worker.name]
        assert pool.admin.delete(f"/v1/tokens/{token['id']}").status_code < 300
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 90)
        assert worker.said().count("taking no new work: the coordinator does not accept this worker's token") == 1
        assert pool.job(run)["state"] == "queued"
        fresh = pool.admin.post("/v1/tokens", json={"role": "worker", "name": worker.name}).json()["token"]
        worker.token_file.write_text(fresh)
        pool.until(run, "running", seconds=120)


def test_fault_70_the_newer_of_two_workers_with_one_name_wins(own: CoordinatorProcess, tmp_path: Path) -> None:
    """Seen to fail when any session may speak for the worker."""
    with own, WorkerProcess(tmp_path, own, name="twin") as first:
        wait_until(lambda: "is registered" in first.said())
        with WorkerProcess(tmp_path / "other", own, name="twin") as second:
            wait_until(lambda: "is registered" in second.said())
            assert first.process is not None
            assert first.process.wait(90) == 7
            assert "newer session" in first.said()
            assert Pool(own).until(Pool(own).submit(run="true"))["state"] == "succeeded"


def test_fault_29_a_worker_that_slept_past_its_lease_finds_its_attempt_over(tmp_path: Path) -> None:
    """Seen to fail when a worker does not stop an attempt when told to."""
    mark = tmp_path / "pid"
    (tmp_path / "c").mkdir()
    with (
        CoordinatorProcess(tmp_path / "c", lease_seconds=1.5, heartbeat_seconds=0.3) as short,
        WorkerProcess(tmp_path, short) as worker,
    ):
        pool = Pool(short)
        run = pool.submit(run=f"echo $$ > {mark}; sleep 1000")
        pid = int(wait_until(lambda: mark.exists() and mark.read_text(), 90))
        pool.until_named(run)
        assert worker.process is not None
        worker.process.send_signal(signal.SIGSTOP)
        assert pool.until(run)["history"][0]["outcome"] == "lost"
        worker.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 90)


def test_fault_29_a_worker_that_slept_past_its_lease_goes_on_with_jobs_that_no_other_has_claimed(
    tmp_path: Path,
) -> None:
    """Seen to fail when a lost attempt is never resumed."""
    go = tmp_path / "go"
    (tmp_path / "c").mkdir()
    with (
        CoordinatorProcess(tmp_path / "c", lease_seconds=1.5, heartbeat_seconds=0.3) as short,
        WorkerProcess(tmp_path, short) as worker,
    ):
        pool = Pool(short)
        run = pool.submit(run=f"while [ ! -e {go} ]; do sleep 0.02; done", max_attempts=2)
        pool.until_named(run)
        assert worker.process is not None
        worker.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: pool.job(run)["state"] == "queued", 90)
        worker.process.send_signal(signal.SIGCONT)
        pool.until(run, "running")
        go.touch()
        job = pool.until(run)
        assert (job["state"], len(job["history"])) == ("succeeded", 1)


def test_fault_29_no_job_fails_when_a_whole_machine_sleeps_past_its_leases(tmp_path: Path) -> None:
    """Everything on the machine stands still: the worker, its supervisor and the jobs. One job can run elsewhere, the
    other goes on when the machine wakes.

    Seen to fail when a lost attempt is never resumed.
    """
    go = tmp_path / "go"
    (tmp_path / "c").mkdir()
    with (
        CoordinatorProcess(tmp_path / "c", lease_seconds=1.5, heartbeat_seconds=0.3) as short,
        WorkerProcess(tmp_path, short, labels="test=laptop") as laptop,
    ):
        pool, script = Pool(short), f"while [ ! -e {go} ]; do sleep 0.02; done"
        bound = pool.submit(run=script, max_attempts=3, requires={"test": "laptop"})
        free = pool.submit(run=script, max_attempts=3)
        for run in (bound, free):
            pool.until_named(run)
        asleep = [each for each in psutil.process_iter(["cmdline", "pid"]) if belongs_to(laptop, each.pid)]
        assert len(asleep) >= 4
        for each in asleep:
            each.suspend()
        with WorkerProcess(tmp_path, short) as other:
            wait_until(lambda: pool.job(free)["history"][-1]["worker"] == other.name, 90)
            pool.until_named(free)
            assert pool.job(bound)["state"] == "queued"
            for each in asleep:
                each.resume()
            pool.until(bound, "running")
            go.touch()
            for run in (bound, free):
                assert pool.until(run)["state"] == "succeeded"
            assert [each["worker"] for each in pool.job(bound)["history"]] == [laptop.name]
            assert pool.job(free)["history"][-1]["worker"] == other.name


def belongs_to(worker: WorkerProcess, pid: int) -> bool:
    """Whether a process is the worker, its supervisor, or one of its jobs."""
    try:
        found = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return str(worker.state).encode() in found


@pytest.mark.parametrize("left_behind", ["all of it", "more than all of it", "something else"])
def test_an_upload_whose_last_step_was_lost_still_becomes_a_blob(
    own: CoordinatorProcess, tmp_path: Path, left_behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator died after it had received every byte, but before it had made them a blob."""
    monkeypatch.setattr(blobs, "PART", 8)  # smaller blobs are sent in one piece
    data = b"made 29.22\n"
    sha256 = hashlib.sha256(data).hexdigest()
    path = tmp_path / "out"
    path.write_bytes(data)
    uploads = own.data_dir / "blobs" / "uploads" / "worker.uploader"
    with own:
        token = own.token("worker", "uploader")
        client = CoordinatorClient(Transport(own.url, lambda: token), "uploader")
        bytes_there = {"all of it": data, "more than all of it": data + b"x", "something else": b"x" * len(data)}
        uploads.mkdir()
        (uploads / f"{sha256}.part").write_bytes(bytes_there[left_behind])
        if left_behind == "something else":  # refused because of their digest, and removed
            with pytest.raises(Refused, match="digest"):
                client.upload(path, sha256, len(data))
        client.upload(path, sha256, len(data))
        assert client.missing([sha256]) == {}


def test_fault_19_an_upload_that_is_interrupted_repeatedly_arrives_intact(
    own: CoordinatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when an interrupted upload is discarded."""
    monkeypatch.setattr(blobs, "PART", 64 * 1024)
    data = random.Random(3).randbytes(3_000_000)
    path = tmp_path / "artifact"
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    faults = ("drop_before", "drop_after", "cut_request", "cut", "duplicate")
    with own, FaultProxy(own.url, rate=0.45, seed=11, faults=faults) as proxy:
        token = own.token("worker", "uploader")
        client = CoordinatorClient(Transport(proxy.url, lambda: token), "uploader")
        for _ in range(400):
            try:
                client.upload(path, sha256, len(data))
                break
            except (NoAnswer, Refused):
                continue
        assert sum(proxy.seen[fault] for fault in faults) >= 20, proxy.seen
        parts = len(data) // blobs.PART
        assert proxy.seen["requests"] < 3 * parts, "each time it resumed where it was interrupted"
        proxy.rate = 0.0
        client.download(sha256, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data


def test_fault_40_a_bit_that_flips_in_transit_is_found_and_the_retry_works(
    own: CoordinatorProcess, tmp_path: Path
) -> None:
    """Seen to fail when the digest of bytes is not checked."""
    path = tmp_path / "artifact"
    path.write_bytes(b"some bytes that matter")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with own, FaultProxy(own.url, rate=1.0, faults=("flip",)) as proxy:
        token = own.token("worker", "uploader")
        client = CoordinatorClient(Transport(proxy.url, lambda: token), "uploader")
        with pytest.raises(Refused):
            client.upload(path, sha256, path.stat().st_size)
        proxy.rate = 0.0
        assert list(client.missing([sha256])) == [sha256]
        client.upload(path, sha256, path.stat().st_size)
        assert client.missing([sha256]) == {}
