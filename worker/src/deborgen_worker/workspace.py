"""The folder in which a job runs, and the variables and files that describe the job to its program.

An attempt's folder holds `work`, where the job may write, and beside it the worker's own files: the output, and
artifacts that are being uploaded. Inside `work`, `.deborgen` has the parameters, and the job writes its result, its
progress and its events there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from deborgen_shared import headers
from deborgen_shared.jobfile.kinds import unstorable
from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.paths import INPUTS, check_file, check_path
from deborgen_shared.jobfile.template import text_of
from deborgen_shared.messages import REGISTRY_CREDENTIALS, Assignment, Checkpoint, Scalar
from deborgen_shared.states import Phase
from deborgen_worker import shared_folders
from deborgen_worker.cache import BlobCache
from deborgen_worker.folders import (
    ASKED,
    EVENTS,
    IN_CONTAINER,
    NO_LINK,
    OWN,
    OWN_IN_CONTAINER,
    PARAMS,
    PROGRESS,
    TEMPORARY,
    WORK,
    Folders,
    may_read_for,
    open_folder,
    owner_of,
)
from deborgen_worker.git.checkout import make_links
from deborgen_worker.runners.protocol import CannotStart, Launch
from deborgen_worker.sharing import SharedFolder

#: The file in an attempt's folder that names the commit of its repository.
COMMIT = "commit"
PROGRESS_BYTES = 4096
RESULT_BYTES = 64 * 1024
#: Objects in a result may be nested this deep.
RESULT_LEVELS = 20
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


def launch_of(
    assignment: Assignment,
    spec: JobSpec,
    folder: Path,
    *,
    pids: int,
    tmp_size: int,
    gives_way: bool = True,
    shared: Mapping[str, SharedFolder] | None = None,
) -> Launch:
    """What the runner needs to run the attempt. A later session computes the same, except for PATH."""
    launch = Launch(
        attempt=assignment.attempt,
        argv=(),
        env={},
        folder=folder,
        workspace=folder / WORK,
        image=spec.image or "",
        cpus=spec.resources.cpus,
        memory=spec.resources.memory,
        pids=pids,
        tmp_size=tmp_size,
        disk=spec.resources.disk,
        network=spec.network,
        timeout_seconds=assignment.timeout_seconds,
        gives_way=gives_way,
        push=assignment.push,
        credentials=assignment.secrets.get(REGISTRY_CREDENTIALS, ""),
        pool_image=assignment.pool_image,
    )
    if spec.workspace is not None and spec.workspace.shared:
        folder_of = (shared or {}).get(spec.workspace.shared)
        if folder_of is None or (spec.workspace.write and not folder_of.write):
            what = "to write to" if spec.workspace.write else "to use"
            raise CannotStart(f"the owner of this worker does not allow jobs {what} a folder {spec.workspace.shared!r}")
        launch.shared, launch.shared_write = Path(folder_of.path), spec.workspace.write
    set_program(launch, assignment, spec)
    return launch


def set_program(launch: Launch, assignment: Assignment, spec: JobSpec) -> None:
    """Set what is executed: the image, the arguments and the environment."""
    container = bool(spec.image)
    launch.image, launch.build = spec.image or "", spec.build
    if isinstance(spec.run, list):
        launch.argv = tuple(spec.run)
    elif container:
        launch.argv = ("sh", "-c", CONTAINER_SHELL, spec.run)
    else:
        launch.argv = (_host_shell, "-eu", "-c", spec.run)
    own = OWN_IN_CONTAINER if container else f"{launch.workspace}/{OWN}"
    inside = IN_CONTAINER if container else str(launch.shared or launch.workspace)
    launch.env = _environment(assignment, spec, _Places(inside, own, launch), container)


class _Places(NamedTuple):
    """Where the program sees its workspace, and deborgen's own folder."""

    workspace: str
    own: str
    launch: Launch

    @property
    def inputs(self) -> str:
        """The artifacts of needed steps. Nothing of the job's own is put into a shared folder that it may only read."""
        return f"{self.own if self.launch.shared else self.workspace}/{INPUTS}"


