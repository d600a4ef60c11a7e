"""Asks repositories for the commits of their refs, if this computer can reach them, so that a run has its commit from
the start. Otherwise its first worker finds it out."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from deborgen_shared.jobfile.model import MAIN
from deborgen_shared.jobfile.problems import Path, Problem
from deborgen_shared.repositories import commit_among, is_commit, parse_address, ref_patterns

#: A repository that has not answered after this many seconds is left to the workers.
SECONDS = 15.0
#: Git and ssh of this user, with their settings, but without a question.
_SILENT = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false", "LC_ALL": "C",
    "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=5"),
}  # fmt: skip


def pin(body: dict[str, Any]) -> list[Problem]:
    """Write the commit beside the ref of each git workspace. Returns a problem for each ref that does not exist."""
    listings: dict[tuple[str, str], str | None] = {}
    problems = []
    for path, workspace in _workspaces(body):
        url, ref = workspace["git"], workspace.get("ref", MAIN)
        if is_commit(ref):
            continue
        if (url, ref) not in listings:
            listings[url, ref] = _ask(url, ref)
        listing = listings[url, ref]
        if listing is None:
            continue
        commit = commit_among(listing, ref)
        if commit is None:
            place = (*path, "ref") if "ref" in workspace else (*path, "git")
            problems.append(Problem(place, f"the repository has no branch and no tag '{ref}'", _hint(ref)))
        else:
            workspace["commit"] = commit
    return problems


def _hint(ref: str) -> str:
    is_short = 6 <= len(ref) < 40 and all(each in "0123456789abcdef" for each in ref)
    return "write all 40 characters of a commit" if is_short else "push it first, or write another ref"


def _workspaces(body: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The git workspaces of the job file and its steps. Each is replaced by a copy, which may be changed."""
    steps = body.get("steps")
    levels = [((), body), *((("steps", at), step) for at, step in enumerate(steps if isinstance(steps, list) else ()))]
    for path, level in levels:
        workspace = level.get("workspace")
        if isinstance(workspace, dict) and "git" in workspace:
            level["workspace"] = dict(workspace)
            yield (*path, "workspace"), level["workspace"]


def _ask(url: str, ref: str) -> str | None:
    """What the repository says about the ref; None if it cannot be reached from here."""
    protocol = parse_address(url).protocol
    if protocol == "file":  # it is a folder of the worker's machine
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "ls-remote", "-q", "--", url, *ref_patterns(ref)], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=SECONDS, check=True, env={**os.environ, **_SILENT, "GIT_ALLOW_PROTOCOL": protocol},
        )  # fmt: skip
        return done.stdout.decode(errors="replace")
    return None
