"""Somebody at a keyboard, who uses the command `deborgen`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from support.coordinator import clean_environment

DEBORGEN = Path(sys.executable).parent / "deborgen"


class Person:
    """A home, a working folder, and the command."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir(parents=True, exist_ok=True)
        folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
        self.environment = {**clean_environment(), **folders, "HOME": str(home), **environment}

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
        """The standard output of the command, when it ends as expected."""
        return self._expect(code, *words, stdin=stdin).stdout.decode()

    def err(self, *words: str, code: int, stdin: bytes = b"") -> str:
        """The standard error of the command, when it ends as expected."""
        return self._expect(code, *words, stdin=stdin).stderr.decode()

    def _expect(self, code: int, *words: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, (
            f"{words} ended with {done.returncode}:\n{done.stdout!r}\n{done.stderr.decode()}"
        )
        assert b"Traceback" not in done.stderr
        return done

    def rows(self, *words: str) -> list[dict[str, str]]:
        """The tab-separated table that the command prints.

        Only a newline ends a row: a name may hold other characters that `splitlines` takes for line breaks.
        """
        head, *lines = self.out(*words).removesuffix("\n").split("\n")
        names = head.split("\t")
        return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]

    def submit(self, text: str, *words: str, name: str = "job.yml", code: int = 0) -> str:
        """Submit a job file with this text; returns the number of its run."""
        self.write(name, text)
        return self.out("submit", name, *words, code=code).strip()
