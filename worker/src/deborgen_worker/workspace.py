"""The folder in which a job runs, and what it is told there.

An attempt's folder holds `work`, which the job may write to, and beside it what is the worker's: the output, the
artifacts on their way. Inside `work`, `.deborgen` has the parameters, and takes the result, the progress and events.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deborgen_shared.jobfile.kinds import unstorable
from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.jobfile.template import text_of
from deborgen_shared.messages import Assignment
from deborgen_worker.cache import BlobCache
from deborgen_worker.folders import EVENTS, IN_CONTAINER, NO_LINK, OWN, PARAMS, TEMPORARY, WORK, Folders, open_folder
from deborgen_worker.runners.protocol import CannotStart, Launch

PROGRESS_BYTES = 4096
RESULT_BYTES = 64 * 1024
#: The shell of a script in a container: bash where the image has it.
CONTAINER_SHELL = (
    'if command -v bash >/dev/null 2>&1; then exec bash -eu -c "$0"; else exec sh -eu -c "$0"; fi'  # the script is $0
)
_host_shell = shutil.which("bash") or "/bin/sh"
_host_path = os.environ.get("PATH", os.defpath)


def spec_of(assignment: Assignment) -> JobSpec:
    """The job's spec; what this version cannot read is refused in words."""
    try:
        return msgspec.convert(assignment.spec, JobSpec)
    except msgspec.ValidationError as error:
        raise CannotStart(f"this worker does not understand the job: {error}") from None


def launch_of(assignment: Assignment, spec: JobSpec, folder: Path, *, pids: int, tmp_size: int) -> Launch:
    """What the runner needs. It is the same again in a later session."""
    container = bool(spec.image)
    workspace = folder / WORK
    inside = IN_CONTAINER if container else str(workspace)
    if isinstance(spec.run, list):
        argv = tuple(spec.run)
    elif container:
        argv = ("sh", "-c", CONTAINER_SHELL, spec.run)
    else:
        argv = (_host_shell, "-eu", "-c", spec.run)
    return Launch(
        attempt=assignment.attempt,
        argv=argv,
        env=_environment(assignment, spec, inside, folder, container),
        folder=folder,
        workspace=workspace,
        image=spec.image or "",
        cpus=spec.resources.cpus,
        memory=spec.resources.memory,
        pids=pids,
        tmp_size=tmp_size,
        disk=spec.resources.disk,
        network=spec.network,
        timeout_seconds=assignment.timeout_seconds,
    )


def _environment(
    assignment: Assignment, spec: JobSpec, inside: str, folder: Path, container: bool
) -> Mapping[str, str]:
    env = {"HOME": inside, "LANG": "C.UTF-8"}
    if not container:
        env |= {"PATH": _host_path, "TMPDIR": str(folder / TEMPORARY), "USER": os.environ.get("USER", "")}
    env |= spec.env
    env |= assignment.secrets
    for name, value in assignment.params.items():
        env[f"DEBORGEN_PARAM_{re.sub(r'[^A-Za-z0-9_]', '_', name).upper()}"] = text_of(value)
    return env | {
        "DEBORGEN_JOB_ID": assignment.job,
        "DEBORGEN_ATTEMPT": str(assignment.number),
        "DEBORGEN_PARAMS": f"{inside}/{OWN}/{PARAMS}",
        "DEBORGEN_RESULT": f"{inside}/{OWN}/result.json",
        "DEBORGEN_PROGRESS": f"{inside}/{OWN}/progress",
        "DEBORGEN_EVENTS": f"{inside}/{OWN}/{EVENTS}",
        "DEBORGEN_DEADLINE": str(int(time.time() + assignment.timeout_seconds)),
    }


