"""Reasons that leave this machine. They say what happened, and name no path of the machine."""

from __future__ import annotations

import re

from deborgen_worker.folders import IN_CONTAINER, OWN_IN_CONTAINER
from deborgen_worker.runners.protocol import Launch

#: An absolute path: its slash follows no other part of a path, of an address or of a word.
_PATH = re.compile(r"(?<![\w./:@-])/[^\s'\"`<>|:;,()\[\]{}]+")
HIDDEN = "(a path on this machine)"


def without_host_paths(text: str, launch: Launch | None = None) -> str:
    """The text without paths of this machine. Paths in the workspace become relative.

    Paths that the job sees in its container stay: its workspace, and its program.
    """
    own = launch.argv[0] if launch is not None else ""
    if launch is not None:
        text = text.replace(f"{launch.workspace}/", "").replace(str(launch.workspace), "the workspace")

    def hidden(match: re.Match[str]) -> str:
        path = match[0]
        is_seen = any(path == each or path.startswith(f"{each}/") for each in (IN_CONTAINER, OWN_IN_CONTAINER))
        return path if is_seen or path == own else HIDDEN

    return _PATH.sub(hidden, text)
