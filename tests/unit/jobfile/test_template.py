from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import parse
from deborgen_shared.jobfile.template import has_templates, render, text_of

FACTS = {"run.id": "42", "job.id": "42.7", "job.index": "7", "attempt": "2"}


def spec_of(**keys: Any) -> dict[str, Any]:
    return dict(msgspec.to_builtins(parse({"run": "echo", **keys}, wire=True).steps[0].spec))


def test_lookups_are_filled_in_everywhere_they_are_allowed() -> None:
    spec = spec_of(
        name="pi ${{ seed }}",
        run="python pi.py ${{seed}} ${{ who }} ${{ job.id }} ${{ run.id }} ${{ job.index }} ${{ attempt }}",
        image="solver:${{ tag }}",
        env={"SEED": "${{ seed }}", "PLAIN": "$HOME"},
        artifacts=["out/${{ seed }}/*", {"path": "log-${{ attempt }}", "when": "always"}],
        result="${{ seed }}.json",
        sweep={"grid": {"seed": [3], "who": ["it's me"], "tag": ["v1"]}},
    )
    before = msgspec.json.encode(spec)
    done = render(spec, {"seed": 3, "who": "it's me", "tag": "v1"}, FACTS)
    assert done["name"] == "pi 3"
    assert done["run"] == "python pi.py 3 'it'\"'\"'s me' 42.7 42 7 2"
    assert done["image"] == "solver:v1"
    assert done["env"] == {"SEED": "3", "PLAIN": "$HOME"}
    assert [artifact["path"] for artifact in done["artifacts"]] == ["out/3/*", "log-2"]
    assert done["result"] == "3.json"
    assert has_templates(spec)
    assert not has_templates(done)
    assert msgspec.json.encode(spec) == before, "the spec that was given is not changed"


def test_arguments_are_filled_in_without_quoting() -> None:
    spec = spec_of(run=["python", "--who=${{ who }}"], sweep={"grid": {"who": ["it's me; rm -rf /"]}})
    assert render(spec, {"who": "it's me; rm -rf /"}, {})["run"] == ["python", "--who=it's me; rm -rf /"]


def test_filled_in_values_are_not_expanded_again() -> None:
    spec = spec_of(run=["echo", "${{ a }}"], sweep={"grid": {"a": ["${{ b }}"], "b": ["x"]}})
    assert render(spec, {"a": "${{ b }}", "b": "x"}, {})["run"] == ["echo", "${{ b }}"]


def test_templates_are_detected_in_every_form_of_a_spec() -> None:
    for run, expected in (("echo ${{ job.id }}", True), ("echo $HOME ${X} {{ y }}", False)):
        struct = parse({"run": run}, wire=True).steps[0].spec
        assert has_templates(struct) is has_templates(msgspec.to_builtins(struct)) is expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (1.0, "1.0"),
        (3, "3"),
        (True, "true"),
        (False, "false"),
        ("a b", "a b"),
        ("", ""),
    ],
)
def test_values_as_programs_read_them(value: Any, text: str) -> None:
    assert text_of(value) == text


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
    | st.integers()
    | st.floats()
)
def test_a_value_reaches_the_program_through_a_real_shell_unharmed(value: Any) -> None:
    spec = render({"run": "printf %s ${{ value }}"}, {"value": value}, {})
    done = subprocess.run(["sh", "-c", spec["run"]], capture_output=True, check=True)
    assert done.stdout.decode() == text_of(value)


@pytest.mark.parametrize(
    "text", ["${{ seed + 1 }}", "${{ }}", "${{ seed", "${{ a-b }}", "${{ f(x) }}", "${{ 'x' }}", "${{ a b }}"]
)
def test_only_lookups_are_accepted(text: str) -> None:
    with pytest.raises(JobFileInvalid):
        parse({"run": f"echo {text}", "sweep": {"grid": {"seed": [1], "a": [1], "b": [1]}}}, wire=True)


def test_git_facts_need_a_repository() -> None:
    repository = "https://example.org/a.git"
    run = "echo ${{ git.sha }} ${{ git.short_sha }} ${{ git.ref }}"
    assert parse({"run": run, "workspace": {"git": repository}}, wire=True)
    assert parse({"build": {"git": repository, "tag": "a:${{ git.short_sha }}"}}, wire=True)
    for workspace in ({}, {"workspace": {"shared": "data"}}):
        with pytest.raises(JobFileInvalid) as refused:
            parse({"run": run, **workspace}, wire=True)
        assert len(refused.value.problems) == 3


def test_a_lookup_in_the_defaults_must_be_defined_in_every_step_that_inherits_it() -> None:
    steps = [
        {"id": "a", "run": "echo", "sweep": {"grid": {"seed": [1]}}},
        {"id": "b", "run": "echo", "env": {"S": "0"}},
    ]
    assert parse({"env": {"S": "${{ seed }}"}, "steps": steps}, wire=True).steps[1].spec.env == {"S": "0"}
    del steps[1]["env"]
    with pytest.raises(JobFileInvalid) as refused:
        parse({"env": {"S": "${{ seed }}"}, "steps": steps}, wire=True)
    (problem,) = refused.value.problems
    assert problem.path == ("env", "S")
    assert problem.message == "'seed' is not a parameter of step 'b'"
    assert problem.hint == "only step 'a' has it"


def test_values_that_would_leave_the_workspace_are_refused() -> None:
    for value in ("../x", "/etc", "a\\b"):
        with pytest.raises(JobFileInvalid):
            parse({"run": "x", "artifacts": ["out/${{ a }}"], "sweep": {"grid": {"a": [value]}}}, wire=True)
    assert parse({"run": "echo ${{ a }}", "sweep": {"grid": {"a": ["../x"]}}}, wire=True)


@given(st.text(alphabet="${} \nabc.1", max_size=30))
def test_any_script_is_accepted_or_explained(text: str) -> None:
    try:
        jobfile = parse({"run": "x" + text, "sweep": {"grid": {"a": [1], "b": [2], "c": [3]}}}, wire=True)
    except JobFileInvalid as refused:
        problems = refused.problems
    else:
        problems = []
        done = render(msgspec.to_builtins(jobfile.steps[0].spec), {"a": 1, "b": 2, "c": 3}, {})
        assert not has_templates(done)
    assert all(problem.path == ("run",) for problem in problems)
