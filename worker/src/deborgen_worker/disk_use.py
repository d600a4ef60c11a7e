"""How much disk the running jobs use, so that none of them takes more than it asked for.

Every file counts with the disk space that it takes, each name of a file with a little more, because a million empty
files fill a disk too. Files that were removed but are still open count as well, where they can be seen.

It has a thread of its own, because a job may have millions of files. A workspace that takes long to measure is measured
less often.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

from deborgen_worker.agent import Agent
from deborgen_worker.execution import Execution
from deborgen_worker.folders import TEMPORARY, WORK, owner_of
from deborgen_worker.steps import AttemptEvent, Measured

#: Measure each workspace at most this often, and for at most this share of the time.
LEAST_SECONDS, SHARE = 0.5, 0.2
#: Look for removed files for at most this share of the time: that means to look at all processes of a user.
LOOK_SHARE = 0.01
#: What each entry of a folder costs, besides the blocks of a file.
ENTRY_BYTES = 512
#: Folders may be nested this deep. A job with deeper ones is treated as one that uses too much.
MOST_LEVELS = 128
#: A file's blocks may be up to twice its size, because some file systems reserve space for files that grow.
RESERVED = 2


class DiskUse:
    """One `step` measures the workspaces whose turn it is. `clock` is a steady clock."""

    def __init__(self, agent: Agent, clock: Callable[[], float]) -> None:
        self._agent, self._clock = agent, clock
        self._next: dict[str, float] = {}
        #: What removed files take that plain processes still have open, and when to look for them again.
        self._unlinked: dict[Path, int] = {}
        self._look_at = 0.0

    def step(self) -> float:
        """Returns the seconds until the next step."""
        running = self._agent.read_state(
            lambda machine, executions: [executions[name] for name in machine.attempts if self._agent.is_running(name)]
        )
        now = self._clock()
        self._next = {each.id: self._next.get(each.id, now) for each in running}
        due = [each for each in running if each.launch.disk and self._next[each.id] <= now]
        if due:
            if self._look_at <= now:
                self._unlinked = unlinked_bytes([each.launch.folder for each in running if not each.launch.image])
                took = self._clock() - now
                self._look_at = now + took / LOOK_SHARE
            for execution in due:
                self._measure(execution, self._unlinked.get(execution.launch.folder, 0))
        return LEAST_SECONDS

    def _measure(self, execution: Execution, unlinked: int) -> None:
        began, limit = self._clock(), execution.launch.disk
        used = unlinked
        for name in (WORK, TEMPORARY):
            used += used_bytes(execution.launch.folder / name, limit - used)
        took = self._clock() - began
        self._next[execution.id] = self._clock() + max(LEAST_SECONDS, took / SHARE)
        if used > limit:
            event: AttemptEvent = Measured(execution.id, used)
            self._agent.handle([event])


def used_bytes(folder: Path, enough: int) -> int:
    """The disk space that the folder takes. The count ends once it is more than `enough`."""
    used = 0
    seen: set[tuple[int, int]] = set()
    with contextlib.suppress(FileNotFoundError):
        for root, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
            if root.count("/") - str(folder).count("/") > MOST_LEVELS:
                return enough + 1
            for name in (*files, *folders):
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    used += ENTRY_BYTES
                    if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                        if (info.st_dev, info.st_ino) in seen:
                            continue
                        seen.add((info.st_dev, info.st_ino))
                    used += bytes_of(info)
            if used > enough:
                break
    return used


def bytes_of(info: os.stat_result) -> int:
    """The disk space of a file. A hole takes none, and a little that was reserved for its growth does not count."""
    taken = info.st_blocks * 512
    size = -(-info.st_size // 4096) * 4096
    return size if size < taken <= RESERVED * size else taken


def unlinked_bytes(folders: Collection[Path]) -> dict[Path, int]:
    """The disk space of removed files in each folder that processes of the folder's user still have open."""
    found: dict[Path, int] = defaultdict(int)
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:  # this system has no /proc
        return found
    seen: set[tuple[int, int]] = set()
    prefixes = {f"{folder}/": folder for folder in folders}
    users = {owner_of(folder / WORK) for folder in folders}
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            if os.stat(f"/proc/{process}").st_uid not in users:  # noqa: PTH116
                continue
            for entry in os.scandir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    path = os.readlink(entry.path)  # noqa: PTH115
                    if not path.endswith(" (deleted)"):
                        continue
                    folder = next((prefixes[each] for each in prefixes if path.startswith(each)), None)
                    info = entry.stat() if folder is not None else None
                    if folder is not None and info is not None and (info.st_dev, info.st_ino) not in seen:
                        seen.add((info.st_dev, info.st_ino))
                        found[folder] += bytes_of(info)
    return found
