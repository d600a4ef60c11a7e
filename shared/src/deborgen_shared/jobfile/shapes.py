"""Pieces of JSON Schema for the values of a job file, for editors and for clients that check before they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deborgen_shared.jobfile import limits

Shape = dict[str, Any]

#: Text with something in it, and without NUL.
SOMETHING = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
NO_NUL = r"^[^\u0000]*$"
#: Relative; no part is empty, `.` or `..`, but a leading `./` and a last slash may be; no backslash, no drive letter.
RELATIVE = r"^(\./)?(?![A-Za-z]:)(?!\.{1,2}(/|$))[^/\\\u0000]+(/(?!\.{1,2}(/|$))[^/\\\u0000]+)*/?$"


def text(limit: int) -> Shape:
    return {"type": "string", "minLength": 1, "maxLength": limit, "pattern": SOMETHING}


def integer(least: int, most: int) -> Shape:
    return {"type": "integer", "minimum": least, "maximum": most}


def scalar(limit: int) -> Shape:
    text = {"type": "string", "maxLength": limit, "pattern": NO_NUL}
    return {"anyOf": [text, {"type": "number"}, {"type": "boolean"}]}


def record(fields: Mapping[str, Shape], required: tuple[str, ...] = ()) -> Shape:
    shape: Shape = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    return shape | ({"required": list(required)} if required else {})


def mapping(name: Shape, value: Shape, limit: int) -> Shape:
    return {"type": "object", "propertyNames": name, "additionalProperties": value, "maxProperties": limit}


PATH: Shape = {"type": "string", "minLength": 1, "maxLength": limits.PATH_BYTES, "pattern": RELATIVE}

_NAME: Shape = {"pattern": r"^(?!attempt$)[A-Za-z_][A-Za-z0-9_]*$", "maxLength": limits.PARAMETER_NAME}
_PARAMETER: Shape = scalar(limits.PARAMETER_TEXT)
_NUMBER: Shape = {"type": "number", "minimum": limits.INTEGER[0], "maximum": limits.INTEGER[1]}
_ENDS = {"from": _NUMBER, "to": _NUMBER}
_SPACING = {"count": integer(2, limits.AXIS_VALUES), "scale": {"enum": ["linear", "log"]}}
_AXIS: Shape = {
    "description": "A list of values, an inclusive range, or evenly spaced numbers.",
    "anyOf": [
        {"type": "array", "items": _PARAMETER, "minItems": 1, "maxItems": limits.AXIS_VALUES, "uniqueItems": True},
        record({**_ENDS, "step": _NUMBER}, ("from", "to")),
        record({**_ENDS, **_SPACING}, ("from", "to", "count")),
    ],
}
_ROW: Shape = mapping(_NAME, _PARAMETER, limits.AXES) | {"minProperties": 1}
SWEEP: Shape = record(
    {
        "grid": mapping(_NAME, _AXIS, limits.AXES) | {"minProperties": 1},
        "cases": {"type": "array", "items": _ROW, "minItems": 1, "maxItems": limits.CASES},
        "exclude": {"type": "array", "items": _ROW, "maxItems": limits.EXCLUDES},
    }
) | {"anyOf": [{"required": ["grid"]}, {"required": ["cases"]}]}