def _environment(assignment: Assignment, spec: JobSpec, at: _Places, container: bool) -> Mapping[str, str]:
    env = {"HOME": at.own if at.launch.shared else at.workspace, "LANG": "C.UTF-8"}
    if not container:
        env |= {"PATH": _host_path, "TMPDIR": f"{at.launch.folder}/{TEMPORARY}", "USER": os.environ.get("USER", "")}
    if assignment.traceparent:
        env[headers.TRACEPARENT.upper()] = assignment.traceparent
    env |= spec.env
    env |= {name: assignment.secrets[name] for name in spec.secrets if name in assignment.secrets}
    for name, value in assignment.params.items():
        env[f"DEBORGEN_PARAM_{re.sub(r'[^A-Za-z0-9_]', '_', name).upper()}"] = text_of(value)
    if assignment.phase is not None:
        env |= {"DEBORGEN_PHASE": assignment.phase, "DEBORGEN_ROUND": str(assignment.round)}
    return env | {
        "DEBORGEN_JOB_ID": assignment.job,
        "DEBORGEN_ATTEMPT": str(assignment.number),
        "DEBORGEN_PARAMS": f"{at.own}/{PARAMS}",
        "DEBORGEN_INPUTS": at.inputs,
        "DEBORGEN_RESULT": f"{at.own}/result.json",
        "DEBORGEN_PROGRESS": f"{at.own}/{PROGRESS}",
        "DEBORGEN_CHECKPOINT": f"{at.own}/{ASKED}",
        "DEBORGEN_EVENTS": f"{at.own}/{EVENTS}",
    }


class CheckOut(NamedTuple):
    """The commit of the job's repository, and what writes its files into a folder. That returns the paths of links."""

    commit: str
    write: Callable[[Path], list[str]]


def lay_out(
    launch: Launch,
    assignment: Assignment,
    spec: JobSpec,
    cache: BlobCache,
    folders: Folders,
    check_out: CheckOut | None = None,
) -> None:
    """Make the workspace and put the job's files into it. Leftovers of an interrupted try are removed first.

    The job's own files are laid over the files of its repository.
    """
    folders.make(launch.folder, container=bool(launch.image or launch.build))
    fd = os.open(f"{launch.workspace}/{OWN}/{PARAMS}", os.O_WRONLY | os.O_CREAT | NO_LINK, 0o644)
    try:
        params = msgspec.json.encode(assignment.params)
        os.write(fd, params)
        found = os.fstat(fd)
        if found.st_size > len(params):  # in a reused folder, the last attempt's parameters were longer
            os.ftruncate(fd, len(params))
        if found.st_mode & 0o777 != 0o644:  # the worker's umask may be stricter, and the job may have another user
            os.fchmod(fd, 0o644)
    finally:
        os.close(fd)
    links: list[str] = []
    if check_out is not None:
        (launch.folder / COMMIT).write_text(check_out.commit)
        links = check_out.write(launch.workspace)
        if spec.checkpoint is not None and assignment.checkpoint is not None:  # it replaces what is there
            links = [path for path in links if not _is_below(path, spec.checkpoint.path)]
    if launch.shared is not None:
        _lay_out_shared(launch, launch.shared, assignment, spec, cache)
        return
    for each in spec.files:
        cache.copy(each.sha256, target_path(launch.workspace, each.path), each.mode)
    for given in assignment.inputs:
        mode = make_way(launch.workspace, given.target) if assignment.phase == Phase.VERIFY else 0o644
        cache.copy(given.sha256, target_path(launch.workspace, given.target), mode)
    if spec.checkpoint is not None and assignment.checkpoint is not None:
        _restore(launch.workspace, spec.checkpoint.path, assignment.checkpoint, cache)
    if launch.image:
        _open_for_anyone(launch.workspace)
    make_links(
        launch.workspace, links, [*(each.path for each in spec.files), *(each.target for each in assignment.inputs)]
    )
    if not launch.image and (spec.files or assignment.inputs or check_out or assignment.checkpoint):
        _give_to_owner(launch.workspace)


