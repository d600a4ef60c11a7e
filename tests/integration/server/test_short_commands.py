"""The coordinator's commands other than `serve` create nothing by mistake, and migrate nothing that may be in use."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from deborgen_coordinator.storage.schema import latest
from support.coordinator import CoordinatorProcess, clean_environment


def run(coordinator: CoordinatorProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = coordinator.command(*arguments)
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60)


@pytest.mark.parametrize("exists", [False, True], ids=["no folder", "an empty folder"])
@pytest.mark.parametrize("verb", ["backup", "audit"])
def test_a_command_that_reads_data_creates_none(tmp_path: Path, verb: str, exists: bool) -> None:
    """Seen to fail when opening the data made what was missing: `backup --data-dir TYPO` gave an empty backup."""
    coordinator = CoordinatorProcess(tmp_path)
    if exists:
        coordinator.data_dir.mkdir()
    done = run(coordinator, verb, *([str(tmp_path / "file.backup")] if verb == "backup" else []))
    assert done.returncode == 2
    assert done.stderr == (
        f"deborgen-coordinator: there is no data in {coordinator.data_dir}; choose the directory with --data-dir\n"
    )
    assert list(tmp_path.iterdir()) == ([coordinator.data_dir] if exists else [])
    assert not exists or list(coordinator.data_dir.iterdir()) == []


@pytest.mark.postgres
def test_a_database_without_data_is_not_backed_up(tmp_path: Path, postgres_url: str) -> None:
    coordinator = CoordinatorProcess(tmp_path)
    done = run(coordinator, "backup", str(tmp_path / "file.backup"), "--database", postgres_url)
    assert (done.returncode, "there is no data in this database" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["token", "backup", "audit"])
def test_a_database_of_an_older_release_is_not_migrated_by_the_way(
    own_coordinator: CoordinatorProcess, tmp_path: Path, verb: str
) -> None:
    """The coordinator that serves it would meet a schema that it does not know. Seen to fail: all three migrated it."""
    (file,) = own_coordinator.data_dir.glob("*.sqlite")
    set_schema(file, latest() - 1)
    words = {"token": ["create", "--role", "viewer", "--name", "eve"], "backup": [str(tmp_path / "file.backup")]}
    done = run(own_coordinator, verb, *words.get(verb, []))
    assert done.returncode == 1
    assert f"the database has schema {latest() - 1}, and this release uses schema {latest()}" in done.stderr
    assert "deborgen-coordinator migrate" in done.stderr
    assert done.stderr.count("\n") == 1
    assert schema(file) == latest() - 1
    assert not (tmp_path / "file.backup").exists()
    set_schema(file, latest())
    assert run(own_coordinator, verb, *words.get(verb, [])).returncode == 0


def set_schema(file: Path, version: int) -> None:
    with sqlite3.connect(file) as database:
        database.execute("DELETE FROM schema_version WHERE version >= ?", (version,))
        database.execute("INSERT INTO schema_version (version) VALUES (?)", (version,))
    database.close()


def schema(file: Path) -> int:
    with sqlite3.connect(file) as database:
        (found,) = database.execute("SELECT max(version) FROM schema_version").fetchone()
    database.close()
    return int(found)
