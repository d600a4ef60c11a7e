"""The disk that a job uses: what counts, and that a job with too much is ended at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deborgen_worker import disk_use
from deborgen_worker.disk_use import ENTRY_BYTES, DiskUse, unlinked_bytes, used_bytes
from deborgen_worker.folders import TEMPORARY, WORK
from support.worker_in_steps import SteppedWorker, running

NAME = "1.1/1"
MIB = 1 << 20


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    """A worker with a running job that may use 1 MiB."""
    world = SteppedWorker(tmp_path, running)
    world.queue(NAME, resources={"disk": MIB})
    world.take()
    return world


def look(world: SteppedWorker) -> list[str]:
    """Measure, and return the signals that the job has got."""
    DiskUse(world.agent, lambda: world.now).step()
    return [name for name, _ in world.runner.calls if name in {"TERM", "KILL"}]


@pytest.mark.parametrize("place", [WORK, TEMPORARY])
def test_a_job_that_uses_too_much_is_killed_at_once_and_has_failed(world: SteppedWorker, place: str) -> None:
    folder = world.spool.folder(NAME) / place
    (folder / "a").write_bytes(b"x" * (MIB // 2))
    assert look(world) == []
    (folder / "b").write_bytes(b"x" * MIB)
    assert look(world) == ["TERM", "KILL"]
    world.deliver()
    assert world.outcomes == {NAME: "failed"}
    assert world.coordinator.results[0].reason.startswith("disk: its workspace takes more than the 1MiB")


def test_many_empty_files_and_folders_count(world: SteppedWorker) -> None:
    folder = world.spool.folder(NAME) / WORK
    for number in range(MIB // ENTRY_BYTES + 1):
        (folder / str(number)).touch()
    assert "TERM" in look(world)


def test_a_hole_counts_as_nothing_and_a_second_name_of_a_file_only_once(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "file", tmp_path / "again")
    assert 100_000 <= used_bytes(tmp_path, 1 << 40) < 120_000


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").symlink_to(tmp_path / "big")
    (tmp_path / "work" / "folder").symlink_to(tmp_path)
    assert used_bytes(tmp_path / "work", 1 << 40) < 20_000


def test_a_file_that_was_removed_but_is_still_open_counts(world: SteppedWorker) -> None:
    folder = world.spool.folder(NAME) / WORK
    with (folder / "gone").open("wb") as file:
        file.write(b"x" * 2 * MIB)
        file.flush()
        (folder / "gone").unlink()
        assert unlinked_bytes([folder.parent])[folder.parent] >= 2 * MIB
        assert "TERM" in look(world)


def test_folders_that_are_nested_very_deep_are_not_walked(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("d" * 200)
    deep.mkdir(parents=True)
    assert used_bytes(tmp_path, MIB) > MIB


def test_a_workspace_that_takes_long_to_measure_is_measured_less_often(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0

    def slow(_folder: Path, _enough: int) -> int:
        nonlocal measured
        measured += 1
        world.now += 1.0
        return 0

    monkeypatch.setattr(disk_use, "used_bytes", slow)
    use = DiskUse(world.agent, lambda: world.now)
    for _ in range(30):
        use.step()
        world.now += 0.5
    assert measured == 4
