"""Run a playbook as the organiser would, and see how it went."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
ANSIBLE = ROOT / "deploy" / "ansible"

#: How many seconds `site.yml` may take for a droplet and two PCs with warm package caches, on a quiet machine.
PROMISED = {"the first site.yml": 120, "the second site.yml": 30}


@dataclass
class Play:
    """How a playbook went."""

    code: int
    text: str
    seconds: float
    load: float = 0.0
    recap: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        return sum(host["changed"] for host in self.recap.values())

    @property
    def words(self) -> str:
        """The output, with a single space for each line break."""
        return re.sub(r"\s+", " ", self.text)


def run_playbook(
    playbook: str | Path, *arguments: str, inventory: Path, connections: Path, folder: Path = ANSIBLE, **settings: str
) -> Play:
    """Run it from `folder`; `settings` are Ansible's, by the names of its environment variables."""
    environment = {
        **os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_CONTROL_PATH_DIR": str(connections), **settings,
    }  # fmt: skip
    began, load = time.monotonic(), os.getloadavg()[0]
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, playbook, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    text = done.stdout + done.stderr
    recap = {
        line.split()[0]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
        for line in text.splitlines()
        if re.match(r"\S+\s+: ok=\d+", line)
    }
    return Play(done.returncode, text, time.monotonic() - began, load, recap)


def figure(what: str, play: Play) -> str:
    """How long a play took, beside what was promised and how busy the machine was before it."""
    return f"{what:<22} {play.seconds:5.0f} s   promised {PROMISED[what]:3} s   load before it {play.load:.1f}"
