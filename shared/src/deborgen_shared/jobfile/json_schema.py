"""The JSON Schema of the job file, generated from the table of keys."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.file_values import wire_files
from deborgen_shared.jobfile.keys import KEYS, RUN_ONLY, wire_workspace
from deborgen_shared.jobfile.kinds import Shape
from deborgen_shared.jobfile.needs import STEP_ID
from deborgen_shared.jobfile.structure import record_shape

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Only a program can be repeated.
_REPEATS_A_PROGRAM: Shape = {
    "not": {"required": ["repeat"], "anyOf": [{"required": ["build"]}, {"required": ["steps"]}]}
}
_STEP_ID = f"^{STEP_ID.pattern}$"


def schema(wire: bool = False) -> dict[str, Any]:
    """The schema of the hand-written form or, with `wire`, of the wire form, in which `files` are blobs.

    In the wire form, a workspace may also have a `commit`."""
    kinds = {key.name: key.kind for key in KEYS} | ({"files": wire_files, "workspace": wire_workspace} if wire else {})
    properties = {key.name: _described(kinds[key.name].shape, key.summary, key.default) for key in KEYS}
    step = {name: shape for name, shape in properties.items() if name not in RUN_ONLY}
    step |= {
        "id": _described(
            {"type": "string", "maxLength": limits.STEP_ID, "pattern": _STEP_ID},
            "What other steps call this one.",
            "required",
        ),
        "needs": _described(
            {
                "type": "array",
                "items": {"type": "string", "pattern": _STEP_ID},
                "maxItems": limits.NEEDS,
                "uniqueItems": True,
            },
            "Steps that must have succeeded. Their artifacts appear at inputs/STEP/.",
            "the step above",
        ),
    }
    properties["steps"] = _described(
        {
            "type": "array",
            "minItems": 1,
            "maxItems": limits.STEPS,
            "items": record_shape(step, ("id",))
            | {"oneOf": [{"required": ["run"]}, {"required": ["build"]}]}
            | _REPEATS_A_PROGRAM,
        },
        "Several jobs that run one after another. The keys of the file are their defaults.",
        "none",
    )
    whole: Shape = {
        "$schema": DIALECT,
        "title": "deborgen job file",
        "description": "One run: a job, a parameter sweep, or several steps.",
        **record_shape(properties),
        "oneOf": [{"required": ["run"]}, {"required": ["build"]}, {"required": ["steps"]}],
        **_REPEATS_A_PROGRAM,
    }
    return deepcopy(whole)


def _described(shape: Shape, summary: str, default: str) -> Shape:
    return {**shape, "description": f"{summary} Default: {default}."}
