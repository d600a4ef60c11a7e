"""The job file: what people write by hand, what it means, and everything that can be wrong with it.

The names below are imported when they are first used: who needs a duration does not pay for the parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deborgen_shared.jobfile.document import Document
    from deborgen_shared.jobfile.json_schema import schema
    from deborgen_shared.jobfile.model import (
        ArtifactPattern,
        Build,
        Checkpoint,
        File,
        JobFile,
        JobSpec,
        Resources,
        Retry,
        Step,
        Workspace,
        unsupported,
    )
    from deborgen_shared.jobfile.overriding import override, parse_axis
    from deborgen_shared.jobfile.paths import check_path, find_twins
    from deborgen_shared.jobfile.problems import JobFileInvalid, Problem
    from deborgen_shared.jobfile.reading import load, parse, parse_document
    from deborgen_shared.jobfile.sweep import Sweep
    from deborgen_shared.jobfile.template import has_templates, render
    from deborgen_shared.jobfile.units import format_duration, format_size, parse_duration, parse_size

_WHERE = {
    "document": ("Document",),
    "json_schema": ("schema",),
    "model": (
        *("ArtifactPattern", "Build", "Checkpoint", "File", "JobFile", "JobSpec", "Resources", "Retry", "Step"),
        *("Workspace", "unsupported"),
    ),
    "overriding": ("override", "parse_axis"),
    "paths": ("check_path", "find_twins"),
    "problems": ("JobFileInvalid", "Problem"),
    "reading": ("load", "parse", "parse_document"),
    "sweep": ("Sweep",),
    "template": ("has_templates", "render"),
    "units": ("format_duration", "format_size", "parse_duration", "parse_size"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


__all__ = [
    "ArtifactPattern",
    "Build",
    "Checkpoint",
    "Document",
    "File",
    "JobFile",
    "JobFileInvalid",
    "JobSpec",
    "Problem",
    "Resources",
    "Retry",
    "Step",
    "Sweep",
    "Workspace",
    "check_path",
    "find_twins",
    "format_duration",
    "format_size",
    "has_templates",
    "load",
    "override",
    "parse",
    "parse_axis",
    "parse_document",
    "parse_duration",
    "parse_size",
    "render",
    "schema",
    "unsupported",
]
