"""The corpus: every wrong file with the report that a person sees, every right file with its meaning."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from deborgen_shared.jobfile.model import JobFile, JobSpec
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load, parse_document

HERE = Path(__file__).parent
WRONG = sorted((HERE / "wrong").glob("*.yml"))
RIGHT = sorted((HERE / "right").glob("*.yml"))
DEFAULTS = msgspec.to_builtins(JobSpec())


def read(file: Path) -> JobFile:
    return parse_document(load(file.read_bytes(), file.name), default_name=file.stem)


@pytest.mark.parametrize("file", WRONG, ids=lambda file: file.stem)
def test_a_wrong_file_is_refused_with_exactly_this_report(file: Path) -> None:
    with pytest.raises(JobFileInvalid) as refused:
        read(file)
    assert refused.value.render() + "\n" == file.with_suffix(".expected").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", [file for file in WRONG if file.stem.startswith("yaml")], ids=lambda file: file.stem)
def test_the_report_is_the_same_with_the_pure_python_parser(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    test_a_wrong_file_is_refused_with_exactly_this_report(file)


@pytest.mark.parametrize("file", WRONG, ids=lambda file: file.stem)
def test_problems_are_in_file_order_and_inside_the_file(file: Path) -> None:
    with pytest.raises(JobFileInvalid) as refused:
        read(file)
    places = [(problem.line or 0, problem.column or 0) for problem in refused.value.problems]
    assert places == sorted(places)
    assert all(line <= max(1, len(refused.value.lines)) for line, _ in places)


def test_the_corpus_of_wrong_files_is_large() -> None:
    assert len(WRONG) >= 70


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.stem)
def test_a_right_file_is_understood_as_expected(file: Path) -> None:
    jobfile = read(file)
    steps = []
    for step in jobfile.steps:
        params = list(step.params())
        spec = {key: value for key, value in msgspec.to_builtins(step.spec).items() if value != DEFAULTS[key]}
        assert len(params) == step.count
        steps.append(
            {
                "id": step.id,
                "needs": step.needs,
                "count": step.count,
                "first": params[0],
                "last": params[-1],
                "local_files": step.local_files,
                "spec": spec,
            }
        )
    meaning = {
        "name": jobfile.name,
        "labels": jobfile.labels,
        "priority": jobfile.priority,
        "count": jobfile.count,
        "steps": steps,
        "unsupported": [f"{problem.line}:{problem.column} {problem.message}" for problem in jobfile.not_yet],
    }
    assert meaning == json.loads(file.with_suffix(".expected").read_text(encoding="utf-8"))
