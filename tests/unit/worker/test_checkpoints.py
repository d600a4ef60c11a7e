"""Checkpoints on the worker: when they are saved, what is saved, and how they are restored."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.client.transport import Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import Checkpoint
from deborgen_worker import checkpoints
from deborgen_worker.attempts import StopCause
from deborgen_worker.checkpoints import CannotSave, Checkpoints
from deborgen_worker.disk import Disk
from deborgen_worker.folders import ASKED, OWN, WORK
from deborgen_worker.observer import Observer
from support.worker_in_steps import SteppedWorker, running

NAME = "1.1/1"


def with_a_job(folder: Path, path: str = "state/", **settings: Any) -> SteppedWorker:
    """A worker with a running job that has a checkpoint every 20 seconds."""
    world = SteppedWorker(folder, running, **settings)
    world.coordinator.keeps_blobs = True
    world.queue(NAME, checkpoint={"path": path.rstrip("/"), "every": 20.0})
    world.take()
    world.machine.attempts[NAME].timeout = 1e6
    return world


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    return with_a_job(tmp_path)


def write(world: SteppedWorker, path: str, data: bytes, name: str = NAME) -> Path:
    file = world.spool.folder(name) / WORK / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def save(world: SteppedWorker, after: float = 21.0) -> None:
    """Let time pass, and save what is due."""
    world.now += after
    world.agent.tick()
    world.checkpoints.step()


def uploads(world: SteppedWorker) -> int:
    return sum(name == "upload" for name, _ in world.coordinator.calls)


# When


def test_it_is_saved_when_it_is_due_and_the_program_is_frozen_only_meanwhile(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    save(world, after=19.0)
    assert world.coordinator.saved(NAME) == {}
    save(world, after=2.0)
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}
    calls = [name for name, _ in world.runner.calls]
    assert calls[-2:] == ["freeze", "thaw"]
    assert world.stage(NAME).frozen_at is None


def test_it_is_saved_when_the_program_asks_for_it(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    observer = Observer(world.agent)
    for number, after in ((1, 2.0), (2, 2.0)):
        save(world, after)
        assert world.coordinator.checkpoints.get(NAME, (0, []))[0] == number - 1
        write(world, f"{OWN}/{ASKED}", b"now\n" * number)
        observer.step()
        save(world, 0.0)
        assert world.coordinator.checkpoints[NAME][0] == number


def test_a_program_that_asks_all_the_time_is_frozen_at_most_once_per_second(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    observer = Observer(world.agent)
    for number in range(15):
        write(world, f"{OWN}/{ASKED}", b"x" * (number + 1))
        observer.step()
        save(world, 0.1)
    assert world.coordinator.checkpoints[NAME][0] == 1


@pytest.mark.parametrize("way", ["stop", "leave", "owner"])
def test_it_is_saved_when_the_worker_gives_the_job_back(tmp_path: Path, way: str) -> None:
    world = with_a_job(tmp_path, keep_frozen=100.0)
    write(world, "state/step", b"the last one")
    if way == "owner":
        world.coordinator.wanted = [NAME]
        world.owner.pause(1e6, now=True)
        world.heartbeats.step()
        world.agent.tick()
    else:
        world.stop(NAME, StopCause.RELEASE, "the worker is stopping")
    world.deliver()
    assert world.outcomes == {NAME: "released"}
    names = [name for name, _ in world.coordinator.calls]
    assert names.index("save_checkpoint") < names.index("finish")
    assert world.coordinator.saved(NAME) == {"state/step": b"the last one"}


def test_a_job_that_ends_by_itself_saves_nothing_more(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.stop(NAME, StopCause.CANCEL, "canceled")
    world.deliver()
    assert world.coordinator.checkpoints == {}


def test_while_the_owner_has_it_frozen_nothing_is_saved_and_no_pause_is_undone(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.now += 21.0
    world.slow = []
    world.agent.tick()  # the copy is about to be made
    freeze, *_ = world.slow
    freeze()
    world.owner.pause(None, now=True)
    for work in world.slow[1:]:
        work()
    assert world.runner.frozen == {NAME}
    world.slow = None
    world.owner.resume()
    world.agent.tick()
    assert world.runner.frozen == set()


def test_a_program_that_is_ended_while_it_is_copied_is_woken_and_the_copy_is_not_used(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.now += 21.0
    world.slow = []
    world.agent.tick()
    world.slow.pop(0)()
    world.stop(NAME, StopCause.CANCEL, "canceled")
    while world.slow:
        world.slow.pop(0)()
    assert world.runner.calls.count(("TERM", NAME)) == 1
    world.checkpoints.step()
    assert world.coordinator.checkpoints == {}


def test_a_copy_that_takes_too_long_is_given_up(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.now += 21.0
    world.slow = []
    world.agent.tick()
    world.slow.pop(0)()
    save(world, 121.0)
    while world.slow:
        world.slow.pop(0)()
    assert world.runner.frozen == set()
    assert world.coordinator.checkpoints == {}


# What


def test_files_that_have_not_changed_cost_nothing(world: SteppedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SETTLED_SECONDS", -1.0)
    write(world, "state/big", b"b" * 100_000)
    write(world, "state/step", b"1")
    save(world)
    assert uploads(world) == 2
    write(world, "state/step", b"22")
    save(world)
    assert uploads(world) == 3
    assert world.coordinator.saved(NAME) == {"state/big": b"b" * 100_000, "state/step": b"22"}
    save(world)
    assert (uploads(world), world.coordinator.checkpoints[NAME][0]) == (3, 3)


def test_a_blob_that_the_coordinator_has_lost_is_sent_again(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SETTLED_SECONDS", -1.0)
    write(world, "state/step", b"1")
    save(world)
    world.coordinator.blobs.clear()
    save(world)
    assert "the coordinator lacks a file" in world.said[-1]
    save(world)
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}


def test_the_path_may_be_a_single_file_in_a_folder(tmp_path: Path) -> None:
    world = with_a_job(tmp_path, "deep/er/state.json")
    save(world)
    assert world.coordinator.checkpoints == {}
    write(world, "deep/er/state.json", b"{}").chmod(0o750)
    write(world, "deep/er/other", b"")
    save(world)
    assert world.coordinator.saved(NAME) == {"deep/er/state.json": b"{}"}
    assert world.coordinator.checkpoints[NAME][1][0].mode == 0o750


def test_links_pipes_and_odd_names_are_left_out_with_a_warning(
    world: SteppedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the owner's")
    folder = write(world, "state/step", b"1").parent
    (folder / "link").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)
        listener.bind("socket")
    (folder / "a\nb").write_text("control")
    save(world)
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}
    execution = world.agent.execution(NAME)
    assert execution is not None
    assert execution.checkpoints is not None
    assert len(execution.checkpoints.warnings) == 5


@pytest.mark.parametrize("way", ["link", "folder in a link", "too many", "too large", "sparse", "full disk", "twins"])
def test_what_cannot_be_saved_is_a_warning_and_the_job_goes_on(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = with_a_job(tmp_path, "in/state")
    write(world, "in/state/step", b"1")
    save(world)
    place = world.spool.folder(NAME) / WORK
    if way == "link":
        (place / "in/state").rename(place / "away")
        (place / "in/state").symlink_to("../away")
    elif way == "folder in a link":
        (place / "in").rename(place / "away")
        (place / "in").symlink_to("away")
    elif way == "too many":
        monkeypatch.setattr(checkpoints, "CHECKPOINT_FILES", 3)
        for number in range(4):
            write(world, f"in/state/{number}", b"")
    elif way == "twins":
        write(world, "in/state/A", b"")
        write(world, "in/state/a", b"")
    else:
        if way == "full disk":
            monkeypatch.setattr(Disk, "free", lambda _disk, _folder: 10_000)
        with write(world, "in/state/big", b"").open("wb") as file:
            file.truncate(100_000 if way == "full disk" else 3 << 30)
    write(world, "in/state/step" if way != "link" else "away/step", b"2")
    save(world)
    assert world.coordinator.saved(NAME) == {"in/state/step": b"1"}
    assert world.runner.frozen == set()
    assert NAME in world.runner.running
    if way != "link":
        assert "could not be saved" in world.said[-1]
    assert [each.name for each in (world.spool.folder(NAME) / "checkpoint").iterdir()] == ["number"]


def test_a_warning_is_in_the_jobs_log_and_result(world: SteppedWorker) -> None:
    with write(world, "state/big", b"").open("wb") as file:
        file.truncate(3 << 30)
    save(world)
    world.stop(NAME, StopCause.TIMEOUT, "it ran too long")
    world.deliver()
    (result,) = world.coordinator.results
    assert result.warnings == ["checkpoint: 'state' is larger than 2GiB, the job's 'resources.disk'"]


def test_a_file_that_changes_while_it_is_copied_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / WORK).mkdir()
    (tmp_path / WORK / "state").write_bytes(b"1" * 1000)
    saved = Checkpoints(tmp_path / WORK, tmp_path, "state", 1 << 30, 0)
    real = checkpoints._copy_block

    def copy_and_write(source: int, target: int) -> int:
        (tmp_path / WORK / "state").write_bytes(b"2" * 1001)
        return real(source, target)

    monkeypatch.setattr(checkpoints, "_copy_block", copy_and_write)
    with pytest.raises(CannotSave, match="changed while it was being copied"):
        saved.copy()


# Uploading


def test_while_the_coordinator_is_away_the_copy_waits_and_the_program_is_not_frozen_again(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.coordinator.away = {"save_checkpoint"}
    for _ in range(3):
        save(world)
    assert [name for name, _ in world.runner.calls].count("freeze") == 1
    world.coordinator.away = set()
    world.checkpoints.step()
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}


def test_a_lost_answer_saves_it_once_and_a_newer_copy_has_another_number(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.coordinator.lose_answer_of = "save_checkpoint"
    save(world)
    world.checkpoints.step()
    assert world.coordinator.checkpoints[NAME][0] == 1
    write(world, "state/step", b"2")
    save(world)
    assert world.coordinator.checkpoints[NAME][0] == 2
    assert world.coordinator.saved(NAME) == {"state/step": b"2"}


def test_a_restarted_worker_sends_the_copy_that_waits_and_goes_on_counting(world: SteppedWorker) -> None:
    write(world, "state/step", b"1")
    world.coordinator.away = {"save_checkpoint"}
    save(world)
    write(world, "state/step", b"2")
    world.coordinator.away = set()
    world.wake("boot")
    world.checkpoints.step()
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}
    save(world)
    assert world.coordinator.checkpoints[NAME][0] == 2
    assert world.coordinator.saved(NAME) == {"state/step": b"2"}


def test_after_a_reboot_a_copy_is_not_used_because_bytes_of_it_may_be_lost(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(world, "state/step", b"1")
    world.coordinator.away = {"save_checkpoint", "finish"}
    world.stop(NAME, StopCause.RELEASE, "the machine is shut down")
    world.deliver()
    world.coordinator.away = set()
    monkeypatch.setenv("DEBORGEN_WORKER_BOOT_ID", "another")
    world.wake("another")
    for _ in range(3):
        world.deliver()
    assert world.outcomes == {NAME: "released"}
    assert world.coordinator.checkpoints == {}


def test_fault_85_a_worker_that_is_killed_while_it_copies_leaves_the_checkpoint_before(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when a copy of a checkpoint counts before all its files are there."""
    write(world, "state/a", b"1")
    write(world, "state/b", b"1")
    save(world)
    real = checkpoints._copy_file

    def die_at_the_second(folder: int, name: str, *more: Any) -> Any:
        if (world.spool.folder(NAME) / "checkpoint" / "2" / "0").exists():
            raise KeyboardInterrupt
        return real(folder, name, *more)

    write(world, "state/a", b"2")
    write(world, "state/b", b"2")
    monkeypatch.setattr(checkpoints, "_copy_file", die_at_the_second)
    monkeypatch.setattr(shutil, "rmtree", lambda *_args, **_how: None)  # a killed worker tidies nothing
    with pytest.raises(KeyboardInterrupt):
        save(world)
    monkeypatch.undo()
    world.wake("boot")
    world.checkpoints.step()
    assert world.coordinator.saved(NAME) == {"state/a": b"1", "state/b": b"1"}
    world.machine.attempts[NAME].timeout = 1e6
    world.agent.tick()
    assert world.runner.frozen == set()
    save(world)
    assert world.coordinator.saved(NAME) == {"state/a": b"2", "state/b": b"2"}


