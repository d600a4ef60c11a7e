"""Which processes `deborgen up` ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deborgen import children
from deborgen.runtime import Runtime
from support.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def left_behind(data_dir: Path, **processes: subprocess.Popen[bytes]) -> Runtime:
    pids = {name: process.pid for name, process in processes.items()}
    return Runtime("http://127.0.0.1:1", "t", 1, str(data_dir), "box", "subprocess", pids)


def test_only_the_leftovers_of_a_killed_up_are_ended(tmp_path: Path) -> None:
    ours = subprocess.Popen([*SLEEP, "deborgen_coordinator", "--data-dir", str(tmp_path)])
    foreign = subprocess.Popen([*SLEEP, "deborgen_coordinator", "--data-dir", "/somewhere/else"])
    try:
        for each in (ours, foreign):  # a process that has just been started has no command line yet
            wait_until((Path("/proc") / str(each.pid) / "cmdline").read_bytes)
        # The id of a process that has ended may have been reused by another one.
        children.end_leftovers(left_behind(tmp_path, coordinator=ours, worker=foreign))
        assert ours.wait(10) == -15
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()
        ours.kill()
        ours.wait()


def test_a_child_that_ignores_term_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    with (tmp_path / "log").open("wb") as log:
        process = children.spawn([sys.executable, "-c", stubborn], log)
    while b"deaf" not in (tmp_path / "log").read_bytes():
        assert process.poll() is None
    children.end(process, 0.2)
    assert process.returncode == -9


def test_settings_for_the_command_do_not_reach_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBORGEN_TOKEN", "secret")
    assert {name for name in children.environment() if name.startswith("DEBORGEN_")} <= {children.PRIORITY}
