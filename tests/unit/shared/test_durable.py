"""Flushing to disk and reserving space, on Linux and elsewhere."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
from pathlib import Path

import pytest

from deborgen_shared.durable import set_aside, sync_file, sync_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """The flushes that were requested; on Linux, plain ones."""
    calls: list[int | str] = []
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    return calls


def flush_a_file_and_its_folder(folder: Path) -> None:
    with (folder / "file").open("wb") as file:
        sync_file(file)
    sync_folder(folder)


def test_a_flush_calls_fsync(tmp_path: Path, asked: list[int | str]) -> None:
    flush_a_file_and_its_folder(tmp_path)
    assert asked == ["fsync", "fsync"]


def test_a_flush_on_macos_reaches_the_drive(
    tmp_path: Path, asked: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command: asked.append(command))
    flush_a_file_and_its_folder(tmp_path)
    assert asked == [51, 51]


@pytest.mark.parametrize(("number", "falls_back"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_plain_fsync_is_used_only_if_the_file_system_lacks_the_full_one(
    number: int, falls_back: bool, tmp_path: Path, asked: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, command: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fail)
    if falls_back:
        sync_folder(tmp_path)
        assert asked == ["fsync"]
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            sync_folder(tmp_path)


@pytest.mark.parametrize("part", ["shared", "coordinator", "cli"])
def test_no_other_module_calls_fsync(part: str) -> None:
    for path in (ROOT / part / "src").rglob("*.py"):
        used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert path.name == "durable.py" or not used & {"fsync", "fdatasync"}, f"{path} flushes by itself"


@pytest.mark.parametrize("system", ["linux", "macos"])
def test_disk_space_is_reserved(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "macos":
        monkeypatch.delattr(os, "posix_fallocate")
    with (tmp_path / "reserve").open("wb") as file:
        set_aside(file, (3 << 20) + 5)
    found = (tmp_path / "reserve").stat()
    assert found.st_size == (3 << 20) + 5
    assert found.st_blocks * 512 >= 3 << 20
