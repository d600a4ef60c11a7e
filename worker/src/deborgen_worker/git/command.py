"""Runs git with the environment and the options that a repository of a stranger needs.

Nothing that the repository brings along is executed: no hook, no filter, no helper. Git reads no configuration of this
machine and its users, asks nobody, has a limit on time and on the size of files, and ends with all its processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deborgen_shared.jobfile.units import format_duration, format_size
from deborgen_shared.terminal import inert

#: Look this often whether the result is still wanted.
WAIT_SECONDS = 0.1
#: Read at most this much of git's messages.
MESSAGE_BYTES = 64 << 10
_BLOCK = 512
#: Nothing of this user or machine, and no prompt. `GIT_ALLOW_PROTOCOL` is empty: no command may contact anybody, unless
#: it says which protocol it needs.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin",
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS": "/bin/false",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PROTOCOL_FROM_USER": "0",
}
OPTIONS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.symlinks=false", "core.protectHFS=true",
    "core.protectNTFS=true", "core.attributesFile=/dev/null", "core.bigFileThreshold=16m", "credential.helper=",
    "submodule.recurse=false", "fetch.recurseSubmodules=false", "fetch.fsckObjects=true", "transfer.fsckObjects=true",
    "fetch.unpackLimit=1", "transfer.unpackLimit=1", "gc.auto=0", "maintenance.auto=false", "protocol.version=2",
    "http.followRedirects=false", "http.lowSpeedLimit=1000", "http.lowSpeedTime=30", "core.compression=0",
)  # fmt: skip
#: Sentences that git adds to a failure, and that say nothing about it.
_EMPTY_WORDS = ("Please make sure you have the correct access rights", "and the repository exists.")
#: Lines that only follow from the line before.
_FOLLOWS = ("fatal: Could not read from remote repository.", "fatal: fetch-pack: invalid index-pack output")


class GitFailed(Exception):
    """Git could not do it. The message is git's own last line, without control characters."""


class LimitReached(GitFailed):
    """It takes too long, or is too large."""


class Unwanted(Exception):
    """Nobody wants the result any more."""


@dataclass(frozen=True)
class Limits:
    """How long one command of git may take, and how large a file may become that it writes."""

    seconds: float
    file_bytes: int


def is_installed() -> bool:
    """Whether this machine has git."""
    return any(os.access(f"{folder}/git", os.X_OK) for folder in ENVIRONMENT["PATH"].split(":"))


def git(
    arguments: Sequence[str],
    limits: Limits,
    *,
    env: Mapping[str, str] | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> bytes:
    """Run git with these arguments, and return what it prints. Raises `GitFailed`, or `Unwanted`."""
    options = [part for option in OPTIONS for part in ("-c", option)]
    shell = 'ulimit -c 0; ulimit -f "$0" || exit 126; exec "$@"'
    blocks = str(max(1, limits.file_bytes // _BLOCK))
    command = ["/bin/sh", "-c", shell, blocks, "git", *options, *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**ENVIRONMENT, **(env or {})},
            cwd="/", start_new_session=True,
        )  # fmt: skip
        try:
            code = _wait(process, limits.seconds, wanted)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what git has left behind
            process.wait()
        if code == 0:
            out.seek(0)
            return out.read()
        err.seek(max(0, err.seek(0, os.SEEK_END) - MESSAGE_BYTES))
        words = err.read().decode(errors="replace")
    if code is None:
        raise LimitReached(f"it has not ended after {format_duration(limits.seconds)}")
    too_large = f"signal {signal.SIGXFSZ.value}" in words or code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
    if too_large or "File size limit exceeded" in words:
        raise LimitReached(f"it is larger than the limit of {format_size(limits.file_bytes)}")
    raise GitFailed(last_line(words) or f"git ended with the exit code {code}")


def _wait(process: subprocess.Popen[bytes], seconds: float, wanted: Callable[[], bool]) -> int | None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(WAIT_SECONDS)
        if time.monotonic() > end:
            return None
        if not wanted():
            raise Unwanted


def last_line(words: str) -> str:
    """The last line of git's messages that says something, in one line without control characters."""
    lines = [inert(line.strip()) for line in words.replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line and line not in _EMPTY_WORDS]
    while len(lines) > 1 and (lines[-1] in _FOLLOWS or lines[-1] == "fatal: fsck error in packed object"):
        lines.pop()
    return lines[-1][:500] if lines else ""


def remove_leftovers(mirror: Path) -> None:
    """Remove what a fetch has left behind that was killed: its locks, and packs that are not complete."""
    for each in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock"), *mirror.glob("objects/pack/tmp_*")):
        each.unlink(missing_ok=True)
    for each in mirror.glob("objects/tmp_*"):
        if each.is_file():
            each.unlink(missing_ok=True)
