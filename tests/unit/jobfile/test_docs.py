"""The reference of the job file matches the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.jobfile.keys import NOT_YET
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load, parse_document
from deborgen_shared.jobfile.template import FACTS, GIT_FACTS
from deborgen_shared.jobfile.units import format_duration, format_size
from deborgen_shared.program_events import EVENT_BYTES, MOST_EVENTS
from deborgen_worker.event_file import LINE_BYTES

DOCS = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)


def table(first_column: str) -> dict[str, list[str]]:
    """The rows of the table with this first heading, by their first cell."""
    lines = DOCS[DOCS.index(f"| {first_column} |") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {cells[0]: cells[1:] for cells in rows}


def test_the_documented_keys_of_a_step_match_the_schema() -> None:
    properties = schema()["properties"]["steps"]["items"]["properties"]
    for name, (summary, default) in table("key of a step").items():
        described = properties[name.strip("`")]["description"]
        assert described == f"{summary.replace('`', '')} Default: {default}."


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_a_valid_job_file(example: str) -> None:
    jobfile = parse_document(load(example))
    assert jobfile.count >= 1
    keys_not_yet = {str(problem.path[-1]) for problem in jobfile.not_yet}
    assert keys_not_yet <= set(NOT_YET)


def test_the_larger_example_has_the_documented_number_of_jobs() -> None:
    assert "It makes 140 jobs" in DOCS
    assert parse_document(load(EXAMPLES[1])).count == 140


def test_unsupported_keys_are_documented() -> None:
    said = re.search(r"This version reads and checks (.*?), but cannot", DOCS, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", said[1] if said else "")) == set(NOT_YET)


def test_the_axes_have_the_documented_values() -> None:
    for axis, (values,) in table("an axis").items():
        sweep = parse_document(load(f"run: x\nsweep: {{grid: {{x: {axis.strip('`')}}}}}")).steps[0].sweep
        assert sweep is not None
        assert ", ".join(map(str, sweep.values("x"))) == values.split(":")[0]


def test_all_lookups_are_documented() -> None:
    listed = re.findall(r"`([a-z._]+)`", " ".join(table("name")))
    assert listed == [*FACTS, *GIT_FACTS]


def test_the_documented_problems_are_the_reported_ones() -> None:
    shown = re.search(r"^```text\n(pendulum\.yml.*?)\n```$", DOCS, re.MULTILINE | re.DOTALL)
    assert shown
    text = "run: python sim.py\n" + "#\n" * 4 + "resources:\n  memroy: 8GiB\n\ntimeout: 2 hours\n"
    with pytest.raises(JobFileInvalid) as refused:
        parse_document(load(text, "pendulum.yml"))
    assert refused.value.render() == shown[1]


def test_the_documented_limits_match_the_code() -> None:
    rows = table("what")

    def spans(least: float, most: float, spell: Callable[[Any], str]) -> str:
        return f"{spell(least)} to {spell(most)}"

    def number(value: Any) -> str:
        return f"{value:,}"

    mebibytes = limits.DOCUMENT_BYTES // 2**20
    assert rows["the file"] == [
        f"{mebibytes} MiB, {limits.DOCUMENT_DEPTH} levels deep, {limits.DOCUMENT_NODES:,} values after aliases"
    ]
    assert rows["jobs of a run"][0].startswith(f"{limits.JOBS:,}, or")
    assert rows["steps, and needs of a step"] == [f"{limits.STEPS:,}, and {limits.NEEDS}"]
    assert rows["axes of a sweep, values of an axis"] == [f"{limits.AXES}, and {limits.AXIS_VALUES:,}"]
    assert rows["rows of `exclude`"] == [
        f"{limits.EXCLUDES:,}; they may use {limits.EXCLUDE_SHAPES} different sets of parameter names"
    ]
    assert rows["a parameter"] == [f"a name of {limits.PARAMETER_NAME} characters, text of {limits.PARAMETER_TEXT:,}"]
    assert rows["`name`"] == [f"{limits.NAME} characters"]
    assert rows["`run`"] == [f"{limits.RUN_BYTES:,} bytes; {limits.ARGUMENTS:,} arguments"]
    assert rows["`image`"] == [f"{limits.IMAGE} characters"]
    assert rows["`env`"] == [
        f"{limits.ENV:,} variables; names of {limits.ENV_NAME} characters, values of {limits.ENV_BYTES:,}"
    ]
    assert rows["`secrets`"] == [f"{limits.SECRETS}"]
    assert rows["`labels`, `requires`"] == [
        f"{limits.LABELS} each; names of {limits.LABEL_KEY} characters, values of {limits.LABEL_VALUE}"
    ]
    assert rows["`files`"] == [f"{limits.FILES:,}"]
    assert rows["`artifacts`"] == [f"{limits.ARTIFACTS} patterns"]
    part = f"{limits.PATH_PART_BYTES} bytes for each part between slashes"
    assert rows["a path"][0].endswith(f"{limits.PATH_BYTES:,} bytes, and {part}")
    assert rows["`resources`"] == [
        f"cpus {spans(*limits.CPUS, '{:,g}'.format)}; memory {spans(*limits.MEMORY, format_size)}; "
        f"gpus {spans(*limits.GPUS, number)}; disk {spans(*limits.DISK, format_size)}"
    ]
    assert rows["`watchdog`"] == [spans(*limits.WATCHDOG, format_duration)]
    assert rows["`timeout`"] == [spans(*limits.TIMEOUT, format_duration)]
    assert rows["`backoff`"] == [spans(*limits.BACKOFF, format_duration)]
    assert rows["`checkpoint.every`"] == [spans(*limits.CHECKPOINT_EVERY, format_duration)]
    assert rows["`max_attempts`"] == [spans(*limits.MAX_ATTEMPTS, number)]
    assert rows["`priority`"] == [spans(*limits.PRIORITY, number)]
    assert rows["`$DEBORGEN_EVENTS`"] == [
        f"{MOST_EVENTS:,} lines per attempt; "
        f"{EVENT_BYTES:,} bytes per event as compact JSON, {LINE_BYTES:,} bytes per line"
    ]
