"""A real worker in a process of its own, on a real coordinator.

with WorkerProcess(tmp_path, coordinator) as worker:
    ...
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from support.coordinator import CoordinatorProcess, clean_environment


class WorkerProcess:
    """`deborgen-worker run` with a state directory below `folder`. Settings are given by their names."""

    def __init__(
        self,
        folder: Path,
        coordinator: CoordinatorProcess,
        name: str | None = None,
        url: str | None = None,
        env: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.name = name or f"w-{uuid.uuid4().hex[:10]}"
        self.folder = folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state = self.folder / "state"
        self.log = self.folder / "worker.log"
        self.coordinator = coordinator
        self.url = url or coordinator.url
        self.settings = {"runner": "subprocess", "cpus": 2, "memory": "8GiB", "min_free_disk": 0, **settings}
        self.env = env or {}
        self.token_file = self.folder / "token"
        self.token_file.write_text(coordinator.token("worker", self.name))
        self.token_file.chmod(0o600)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, **env: str) -> WorkerProcess:
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in self.settings.items()]
        command = [
            sys.executable, "-m", "deborgen_worker", "run", "--coordinator", self.url, "--name", self.name,
            "--token-file", str(self.token_file), "--state-dir", str(self.state), *flags,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=clean_environment() | self.env | env
            )
        return self

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM twice: it gives back what runs without waiting for it."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(1.5)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        code = self.process.returncode
        self.process = None
        self._end_supervisor()
        return code

    def kill(self) -> None:
        """kill -9 of the worker alone: what it runs goes on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _end_supervisor(self) -> None:
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                try:
                    words = (each / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if str(self.state).encode() in words and any(b"supervisor.py" in word for word in words):
                    os.kill(int(each.name), signal.SIGKILL)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of the owner's commands."""
        return subprocess.run(
            [sys.executable, "-m", "deborgen_worker", *words, "--state-dir", str(self.state)],
            capture_output=True, text=True, timeout=120, check=False, env=clean_environment(),
        )  # fmt: skip

    def stages(self) -> list[str]:
        """Of what it holds. What it was given is here once it is written down."""
        return [each["stage"] for each in self.status()["attempts"]]

    def status(self) -> dict[str, Any]:
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def answers(self) -> bool:
        """Whether it takes commands."""
        return self.command("status", "--json").returncode == 0

    def said(self) -> str:
        return self.log.read_text(errors="replace")
