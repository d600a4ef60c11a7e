"""Pieces of JSON Schema for the values of a job file, for editors and for clients that check before they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.units import DURATION_PATTERN, SIZE_PATTERN

Shape = dict[str, Any]

#: Text with something in it, and without NUL.
SOMETHING = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
NO_NUL = r"^[^\u0000]*$"
VARIABLE = r"^(?!DEBORGEN_)[A-Za-z_][A-Za-z0-9_]*$"
PARAMETER = r"^(?!attempt$)[A-Za-z_][A-Za-z0-9_]*$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
STEP_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
#: Relative; no part is empty, `.` or `..`, but a leading `./` and a last slash may be; no backslash, no drive letter.
RELATIVE = r"^(\./)?(?![A-Za-z]:)(?!\.{1,2}(/|$))[^/\\\u0000]+(/(?!\.{1,2}(/|$))[^/\\\u0000]+)*/?$"


def text(limit: int) -> Shape:
    return {"type": "string", "minLength": 1, "maxLength": limit, "pattern": SOMETHING}


def integer(least: int, most: int) -> Shape:
    return {"type": "integer", "minimum": least, "maximum": most}


def number(least: float, most: float) -> Shape:
    return {"type": "number", "minimum": least, "maximum": most}


def record(fields: Mapping[str, Shape], required: tuple[str, ...] = ()) -> Shape:
    shape: Shape = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    return shape | ({"required": list(required)} if required else {})


def scalar(limit: int) -> Shape:
    return {
        "anyOf": [
            {"type": "string", "maxLength": limit, "pattern": NO_NUL},
            {"type": "number"},
            {"type": "boolean"},
        ]
    }


def mapping(name: str, name_limit: int, value: Shape, limit: int) -> Shape:
    return {
        "type": "object",
        "propertyNames": {"pattern": name, "maxLength": name_limit},
        "additionalProperties": value,
        "maxProperties": limit,
    }


DURATION: Shape = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "description": "A duration: 90s, 45m, 2h, 3d or 1h30m.",
    "examples": ["90s", "45m", "2h", "1h30m"],
}
SIZE: Shape = {
    "type": "string",
    "pattern": SIZE_PATTERN,
    "description": "A size: 512MiB, 8GiB.",
    "examples": ["512MiB", "8GiB"],
}
PATH: Shape = {"type": "string", "minLength": 1, "maxLength": limits.PATH_BYTES, "pattern": RELATIVE}
_LOOKUP = r"\$\{\{\s*[A-Za-z_][A-Za-z0-9_.]*\s*\}\}"
IMAGE: Shape = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.IMAGE,
    "pattern": rf"^([A-Za-z0-9]|{_LOOKUP})([A-Za-z0-9._/:@-]|{_LOOKUP})*$",
}
GIT_URL: Shape = {
    "type": "string",
    "maxLength": limits.URL,
    "pattern": r"^((https?|ssh|git|file)://[^\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[^\s]+)$",
}
GIT_REF: Shape = {"type": "string", "maxLength": limits.REF, "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._/@+-]*$"}
SHARED: Shape = {"type": "string", "maxLength": 63, "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*$"}
RUN: Shape = {
    "oneOf": [
        {"type": "string", "minLength": 1, "maxLength": limits.RUN_BYTES, "pattern": SOMETHING},
        {"type": "array", "minItems": 1, "maxItems": limits.ARGUMENTS, "items": scalar(limits.RUN_BYTES)},
    ]
}
LOCAL_FILES: Shape = {
    "type": "array",
    "items": {"anyOf": [PATH, {"enum": [".", "./"]}]},
    "maxItems": limits.FILES,
    "uniqueItems": True,
}
WIRE_FILES: Shape = {
    "type": "array",
    "maxItems": limits.FILES,
    "items": record(
        {
            "path": {**PATH, "pattern": RELATIVE.replace("/?$", "$")},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "minLength": 64, "maxLength": 64},
            "size": integer(0, limits.FILE_BYTES),
            "mode": {**integer(0, 0o777), "default": 0o644, "description": "Permissions as a number: 420 is 0644."},
        },
        ("path", "sha256", "size"),
    ),
}
ENV: Shape = mapping(VARIABLE, limits.ENV_NAME, scalar(limits.ENV_BYTES), limits.ENV)
SECRETS: Shape = {
    "type": "array",
    "items": {"type": "string", "maxLength": limits.ENV_NAME, "pattern": VARIABLE},
    "maxItems": limits.SECRETS,
    "uniqueItems": True,
}
WORDS: Shape = mapping(LABEL, limits.LABEL_KEY, scalar(limits.LABEL_VALUE), limits.LABELS)
ARTIFACTS: Shape = {
    "type": "array",
    "maxItems": limits.ARTIFACTS,
    "items": {"anyOf": [PATH, record({"path": PATH, "when": {"enum": ["success", "always"]}}, ("path",))]},
}
NEEDS: Shape = {
    "type": "array",
    "items": {"type": "string", "pattern": STEP_ID},
    "maxItems": limits.NEEDS,
    "uniqueItems": True,
}

_PARAMETER: Shape = scalar(limits.PARAMETER_TEXT)
_NUMBER: Shape = {"type": "number", "minimum": limits.INTEGER[0], "maximum": limits.INTEGER[1]}
_AXIS: Shape = {
    "description": "A list of values, an inclusive range, or evenly spaced numbers.",
    "anyOf": [
        {"type": "array", "items": _PARAMETER, "minItems": 1, "maxItems": limits.AXIS_VALUES, "uniqueItems": True},
        record({"from": _NUMBER, "to": _NUMBER, "step": _NUMBER}, ("from", "to")),
        record(
            {
                "from": _NUMBER,
                "to": _NUMBER,
                "count": integer(2, limits.AXIS_VALUES),
                "scale": {"enum": ["linear", "log"]},
            },
            ("from", "to", "count"),
        ),
    ],
}
_ROW: Shape = mapping(PARAMETER, limits.PARAMETER_NAME, _PARAMETER, limits.AXES) | {"minProperties": 1}
SWEEP: Shape = record(
    {
        "grid": mapping(PARAMETER, limits.PARAMETER_NAME, _AXIS, limits.AXES) | {"minProperties": 1},
        "cases": {"type": "array", "items": _ROW, "minItems": 1, "maxItems": limits.CASES},
        "exclude": {"type": "array", "items": _ROW, "maxItems": limits.EXCLUDES},
    }
) | {"anyOf": [{"required": ["grid"]}, {"required": ["cases"]}]}
