"""A real pool for the command: a coordinator, a worker, and a person with a home of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess, clean_environment

DEBORGEN = Path(sys.executable).parent / "deborgen"


class Person:
    """Somebody at a keyboard: a home, a working folder, and the command."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir(parents=True, exist_ok=True)
        places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
        self.environment = {**clean_environment(), **places, "HOME": str(home), **environment}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *words: str, stdin: bytes = b"", seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [DEBORGEN, *words], cwd=self.folder, env=self.environment, input=stdin, capture_output=True,
            timeout=seconds, check=False,
        )  # fmt: skip

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([DEBORGEN, *words], cwd=self.folder, env=self.environment, **options)

    def out(self, *words: str, code: int = 0, stdin: bytes = b"") -> str:
        """What it prints on stdout, when it ends as expected."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, (
            f"{words} ended with {done.returncode}:\n{done.stdout!r}\n{done.stderr.decode()}"
        )
        assert b"Traceback" not in done.stderr
        return done.stdout.decode()

    def err(self, *words: str, code: int, stdin: bytes = b"") -> str:
        """What it prints on stderr, when it ends as expected."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, (
            f"{words} ended with {done.returncode}:\n{done.stdout!r}\n{done.stderr.decode()}"
        )
        assert b"Traceback" not in done.stderr
        return done.stderr.decode()

    def rows(self, *words: str) -> list[dict[str, str]]:
        """The tab-separated table that it prints."""
        head, *lines = self.out(*words).splitlines()
        names = head.split("\t")
        return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]

    def submit(self, text: str, *words: str, name: str = "job.yml", code: int = 0) -> str:
        """Submit a job file of this text; the number of its run."""
        self.write(name, text)
        return self.out("submit", name, *words, code=code).strip()


class WorkerProcess:
    """A worker that runs jobs as plain processes."""

    def __init__(self, coordinator: CoordinatorProcess, folder: Path, name: str = "box", cpus: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        token = folder / "token"
        token.write_text(coordinator.token("worker", name))
        token.chmod(0o600)
        self.name = name
        self.log = folder / "worker.log"
        self._coordinator = coordinator
        self._command = [
            sys.executable, "-m", "deborgen_worker", "run", "--coordinator", coordinator.url, "--name", name,
            "--token-file", str(token), "--state-dir", str(folder / "state"), "--runner", "subprocess",
            "--cpus", str(cpus), "--memory", "4GiB", "--drain-grace", "1s",
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> WorkerProcess:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=clean_environment())
        session = self._coordinator.client("admin")

        def is_open() -> bool:
            found = session.get(f"/v1/workers/{self.name}")
            return found.status_code == 200 and found.json()["state"] == "open"

        eventually(is_open, "the worker joins", self.log)
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def eventually(condition: Callable[[], Any], what: str, log: Path | None = None, seconds: float = 30) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}\n{log.read_text()[-3000:] if log else ''}")
        time.sleep(0.05)
    return value


class Pool:
    """A coordinator, a worker, and its users."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.coordinator = CoordinatorProcess(folder / "coordinator", heartbeat_seconds=1, lease_seconds=20, **settings)
        (folder / "coordinator").mkdir(parents=True)
        self.worker: WorkerProcess

    def __enter__(self) -> Pool:
        self.coordinator.start()
        self.worker = WorkerProcess(self.coordinator, self.folder / "box").start()
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop()
        self.coordinator.stop()

    def person(self, name: str, role: str = "submitter") -> Person:
        """Somebody who has a token for the pool in the environment."""
        return Person(
            self.folder / "homes" / name,
            DEBORGEN_URL=self.coordinator.url,
            DEBORGEN_TOKEN=self.coordinator.token(role, name),
        )


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool that the tests of this folder share; each leaves it as it was."""
    with Pool(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture(scope="package")
def anna(pool: Pool) -> Person:
    return pool.person("anna")


@pytest.fixture(scope="package")
def admin(pool: Pool) -> Person:
    return pool.person("root", "admin")


@pytest.fixture
def stranger(tmp_path: Path) -> Person:
    """Somebody with an empty home, who knows no coordinator."""
    return Person(tmp_path / "stranger")


@pytest.fixture(autouse=True)
def _own_environment() -> None:
    for name in [name for name in os.environ if name.startswith("DEBORGEN_")]:
        del os.environ[name]