def _lay_out_shared(launch: Launch, folder: Path, assignment: Assignment, spec: JobSpec, cache: BlobCache) -> None:
    """Put the job's files into the shared folder, and its inputs into deborgen's own folder."""
    if not folder.is_dir():
        raise FileNotFoundError("the shared folder is not there")
    for each in spec.files:
        copy = launch.folder / "file"
        cache.copy(each.sha256, copy, each.mode)
        if problem := check_path(each.path):
            raise CannotStart(f"the path {each.path!r} {problem}")
        shared_folders.put(copy, folder, each.path, each.mode)
        copy.unlink()
    own = launch.workspace / OWN
    for given in assignment.inputs:
        if _is_below(given.target, INPUTS):  # what else a check gets is in the shared folder already
            cache.copy(given.sha256, target_path(own, given.target), 0o644)
    if launch.image:
        _open_for_anyone(launch.workspace)
    elif assignment.inputs:
        _give_to_owner(launch.workspace)


def read_commit(folder: Path) -> str:
    """The commit that was checked out into the folder of an attempt; empty if there is none."""
    with contextlib.suppress(OSError):
        return (folder / COMMIT).read_text()
    return ""


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _restore(workspace: Path, root: str, checkpoint: Checkpoint, cache: BlobCache) -> None:
    """Put a checkpoint in the place of whatever the job's files have there."""
    place = target_path(workspace, root)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    for file in checkpoint.files:
        if not _is_below(file.path, root):
            raise CannotStart(f"the path {file.path!r} of the checkpoint is not in {root!r}")
        cache.copy(file.sha256, target_path(workspace, file.path), file.mode)


def target_path(workspace: Path, path: str) -> Path:
    """The absolute path of a file in the workspace; its folders are created. No job has run here yet, so no part of the
    path can be a link."""
    problem = check_path(path)
    if problem:
        raise CannotStart(f"the path {path!r} {problem}")
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def make_way(workspace: Path, path: str) -> int:
    """Remove from the workspace what is in the way of a file that is laid over it, and return the mode for that file.

    A file that is replaced passes on its mode. A link is removed, not followed.
    """
    problem = check_file(path)
    if problem:
        raise CannotStart(f"the path {path!r} {problem}")
    place = workspace
    for name in path.split("/"):
        mode = place.lstat().st_mode
        if not stat.S_ISDIR(mode):  # it was a file, and now it is a folder
            place.unlink()
            return 0o644
        place /= name
        if not os.path.lexists(place):
            return 0o644
    mode = place.lstat().st_mode
    if stat.S_ISDIR(mode):
        shutil.rmtree(place)
    else:
        place.unlink()
    return mode & 0o777 if stat.S_ISREG(mode) else 0o644


def _open_for_anyone(workspace: Path) -> None:
    """Let every user write to the workspace, because an image may run as any user and without capabilities. The
    attempt's folder stays closed to other users."""
    for folder, folders, files in os.walk(workspace):
        for name in folders:
            Path(folder, name).chmod(0o777)
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o666)
    workspace.chmod(0o777)


def _give_to_owner(workspace: Path) -> None:
    """Give everything in the workspace to the user whose it is, if that is another one. No job has run here yet, so
    nothing in it leads elsewhere."""
    user = owner_of(workspace)
    if user != os.geteuid():
        for _, folders, files, fd in os.fwalk(workspace):
            for name in (*folders, *files):
                os.chown(name, user, user, dir_fd=fd, follow_symlinks=False)


def progress_of(workspace: Path) -> tuple[float | None, str]:
    """What the job last wrote to $DEBORGEN_PROGRESS: a fraction between 0 and 1, and a message."""
    text = read_small(workspace, f"{OWN}/{PROGRESS}", PROGRESS_BYTES, end=True)
    if not text:
        return None, ""
    # If a program truncates the file and keeps writing at its old offset, the file gets NULs, which databases refuse.
    lines = text.decode(errors="replace").replace("\0", "").strip().splitlines()
    first, _, message = (lines[-1] if lines else "").strip().partition(" ")
    with contextlib.suppress(ValueError):
        share = float(first)
        if 0 <= share <= 1:
            return share, message.strip()[:500]
    return None, (lines[-1] if lines else "").strip()[:500]


