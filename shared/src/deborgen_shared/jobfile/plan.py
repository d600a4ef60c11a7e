"""What a job file would run: its steps, each with its first and last jobs. The command and the dashboard show it."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

import msgspec

from deborgen_shared.jobfile.model import JobFile, Step
from deborgen_shared.jobfile.template import render, text_of

#: How many of a step's first and last jobs are shown.
FIRST, LAST = 3, 2


def plan(jobfile: JobFile) -> list[dict[str, Any]]:
    """The steps of a job file. The jobs of a run are numbered step by step."""
    steps, index = [], 0
    for step in jobfile.steps:
        steps.append(_step(step, index))
        index += step.count
    return steps


def _step(step: Step, before: int) -> dict[str, Any]:
    spec = msgspec.to_builtins(step.spec)

    def job(index: int, params: dict[str, Any]) -> dict[str, Any]:
        command = render(spec, params, {})["run"]
        return {"index": index, "params": params, "run": command if isinstance(command, str) else " ".join(command)}

    numbered = enumerate(step.params(), before + 1)
    # Hiding a single job would not make the list shorter.
    first = list(islice(numbered, FIRST if step.count > FIRST + LAST + 1 else step.count))
    last = deque(numbered, maxlen=LAST)
    return {
        "id": step.id,
        "needs": step.needs,
        "jobs": step.count,
        "rounds": step.spec.repeat.most if step.spec.repeat else None,
        "first": [job(*each) for each in first],
        "last": [job(*each) for each in last],
    }


def idle_excludes(jobfile: JobFile) -> list[str]:
    """A warning for each row of `exclude` that excludes nothing."""
    rows = [row for step in jobfile.steps if step.sweep for row in step.sweep.idle_excludes()]
    shown = [", ".join(f"{name}: {text_of(value)}" for name, value in row.items()) for row in rows]
    return [f"no combination matches the exclude {{{row}}}" for row in shown]
