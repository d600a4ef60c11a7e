"""A real worker in a process of its own, on a real coordinator.

with WorkerProcess(tmp_path, coordinator) as worker:
    ...
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from support.coordinator import CoordinatorProcess, clean_environment


def open_for_jobs(folder: Path) -> None:
    """Let other users pass through this temporary folder, because a root worker runs plain jobs as other users."""
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        if mode & stat.S_ISVTX:  # the folder of all temporary files
            return
        if not mode & 0o001:
            each.chmod(stat.S_IMODE(mode) | 0o011)


def shared_file(path: Path) -> Path:
    """An empty file that every job may write to, whatever its user."""
    path.touch()
    path.chmod(0o666)
    return path


class WorkerProcess:
    """`deborgen-worker run` with a state directory below `folder`. Settings are given by their names.

    With `user`, the number of a user, it is not run by the user of the tests, who must be root, but by that one.
    """

    def __init__(
        self,
        folder: Path,
        coordinator: CoordinatorProcess,
        name: str | None = None,
        url: str | None = None,
        env: dict[str, str] | None = None,
        user: int | None = None,
        **settings: Any,
    ) -> None:
        self.name = name or f"w-{uuid.uuid4().hex[:10]}"
        self.folder = folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        open_for_jobs(self.folder)
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
        self.user = user
        if user is not None:
            for each in (self.folder, self.token_file):
                os.chown(each, user, user)

    def __enter__(self) -> WorkerProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, **env: str) -> WorkerProcess:
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in self.settings.items()]
        command = [
            *self._python(), "-m", "deborgen_worker", "run", "--coordinator", self.url, "--name", self.name,
            "--token-file", str(self.token_file), "--state-dir", str(self.state), *flags,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=clean_environment() | self.env | env
            )
        return self

    def _python(self) -> list[str]:
        """The interpreter. Another user may not be able to reach ours: then it is the system's, with our packages."""
        if self.user is None:
            return [sys.executable]
        self.env["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each.endswith(("site-packages", "src")))
        other = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "env"]
        found = subprocess.run([*other, sys.executable, "-c", ""], capture_output=True, check=False).returncode == 0
        return [*other, sys.executable if found else f"/usr/bin/python3.{sys.version_info[1]}"]

    def stop(self, seconds: float = 30.0) -> int:
        """Send SIGTERM, and a second one if needed: after that it gives running jobs back without waiting."""
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
        """kill -9 the worker alone: its jobs keep running."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def lose_power(self) -> None:
        """kill -9 everything of this machine at once: the worker, its supervisor, and its jobs."""
        assert self.process is not None
        # First stop those who would notice the end of another.
        self._signal([self.process.pid, *self._pids("supervisor.py")], signal.SIGSTOP)
        self._signal(self._pids(""), signal.SIGKILL)
        self.kill()
        self.process = None

    @staticmethod
    def _signal(pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self, word: str) -> list[int]:
        """The processes that work in the state directory, or name it in their command line together with this word."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (each / "cmdline").read_bytes().decode(errors="replace").split("\0")
                named = str(self.state) in words and any(word in one for one in words)
                if named or (not word and (each / "cwd").readlink().is_relative_to(self.state)):
                    found.append(int(each.name))
        return found

    def _end_supervisor(self) -> None:
        self._signal(self._pids("supervisor.py"), signal.SIGKILL)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of the owner's commands."""
        return subprocess.run(
            [sys.executable, "-m", "deborgen_worker", *words, "--state-dir", str(self.state)],
            capture_output=True, text=True, timeout=120, check=False, env=clean_environment(),
        )  # fmt: skip

    def stages(self) -> list[str]:
        """The stages of its attempts. A new attempt is listed once it is in the journal."""
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
