"""The job file: what people write by hand, what it means, and everything that can be wrong with it."""

from deborgen_shared.jobfile.document import Document
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
from deborgen_shared.jobfile.parser import parse
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem
from deborgen_shared.jobfile.reading import load, parse_document
from deborgen_shared.jobfile.schema import schema
from deborgen_shared.jobfile.sweep import Sweep
from deborgen_shared.jobfile.template import has_templates, render
from deborgen_shared.jobfile.units import format_duration, format_size, parse_duration, parse_size

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
