"""Rules for the paths in a job file: relative, inside the workspace, and unambiguous on every file system."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

from deborgen_shared.jobfile.limits import PATH_BYTES, PATH_PART_BYTES

#: The folder in every workspace that belongs to deborgen, and the folder for the artifacts of needed steps.
OWN, INPUTS = ".deborgen", "inputs"
#: The folder in `inputs` for the artifacts of a loop's last round.
PREVIOUS = "previous"
_DRIVE = re.compile(r"[A-Za-z]:")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")


def check_path(path: str) -> str | None:
    """What is wrong with a path in a workspace, as the end of a sentence; None if it is valid."""
    if _PLAIN.fullmatch(path):
        return None
    if not path:
        return "is empty"
    if "\0" in path:
        return "contains a NUL byte"
    if "\\" in path:
        return "contains a backslash"
    if path.startswith("/"):
        return "is absolute"
    if _DRIVE.match(path):
        return "starts with a drive letter"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > PATH_BYTES:
        return f"is longer than {PATH_BYTES} bytes"
    for part in path.split("/"):
        if part == "..":
            return "contains '..'"
        if part == ".":
            return "contains '.'"
        if not part:
            return "has an empty part between slashes" if not path.endswith("/") else "ends with a slash"
        if len(part.encode()) > PATH_PART_BYTES:
            return f"has a part longer than {PATH_PART_BYTES} bytes"
    return None


def check_file(path: str) -> str | None:
    """What is wrong with the path of a job's input file. It must not be in the folder of deborgen's own files."""
    problem = check_path(path)
    if problem is None and fold(path.partition("/")[0]) == OWN:
        return f"is in the folder {OWN} of the workspace, which belongs to deborgen"
    return problem


def check_state(path: str) -> str | None:
    """What is wrong with the path of a checkpoint. The inputs are there in every attempt anyway."""
    problem = check_file(path)
    if problem is None and fold(path.partition("/")[0]) == INPUTS:
        return f"is in the folder {INPUTS} of the workspace, which belongs to deborgen"
    return problem


def find_twins(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of paths that are the same file on some file systems: they differ only in case or Unicode normalisation.

    A path that is a file for one entry and a folder for another forms a pair with one path in that folder.
    """
    # The slash sorts before every other character, so that the contents of a folder come right after the folder.
    ordered = sorted((fold(path).replace("/", "\0"), place, path) for place, path in enumerate(paths))
    twins = []
    folded, first = None, ""
    for key, place, path in ordered:
        if key == folded:
            twins.append((place, first, path))
            continue
        if folded is not None and key.startswith(folded + "\0"):
            twins.append((place, first, path))
        folded, first = key, path
    return [(one, other) for _, one, other in sorted(twins)]


def fold(path: str) -> str:
    """The same text for all paths that some file systems cannot tell apart."""
    return path.lower() if path.isascii() else normalize("NFC", normalize("NFC", path).casefold())
