"""deborgen doctor"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from deborgen import __version__, machines, output
from deborgen.cli import App, json_option, verb
from deborgen.client import Client
from deborgen.errors import DeborgenError, NotAllowed, NotPossible, Unreachable
from deborgen_shared.states import Role, RunAs, WorkerState
from deborgen_shared.terminal import inert

#: The mark of a finding that is fine, must be fixed, or is only for information.
MARK = {True: "✓", False: "✗", None: "-"}


@verb(name="doctor")
@json_option
def command(app: App, as_json: bool) -> int:
    """Check your setup step by step, and say how to fix what is wrong.

    Each line starts with a mark: ✓ is fine, ✗ must be fixed, and - is only for your information. The exit code is 0
    if a job could run now.
    """
    findings = []
    code = 0
    for finding in examine(app):
        findings.append(finding)
        code = code or finding.exit_code
        if not as_json:
            note = "note: " if finding.ok is None else ""
            output.write(f"{MARK[finding.ok]} {note}{inert(finding.what)}\n")
            if finding.remedy:
                output.write(f"    {inert(finding.remedy)}\n")
    if as_json:
        output.json("checks", [{"check": f.name, "ok": f.ok, "what": f.what, "remedy": f.remedy} for f in findings])
    return code


_RUN_AS = {
    RunAs.CONTAINER: "containers (jobs with an image)",
    RunAs.PROCESS: "plain processes (jobs without an image)",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check. `ok` is None for something worth knowing that is not a fault."""

    name: str
    ok: bool | None
    what: str
    remedy: str = ""
    exit_code: int = 0


def examine(app: App) -> Iterator[Finding]:
    """Make one check after another. Stop if the remaining checks would be meaningless."""
    yield Finding("python", True, f"Python {sys.version.split()[0]}")
    try:
        client = app.client
    except DeborgenError as failure:
        yield Finding("coordinator", False, failure.message, failure.hint, failure.exit_code)
        return
    target = client.target
    yield Finding("coordinator", True, f"the coordinator is {target.url} (from {target.url_from})")
    client.connection.patience = 0
    try:
        health = client.health()
    except DeborgenError as failure:
        remedy = "deborgen up starts it again" if target.url_from == "deborgen up" else failure.hint
        yield Finding("reach", False, failure.message, remedy, failure.exit_code)
        return
    yield Finding("reach", True, f"it answers and is healthy (version {health.version})")
    if health.artifact_store_trouble:
        yield Finding("object_store", None, health.artifact_store_trouble, "the coordinator's log says why")
    if health.version.split(".")[:2] != __version__.split(".")[:2]:
        what = f"this command is version {__version__}, but the coordinator is version {health.version}"
        yield Finding("version", None, what, "if something does not work, install the same version")
    try:
        me = client.me()
    except NotAllowed as failure:
        what = "no token is known for it" if not target.token else f"it refuses the token: {failure.message}"
        yield Finding("token", False, what, f"deborgen login {target.url}", failure.exit_code)
        return
    yield Finding("token", True, f"it knows you as {me.name}, {me.role} (token from {target.token_from})")
    if me.role == Role.WORKER:
        yield Finding(
            "role", False, "this is the token of a worker", "ask an admin for your own token", NotAllowed.exit_code
        )
        return
    if me.default_image:
        yield Finding("default_image", None, f"a job without an image runs in {me.default_image}, the pool's default")
    yield from _workers(client)


def _workers(client: Client) -> Iterator[Finding]:
    workers = client.workers()
    present = [worker for worker in workers if worker.state not in (WorkerState.OFFLINE, WorkerState.LEFT)]
    if not present:
        gone = f" (offline: {', '.join(worker.name for worker in workers)})"
        what = f"no machine is online{gone}" if workers else "no machine has joined yet"
        remedy = "start a worker: deborgen-worker run on any machine, or deborgen up on this one"
        yield Finding("workers", False, what, remedy, Unreachable.exit_code)
        return
    named = ", ".join(worker.name for worker in present)
    yield Finding("workers", True, f"{output.counted(len(present), 'machine')} online: {named}")
    ready = [worker for worker in present if worker.state == WorkerState.OPEN]
    if not ready:
        reasons = "; ".join(machines.sentence(worker) for worker in present)
        what = f"none of them takes jobs now: {reasons}"
        yield Finding("open", False, what, "deborgen workers resume NAME", NotPossible.exit_code)
        return
    for needed, what in _RUN_AS.items():
        able = [worker.name for worker in ready if needed.offered(worker.labels)]
        if able:
            yield Finding(needed.label, True, f"{what} can run on {', '.join(able)}")
        else:
            yield Finding(needed.label, None, f"no machine runs {what}")
