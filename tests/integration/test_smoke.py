"""The smoke run, which CI does on macOS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_coordinator_and_command_start_talk_and_stop_without_a_worker() -> None:
    words = [ROOT / "tools" / "smoke.sh", Path(sys.executable).parent]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("coordinator and command work\n")
