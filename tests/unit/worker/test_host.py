"""Facts about the machine and its disk, on Linux and elsewhere."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import psutil
import pytest

from deborgen_worker import host
from deborgen_worker.disk import Disk


def test_linux_lacks_nothing() -> None:
    assert host.missing_features() == []


def test_the_facts_about_this_machine_are_plausible() -> None:
    assert host.processors() == len(os.sched_getaffinity(0))
    assert host.memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < host.own_processes() <= len(psutil.pids()) + 10
    assert host.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_flush_on_macos_reaches_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _fd, command: asked.append(command))
    Disk().replace(tmp_path / "file", b"new")
    assert asked == [51, 51], "the file and its folder"


def test_disk_space_is_reserved_even_without_posix_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    with (tmp_path / "reserve").open("wb") as file:
        Disk().reserve(file.fileno(), 1 << 20)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