def read_small(workspace: Path, path: str, limit: int, *, end: bool = False, owner: int | None = None) -> bytes | None:
    """The content of a small regular file in the workspace, read without following any link; None if there is none.

    Up to one byte more than the limit is read, so that the caller can tell whether the file is too large. With `end`,
    only the end of a larger file is read. `owner` is the owner of the workspace, if it is not the folder's own.
    """
    with contextlib.suppress(OSError):
        os.stat(f"{workspace}/{path}", follow_symlinks=False)  # noqa: PTH116 - mostly missing: one call finds out
        fd = open_inside(workspace, path, owner)
        with os.fdopen(fd, "rb") as file:
            if end:
                file.seek(max(0, os.fstat(fd).st_size - limit))
            return file.read(limit + 1)
    return None


def open_inside(workspace: Path, path: str, owner: int | None = None) -> int:
    """Open a regular file in the workspace for reading. A link in the path is an error, and so is a device.

    If the workspace belongs to another user, so must the file: a user may make a second name for a file that only we
    may read.
    """
    parent, _, name = path.rpartition("/")
    folder = open_folder(workspace, parent)
    try:
        # O_NONBLOCK: opening a FIFO must not block.
        fd = os.open(name, NO_LINK | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or not may_read_for(owner_of(workspace) if owner is None else owner, found):
        os.close(fd)
        raise OSError(f"{path} is not a regular file of the job")
    return fd


def parse_result(data: bytes) -> tuple[dict[str, Scalar] | None, list[str]]:
    """The job's result, and warnings about it. It must be a JSON object of at most 64 KiB.

    Nested objects become entries like `a.b`, and lists become their JSON text. Numbers that JSON has no word for become
    the texts `NaN`, `Infinity` and `-Infinity`.
    """
    if len(data) > RESULT_BYTES:
        return None, ["result left out: it is larger than 64 KiB"]
    if not data.strip():
        return None, ["result left out: its file is empty"]
    found: dict[str, Scalar] = {}
    twins: list[str] = []
    try:
        read = json.loads(data, parse_constant=str, parse_float=_finite_or_text)
        if not isinstance(read, dict):
            return None, ["result left out: it is not a JSON object"]
        for key, value in _flat(read, RESULT_LEVELS):
            if key in found:
                twins.append(f"result entry {key!r} left out: another entry has the same name"[:500])
            else:
                found[key] = value
    except _BadEntry as bad:
        return None, [f"result left out: {bad}"[:500]]
    except (ValueError, RecursionError) as error:
        return None, [f"result left out: it is not JSON ({error})"[:500]]
    if len(msgspec.json.encode(found)) > RESULT_BYTES:  # 1E5 becomes 100000.0
        return None, ["result left out: it is larger than 64 KiB, with its numbers and names written out"]
    return found, twins


class _BadEntry(Exception):
    """An entry of a result that cannot be kept."""


def _finite_or_text(digits: str) -> float | str:
    value = float(digits)
    if math.isfinite(value):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def _flat(read: dict[str, Any], levels: int, prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """The entries of a JSON object and of the objects in it, which have at most this many levels."""
    for name, value in read.items():
        key = prefix + name
        if isinstance(value, dict) and value:
            if levels == 1:
                raise _BadEntry(f"it has more than {RESULT_LEVELS} levels")
            yield from _flat(value, levels - 1, f"{key}.")
            continue
        if isinstance(value, dict | list):
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise _BadEntry(f"the number in {key!r} is too large")
        for text in (key, value):
            if isinstance(text, str) and (reason := unstorable(text)) is not None:
                raise _BadEntry(f"the text in {key!r} {reason}")
        yield key, value