def make(launch: Launch, assignment: Assignment, spec: JobSpec, cache: BlobCache, folders: Folders) -> None:
    """Lay everything out, fresh: what an interrupted try left is removed first."""
    folders.make(launch.folder)
    fd = os.open(f"{launch.workspace}/{OWN}/{PARAMS}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        params = msgspec.json.encode(assignment.params)
        os.write(fd, params)
        if os.fstat(fd).st_size > len(params):  # an attempt before this one had longer ones
            os.ftruncate(fd, len(params))
    finally:
        os.close(fd)
    for each in spec.files:
        cache.copy(each.sha256, place(launch.workspace, each.path), each.mode)
    for given in assignment.inputs:
        cache.copy(given.sha256, place(launch.workspace, given.target), 0o644)
    if launch.image:
        _open_for_anyone(launch.workspace)


def place(workspace: Path, path: str) -> Path:
    """Where a relative path lies in the workspace, with its folders made. The workspace has no links yet."""
    problem = check_path(path)
    if problem:
        raise CannotStart(f"the path {path!r} {problem}")
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _open_for_anyone(workspace: Path) -> None:
    """The image may run as any user, and no user has a capability. The attempt's folder around it stays closed."""
    for folder, folders, files in os.walk(workspace):
        for name in folders:
            Path(folder, name).chmod(0o777)
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o666)
    workspace.chmod(0o777)


def progress_of(workspace: Path) -> tuple[float | None, str]:
    """What the job last wrote to $DEBORGEN_PROGRESS: a share of the whole, and words."""
    text = read_small(workspace, f"{OWN}/progress", PROGRESS_BYTES)
    if not text:
        return None, ""
    # A program that empties the file and writes on where it was leaves NULs before it, which no database holds.
    lines = text.decode(errors="replace").replace("\0", "").strip().splitlines()
    first, _, message = (lines[-1] if lines else "").strip().partition(" ")
    with contextlib.suppress(ValueError):
        share = float(first)
        if 0 <= share <= 1:
            return share, message.strip()[:500]
    return None, (lines[-1] if lines else "").strip()[:500]


def read_small(workspace: Path, path: str, limit: int) -> bytes | None:
    """A small regular file below the workspace, reached without following any link; None if there is none.

    One byte more than the limit is read, so that the caller can tell that it is too large.
    """
    with contextlib.suppress(OSError):
        os.stat(f"{workspace}/{path}", follow_symlinks=False)  # noqa: PTH116 - mostly it is not there: one call tells
        fd = open_inside(workspace, path)
        with os.fdopen(fd, "rb") as file:
            return file.read(limit + 1)
    return None


def open_inside(workspace: Path, path: str) -> int:
    """Open a regular file below the workspace for reading. A link anywhere on the way is an error, as is a device."""
    parent, _, name = path.rpartition("/")
    folder = open_folder(workspace, parent)
    try:
        # O_NONBLOCK: a FIFO of that name must not hold us up.
        fd = os.open(name, NO_LINK | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def parse_result(data: bytes) -> tuple[dict[str, str | int | float | bool | None] | None, str]:
    """The job's result, or what is wrong with it: a flat JSON object of at most 64 KiB."""
    if len(data) > RESULT_BYTES:
        return None, "the result is larger than 64 KiB and was left out"
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return None, f"the result is not JSON and was left out: {error}"[:500]
    if not isinstance(found, dict):
        return None, "the result is not a JSON object and was left out"
    for key, value in found.items():
        if not isinstance(value, str | int | float | bool | None):
            return None, f"the result is not flat ({key!r} holds more than one value) and was left out"[:500]
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return None, f"the result has a number that is too large ({key!r}) and was left out"[:500]
        for text in (key, value):
            if isinstance(text, str) and (reason := unstorable(text)) is not None:
                return None, f"the result has a text that {reason} ({key!r}) and was left out"[:500]
    if len(msgspec.json.encode(found)) > RESULT_BYTES:  # 1E5 becomes 100000.0
        return None, "the result is larger than 64 KiB, with its numbers written out, and was left out"
    return found, ""


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")