@pytest.mark.parametrize("code", [Code.INVALID_JOB, Code.TOO_LARGE, Code.MALFORMED])
def test_a_refused_checkpoint_is_given_up_and_the_next_one_is_saved(world: SteppedWorker, code: Code) -> None:
    write(world, "state/step", b"1")
    world.coordinator.refusal = Refused(code.status, code, "no")
    save(world)
    assert "could not be saved: no" in world.said[-1]
    world.coordinator.refusal = None
    save(world)
    assert world.coordinator.saved(NAME) == {"state/step": b"1"}


# Restoring


def test_it_is_restored_before_the_next_attempt_in_place_of_the_jobs_own_files(
    world: SteppedWorker, tmp_path: Path
) -> None:
    write(world, "state/deep/step", b"7").chmod(0o700)
    save(world)
    number, files = world.coordinator.checkpoints[NAME]
    other = SteppedWorker(tmp_path / "other", running)
    other.coordinator = world.coordinator
    other.wake("boot")
    other.queue("1.1/2", checkpoint={"path": "state", "every": 20.0})
    other.coordinator.queue[-1].checkpoint = Checkpoint(attempt=NAME, number=number, files=files)
    other.take()
    restored = other.spool.folder("1.1/2") / WORK / "state/deep/step"
    assert (restored.read_bytes(), restored.stat().st_mode & 0o777) == (b"7", 0o700)
    assert "1.1/2" in other.runner.running
