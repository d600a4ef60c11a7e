"""Repositories: every job of a run sees the same commit, whatever is pushed meanwhile.

The person who submits may know the commit. Otherwise the first attempt that has resolved the ref pins it for its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.messages import CommitToPin, PinnedCommit
from deborgen_shared.repositories import is_commit

from ... import ids
from ...storage import pins, runs
from ...storage.rows import RunWorkspace
from ..context import Actor, Context
from ..work import About, Work
from ..workers.sessions import AttemptId, find_own_attempt, refuse_stale

_decode = msgspec.json.Decoder(RunWorkspace).decode
#: A repository and its ref, and the commit that it stands for.
Pins = Mapping[tuple[str, str], str]


def pin(ctx: Context, actor: Actor, attempt: AttemptId, body: CommitToPin) -> PinnedCommit:
    """Pin the commit for the attempt's run, unless one is pinned already; the answer names the one that counts."""

    def pin_first(work: Work) -> str | None:
        held = find_own_attempt(work, attempt, body.session)
        if not (held.live and held.current):
            return None
        spec = work.ctx.spec_cache.spec(work.tx, held.spec_id).job
        if spec.repository != (body.repo, body.ref):
            raise Refusal(Code.MALFORMED, f"job {ids.name(held.job)} does not name this repository and ref")
        run = ids.run_of(held.job)
        known = pins.find(work.tx, run, body.repo, body.ref)
        if known is None:
            pins.add(work.tx, run, body.repo, body.ref, body.commit)
            known = pins.find(work.tx, run, body.repo, body.ref)
            assert known is not None
            data = {"repo": body.repo, "ref": body.ref, "commit": known}
            work.record("commit.pinned", About.attempt_of(held), data=data)
            _show(work, run, body.repo, body.ref, known)
        return known

    commit = ctx.work(actor, pin_first)
    if commit is None:
        raise refuse_stale(ctx, actor, attempt, "a commit")
    return PinnedCommit(commit=commit)


def _show(work: Work, run: int, repo: str, ref: str, commit: str) -> None:
    text = runs.get_existing(work.tx, run).workspace
    shown = _decode(text) if text else None
    if shown is not None and (shown.repo, shown.ref) == (repo, ref):
        pins.show(work.tx, run, msgspec.structs.replace(shown, commit=commit))


def known_pins(specs: Iterable[JobSpec]) -> Pins:
    """The commits that the job file itself tells."""
    found: dict[tuple[str, str], str] = {}
    for spec in specs:
        if spec.repository is not None:
            ref = spec.repository[1]
            commit = (spec.workspace.commit if spec.workspace else None) or (ref if is_commit(ref) else None)
            if commit is not None:
                found.setdefault(spec.repository, commit)
    return found


def without_commit(spec: JobSpec) -> JobSpec:
    """The spec as it is stored. The commit is pinned for the run, so equal job files have the same spec."""
    if spec.workspace is None or spec.workspace.commit is None:
        return spec
    return msgspec.structs.replace(spec, workspace=msgspec.structs.replace(spec.workspace, commit=None))


def workspace_of(specs: Iterable[JobSpec], known: Pins) -> str | None:
    """What people see of a run's workspace: that of its first step that has one."""
    for spec in specs:
        if spec.repository is not None:
            repo, ref = spec.repository
            return msgspec.json.encode(RunWorkspace("git", repo, ref, known.get(spec.repository))).decode()
        if spec.workspace is not None and spec.workspace.shared:
            return msgspec.json.encode(RunWorkspace("shared")).decode()
    return None


def commit_for(work: Work, run: int, spec: JobSpec) -> str:
    """The commit for a job of this run; empty if none is pinned yet, or if the job has no repository."""
    return pins.find(work.tx, run, *spec.repository) or "" if spec.repository is not None else ""
