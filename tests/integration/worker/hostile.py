"""A program that tries to reach what is not its own. Each function says whether one try succeeded.

It runs as a job, with its targets as parameters, and needs only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def possible(action: Callable[[], object]) -> bool:
    try:
        return action() is not False
    except OSError:
        return False


def read(path: str) -> bool:
    return possible(Path(path).read_bytes)


def change(path: str) -> bool:
    """Write to a file, or cut it to its own size."""
    target = Path(path)
    return opens(target, "r+b") or possible(lambda: os.truncate(target, target.stat().st_size))


def opens(path: Path, mode: str) -> bool:
    return possible(lambda: path.open(mode).close())


def answers(path: str, message: object) -> bool:
    """Send a line of JSON to a socket, and wait for an answer. Its path may be too long for an address."""
    short = Path(tempfile.mkdtemp(dir=".")) / "to"
    short.symlink_to(Path(path).parent)

    def ask() -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5)
            line.connect(f"{short}/{Path(path).name}")
            line.sendall(json.dumps(message).encode() + b"\n")
            return bool(line.recv(1))

    return possible(ask)


def gains_rights(program: str) -> bool:
    """Run a copy of `id` whose file is setuid root."""
    return subprocess.run([program, "-u"], capture_output=True, text=True).stdout.strip() == "0" != str(os.getuid())


def disks() -> list[Path]:
    return [each for each in Path("/dev").iterdir() if each.is_block_device()]


def stay_behind(mark: str) -> None:
    """Start a process that leaves the session and forgets its environment."""
    with contextlib.suppress(OSError):
        code = "import time; time.sleep(900)"
        subprocess.Popen([sys.executable, "-c", code, mark], env={}, start_new_session=True)


def main(given: dict[str, Any]) -> dict[str, bool]:
    state, victim = given["state"], given["victim"]
    others = [given["worker"], given["supervisor"], given["victim_pid"]]
    memory = any(opens(Path(f"/proc/{pid}/mem"), "r+b") for pid in others)
    stay_behind(given["mark"])
    return {
        "token": read(given["token"]),
        "spool": any(action(f"{state}/{name}") for action in (read, change) for name in ("journal", "history.jsonl")),
        "other jobs": any(action(f"{victim}/secret") for action in (read, change)),
        "owner's files": read(given["private"]),
        "signals": any(possible(partial(os.kill, pid, 0)) for pid in others),
        "memory": memory or any(read(f"/proc/{pid}/environ") for pid in others),
        "network": possible(lambda: socket.create_connection(tuple(given["address"]), 5).close()),
        "devices": any(opens(each, "rb") for each in disks()),
        "commands": memory
        or answers(f"{state}/control.sock", {"command": "status"})
        or answers(f"{state}/owner.sock", {"do": "status"})
        or answers(f"{state}/supervisor.sock", {"do": "list"}),
        "setuid": gains_rights(given["setuid"]),
    }


if __name__ == "__main__":
    print("tries")
    Path(os.environ["DEBORGEN_RESULT"]).write_text(json.dumps(main(json.loads(os.environ["TARGETS"]))))
