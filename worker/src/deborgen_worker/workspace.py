"""The folder in which a job runs, and the variables and files that describe the job to its program.

An attempt's folder holds `work`, where the job may write, and beside it the worker's own files: the output, and
artifacts that are being uploaded. Inside `work`, `.deborgen` has the parameters, and the job writes its result, its
progress and its events there.
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
    """The job's spec. Raises `CannotStart` if this version does not understand it."""
    try:
        return msgspec.convert(assignment.spec, JobSpec)
    except msgspec.ValidationError as error:
        raise CannotStart(f"this worker does not understand the job: {error}") from None


def launch_of(assignment: Assignment, spec: JobSpec, folder: Path, *, pids: int, tmp_size: int) -> Launch:
    """What the runner needs to run the attempt. A later session computes the same, except PATH and the deadline."""
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


def lay_out(launch: Launch, assignment: Assignment, spec: JobSpec, cache: BlobCache, folders: Folders) -> None:
    """Make the workspace and put the job's files into it. Leftovers of an interrupted try are removed first."""
    folders.make(launch.folder)
    fd = os.open(f"{launch.workspace}/{OWN}/{PARAMS}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        params = msgspec.json.encode(assignment.params)
        os.write(fd, params)
        if os.fstat(fd).st_size > len(params):  # in a reused folder, the last attempt's parameters were longer
            os.ftruncate(fd, len(params))
    finally:
        os.close(fd)
    for each in spec.files:
        cache.copy(each.sha256, target_path(launch.workspace, each.path), each.mode)
    for given in assignment.inputs:
        cache.copy(given.sha256, target_path(launch.workspace, given.target), 0o644)
    if launch.image:
        _open_for_anyone(launch.workspace)


def target_path(workspace: Path, path: str) -> Path:
    """The absolute path of a file in the workspace; its folders are created. No job has run here yet, so no part of the
    path can be a link."""
    problem = check_path(path)
    if problem:
        raise CannotStart(f"the path {path!r} {problem}")
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _open_for_anyone(workspace: Path) -> None:
    """Let any user write, because an image may run as any user and without capabilities. The folder around it stays
    closed to others."""
    for folder, folders, files in os.walk(workspace):
        for name in folders:
            Path(folder, name).chmod(0o777)
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o666)
    workspace.chmod(0o777)


def progress_of(workspace: Path) -> tuple[float | None, str]:
    """What the job last wrote to $DEBORGEN_PROGRESS: a fraction between 0 and 1, and a message."""
    text = read_small(workspace, f"{OWN}/progress", PROGRESS_BYTES)
    if not text:
        return None, ""
    # A program that truncates the file and goes on writing at its old offset leaves NULs, which no database stores.
    lines = text.decode(errors="replace").replace("\0", "").strip().splitlines()
    first, _, message = (lines[-1] if lines else "").strip().partition(" ")
    with contextlib.suppress(ValueError):
        share = float(first)
        if 0 <= share <= 1:
            return share, message.strip()[:500]
    return None, (lines[-1] if lines else "").strip()[:500]


def read_small(workspace: Path, path: str, limit: int) -> bytes | None:
    """The content of a small regular file in the workspace, read without following any link; None if there is none.

    It reads one byte more than the limit, so that the caller can tell that the file is too large.
    """
    with contextlib.suppress(OSError):
        os.stat(f"{workspace}/{path}", follow_symlinks=False)  # noqa: PTH116 - mostly missing: one call finds out
        fd = open_inside(workspace, path)
        with os.fdopen(fd, "rb") as file:
            return file.read(limit + 1)
    return None


def open_inside(workspace: Path, path: str) -> int:
    """Open a regular file in the workspace for reading. A link anywhere in the path is an error, and so is a device."""
    parent, _, name = path.rpartition("/")
    folder = open_folder(workspace, parent)
    try:
        # O_NONBLOCK: opening a FIFO must not block.
        fd = os.open(name, NO_LINK | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def parse_result(data: bytes) -> tuple[dict[str, str | int | float | bool | None] | None, str]:
    """The job's result, which must be a flat JSON object of at most 64 KiB, or else what is wrong with it."""
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
