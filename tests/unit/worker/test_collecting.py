"""The end of an attempt whose output cannot be collected: it ends as an error, with its log, and the worker goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_shared.jobfile.globs import Glob
from deborgen_shared.jobfile.limits import PATH_BYTES
from deborgen_shared.jobfile.model import ArtifactPattern
from deborgen_worker import artifacts, lifecycle, results
from deborgen_worker.attempts import Exit
from deborgen_worker.reasons import HIDDEN, without_host_paths
from deborgen_worker.runners.protocol import Launch
from deborgen_worker.steps import Exited
from support.scripted_runner import Script
from support.worker_in_steps import SteppedWorker


def says_hello(_launch: Launch) -> Script:
    return Script(output=b"hello\n")


def test_fault_91_a_collection_that_cannot_end_is_given_up_as_an_error_and_the_worker_goes_on(tmp_path: Path) -> None:
    """Seen to fail when a collection may take any time."""
    world = SteppedWorker(tmp_path, says_hello)
    world.queue("1.1/1", artifacts=[{"path": "*"}])
    world.take()
    stuck = world.slow = []
    world.agent.apply_runner_events([Exited("1.1/1", Exit(code=0, seconds=1.0))])
    world.now += lifecycle.COLLECT_SECONDS - 1
    world.agent.tick()
    world.deliver()
    assert world.coordinator.results == []

    world.now += 2
    world.agent.tick()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.exit_code) == ("error", None)
    assert "could not be collected" in result.reason
    assert result.log is not None
    assert result.log.data.startswith(b"hello\n[deborgen: the attempt ended with the outcome error: its output")

    world.slow = None
    world.queue("1.2/1")
    world.take()
    world.runner.end("1.2/1", Exit(code=0, seconds=1.0))
    for work in stuck:  # it ends after all, too late
        work()
    world.deliver()
    assert world.outcomes == {"1.1/1": "error", "1.2/1": "succeeded"}
    assert len(world.coordinator.results) == 2


def test_a_collection_that_is_still_reading_is_not_given_up(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, says_hello)
    world.queue("1.1/1", artifacts=[{"path": "*"}])
    world.take()
    (world.spool.folder("1.1/1") / "work" / "large").write_bytes(b"x" * 3 * artifacts.BLOCK)
    slow = world.slow = []
    world.agent.apply_runner_events([Exited("1.1/1", Exit(code=0, seconds=1.0))])
    [collect] = slow
    original = results.ResultRecorder._advance

    def reads_slowly(self: results.ResultRecorder, execution: object) -> object:
        advance = original(self, execution)  # type: ignore[arg-type]

        def slowly(read: bool) -> None:
            world.now += lifecycle.COLLECT_SECONDS - 1
            advance(read)
            world.agent.tick()

        return slowly

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results.ResultRecorder, "_advance", reads_slowly)
        world.slow = None
        collect()
    world.deliver()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}


def test_fault_93_the_log_of_a_job_whose_artifacts_cannot_be_collected_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the result is made without the log."""

    def faulty(_workspace: Path, folder: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder / "artifacts"))

    monkeypatch.setattr(artifacts, "collect", faulty)
    world = SteppedWorker(tmp_path, lambda _: Script(exit=Exit(code=0, seconds=1.0), output=b"hello\n"))
    world.queue("1.1/1", artifacts=[{"path": "*"}])
    world.take()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.exit_code) == ("error", None)
    assert result.log is not None
    assert result.log.data.startswith(b"hello\n")
    assert str(tmp_path) not in result.reason + result.log.data.decode()
    assert "Permission denied" in result.reason
    assert any(str(tmp_path) in line for line in world.said), "the owner sees the path"


def test_fault_93_a_job_that_cannot_be_started_says_so_without_a_path_of_the_machine(tmp_path: Path) -> None:
    """Seen to fail when an error's words are taken as they are."""
    world = SteppedWorker(tmp_path, lambda launch: Script(fails_to_start=f"cannot open {launch.folder}/output"))
    world.queue("1.1/1")
    world.take()
    world.deliver()
    [result] = world.coordinator.results
    assert result.reason == f"cannot open {HIDDEN}"
    assert any(str(tmp_path) in line for line in world.said), "the owner sees the path"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("statfs /var/lib/x y: no such file", f"statfs {HIDDEN} y: no such file"),
        ("[Errno 2] No such file: '/home/al ice/x'", f"[Errno 2] No such file: '{HIDDEN} ice/x'"),
        ("[Errno 21] Is a directory: '/w/1/work/data/a.csv'", "[Errno 21] Is a directory: 'data/a.csv'"),
        ("cannot enter /w/1/work", "cannot enter the workspace"),
        ("cannot execute '/opt/solver': permission denied", "cannot execute '/opt/solver': permission denied"),
        ("cannot read /job/a", "cannot read /job/a"),
        ("the image a.example/b/c:1 at https://a.example/v2/ and/or x", None),
        ("source=/etc/passwd,target=/job", f"source={HIDDEN},target=/job"),
    ],
)
def test_a_reason_has_no_path_of_the_machine(text: str, left: str | None) -> None:
    launch = Launch("1.1/1", ("/opt/solver",), {}, Path("/w/1"), Path("/w/1/work"))
    assert without_host_paths(text, launch) == (text if left is None else left)


def test_fault_91_a_heartbeat_reads_no_file_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk, or a file that a job has made slow, must not hold up a heartbeat. Seen to fail when the heartbeat
    reads a job's progress."""
    world = SteppedWorker(tmp_path, says_hello)
    world.queue("1.1/1")
    world.take()
    (world.spool.folder("1.1/1") / "work" / ".deborgen" / "progress").write_text("0.5 half")
    world.pump.step()

    def never(*_: object) -> None:
        raise AssertionError("a heartbeat has read a file of a job")

    monkeypatch.setattr("deborgen_worker.workspace.read_small", never)
    world.heartbeats.step()
    [held] = world.coordinator.calls[-1][1].holding
    assert (held.progress, held.message) == (0.5, "half")


def test_fault_91_a_pattern_of_ten_thousand_bytes_costs_little(tmp_path: Path) -> None:
    """Lookups may make a pattern longer than a job file allows. Seen to fail when a pattern may have any length."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").touch()
    long = ["*a" * 5_000 + "b", "[" * 10_000, "a" * (PATH_BYTES + 1)]
    found = artifacts.collect(tmp_path / "work", tmp_path, [ArtifactPattern(path=each) for each in long], True)
    assert found.artifacts == []
    assert len([note for note in found.notes if "too long" in note]) == 3
    assert not Glob("*a" * 500 + "*b").matches("a" * 10_000)
    assert not Glob("**/" + "*a" * 400 + "b").matches("a/" * 5_000)
