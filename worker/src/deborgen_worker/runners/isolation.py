"""How plain processes are kept away from the worker's own files, from each other, and from the machine's owner."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from deborgen_shared.states import RunAs
from deborgen_worker.folders import ATTEMPTS
from deborgen_worker.runners import landlock, users
from deborgen_worker.runners.before_exec import can_leave_network
from deborgen_worker.secret_files import folder_in_memory
from deborgen_worker.settings import WorkerSettings

#: The label that says which kind of isolation plain processes have, and the kinds.
LABEL = "isolation.process"
USER, LANDLOCK, NONE = "user", "landlock", "none"
#: A worker takes this many users: more than it can have folders of attempts, with those that wait to be reused.
PART = 4096
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - nothing is made there
AND_THE_NETWORK = ", and the network"
#: The note for an owner whose machine can cut plain processes off.
WITHOUT_NETWORK = "a plain job has no network but its own loopback, unless it asks for internet and you allow that"
#: What plain processes of each kind can reach, in a sentence for the owner. docs/security.md has the whole table.
REACH = {
    USER: f"each plain job runs as a user of its own; it sees what every user of this machine sees{AND_THE_NETWORK}",
    LANDLOCK: f"plain processes see this user's files{AND_THE_NETWORK}: allow them only for people you trust",
    NONE: "plain processes see this user's files, the worker's token and other jobs' folders included"
    f"{AND_THE_NETWORK}: allow them only for people you trust",
}


@dataclass(frozen=True)
class Isolation:
    """`users` are for the folders of attempts; `hide` has the paths behind the fence; `notes` are for the owner.

    `secrets` is a folder for the secrets of jobs that other jobs cannot reach, if there is one.
    """

    kind: str = NONE
    users: range = range(0)
    hide: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    secrets: Path | None = None
    #: Whether plain processes can be started without a network.
    cuts_network: bool = False

    def request(self, workspace: Path, network: str) -> dict[str, object]:
        """What the supervisor has to know to start a program in this workspace, with this network."""
        found: dict[str, object] = {"network": network} if self.cuts_network else {}
        if self.kind == USER:
            return found | {"user": os.stat(workspace).st_uid, "hide": ()}  # noqa: PTH116 - a string is no quicker
        return found | {"hide": self.hide} if self.kind == LANDLOCK else found


def choose_isolation(settings: WorkerSettings) -> Isolation:
    """The best isolation that this machine offers, with notes about what it lacks."""
    found = _choose(settings)
    wanted = settings.runner in {RunAs.PROCESS, "both"} and settings.isolation != "off"
    if not wanted or not can_leave_network():
        return found
    notes = tuple(note.replace(AND_THE_NETWORK, "") for note in found.notes)
    return replace(found, cuts_network=True, notes=(*notes, WITHOUT_NETWORK))


def _choose(settings: WorkerSettings) -> Isolation:
    """The best isolation of files and processes.

    With users of their own, other users may enter the state directory, but everything in it stays closed to them.
    """
    state = Path(settings.state_dir)
    wanted = own_part(settings.process_users, state)
    memory = folder_in_memory(state)
    if settings.runner not in {RunAs.PROCESS, "both"}:
        return Isolation(secrets=memory)
    if settings.isolation == "off":
        return Isolation(notes=("--isolation is off", REACH[NONE]), secrets=memory)
    why_not = users.why_no_users(wanted) or users.why_unreachable(os.path.realpath(state))
    if not why_not:
        close_to_others(state)
        return Isolation(USER, wanted, notes=(REACH[USER],), secrets=memory)
    notes = [f"plain processes run as root, not as users of their own: {why_not}"] if os.geteuid() == 0 else []
    version = landlock.version()
    if version < landlock.MOVES:
        notes.append("this system has no Landlock, or an old one")
        return Isolation(notes=(*notes, REACH[NONE]), secrets=memory)
    if version < landlock.TRUNCATES:
        notes.append("this kernel's Landlock cannot keep plain processes from emptying the worker's files")
    if version < landlock.SCOPES:
        notes.append("this kernel's Landlock cannot keep plain processes from signalling this user's processes")
    # Behind the fence, no file can be made beside a hidden one, and all programs must be able to make some in /dev/shm.
    memory = memory if memory is not None and str(memory.parent) != SHARED_MEMORY else None
    hide = [str(state), settings.token_file, *settings.hide, *([str(memory)] if memory else [])]
    notes.append(REACH[LANDLOCK])
    return Isolation(LANDLOCK, hide=tuple(map(os.path.abspath, hide)), notes=tuple(notes), secrets=memory)


def own_part(users: range, state: Path) -> range:
    """The part of the users that this worker takes, because another worker of this machine may have the same range."""
    parts = max(1, len(users) // PART)
    digest = hashlib.sha256(os.fsencode(os.path.realpath(state))).digest()
    first = int.from_bytes(digest[:8]) % parts * PART
    return users[first : first + PART]


def close_to_others(state: Path) -> None:
    """Let other users pass through the state directory, but open nothing in it except the folders of attempts."""
    for each in state.iterdir():
        if each.name != ATTEMPTS and not each.is_symlink() and each.stat().st_mode & 0o077:
            each.chmod(each.stat().st_mode & 0o700)
    state.chmod(0o711)
