"""What a job file would do: its jobs, its upload, and what the pool as it is now could not run."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from deborgen_shared.jobfile.model import Step
from deborgen_shared.jobfile.template import render

if TYPE_CHECKING:
    from deborgen.client import Client
    from deborgen.preparation import Prepared

#: So many jobs of a step are shown from its beginning and from its end.
FIRST, LAST = 3, 2


def of(prepared: Prepared, client: Client | None) -> dict[str, Any]:
    """The plan, as plain data. Without a client nothing is asked, and what only the coordinator knows is None."""
    steps = []
    index = 0
    for step in prepared.jobfile.steps:
        steps.append(_step(step, index))
        index += step.count
    missing = None
    warnings: list[str] = []
    if client is not None:
        from deborgen import submission, uploads

        body = submission.wire(prepared)
        missing = sum(file.size for file, _ in uploads.missing(client.connection, prepared.files))
        warnings = submission.ask(client.connection, prepared, body)
    return {
        "name": prepared.jobfile.name,
        "jobs": prepared.jobfile.count,
        "steps": steps,
        "files": len(prepared.files),
        "bytes": prepared.upload_size,
        "missing_bytes": missing,
        "warnings": warnings,
    }


def _step(step: Step, before: int) -> dict[str, Any]:
    spec = msgspec.to_builtins(step.spec)
    params = step.params()
    # To leave out a single job would not make it shorter.
    first = list(islice(params, FIRST if step.count > FIRST + LAST + 1 else FIRST + LAST + 1))
    last: list[dict[str, Any]] = []
    for each in params:
        last = [*last[-LAST + 1 :], each]
    numbered = [(before + 1 + number, each) for number, each in enumerate(first)]
    ending = [(before + step.count - len(last) + 1 + number, each) for number, each in enumerate(last)]

    def job(index: int, each: dict[str, Any]) -> dict[str, Any]:
        command = render(spec, each, {})["run"]
        return {"index": index, "params": each, "run": command if isinstance(command, str) else " ".join(command)}

    return {
        "id": step.id,
        "needs": step.needs,
        "jobs": step.count,
        "first": [job(*each) for each in numbered],
        "last": [job(*each) for each in ending],
    }
