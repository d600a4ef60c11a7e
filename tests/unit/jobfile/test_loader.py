from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.model import JobFile
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load, parse, parse_document

DESIGN = """\
name: pendulum
run: python sim.py
image: python:3.12-slim
files: [sim.py]
resources:
  cpus: 2
  memroy: 8GiB

timeout: 2 hours
"""


def problems_of(text: str | bytes) -> list[str]:
    with pytest.raises(JobFileInvalid) as refused:
        load(text)
    return [problem.message for problem in refused.value.problems]


def test_the_example_of_the_docs_is_reported_exactly_as_shown() -> None:
    with pytest.raises(JobFileInvalid) as refused:
        parse_document(load(DESIGN, "pendulum.yml"))
    assert (
        refused.value.render()
        == """\
pendulum.yml:7:3: unknown key 'memroy' in 'resources'
  7|   memroy: 8GiB
   |   ^^^^^^ did you mean 'memory'?
pendulum.yml:9:10: 'timeout' is not a duration
  9| timeout: 2 hours
   |          ^^^^^^^ write 2h (units: s m h d)
2 problems, nothing was submitted."""
    )


def test_a_document_over_one_mebibyte_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # an import of it would raise
    assert problems_of("run: " + "x" * 2**20) == ["the file has 1,048,581 bytes, but the limit is 1,048,576"]
    assert problems_of(b"#" * (2**20 + 1)) == ["the file has 1,048,577 bytes, but the limit is 1,048,576"]


def test_a_document_of_one_mebibyte_is_read() -> None:
    text = "run: echo hello\n"
    text += "#" * (2**20 - len(text))
    assert load(text).data == {"run": "echo hello"}


@pytest.mark.parametrize("levels", [10, 30, 200])
def test_an_alias_bomb_is_refused_immediately_at_any_size(levels: int) -> None:
    text = "run: echo hello\nlabels:\n  a0: &a0 [x, x]\n"
    text += "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, levels))
    started = time.monotonic()
    (message,) = problems_of(text)
    assert "expand to more than" in message or "nested" in message
    assert time.monotonic() - started < 20


def test_deep_nesting_is_refused_without_recursion() -> None:
    for bracket in ("[", "{a: "):
        (message,) = problems_of("run: " + bracket * 100_000)
        assert message == "the file is nested more than 32 levels deep"


def test_the_depth_of_aliases_counts_too() -> None:
    text = "run: x\nlabels:\n  a0: &a0 " + "[" * 20 + "]" * 20 + "\n"
    text += "".join(f"  a{i}: &a{i} {'[' * 20}*a{i - 1}{']' * 20}\n" for i in range(1, 100))
    (message,) = problems_of(text)
    assert message == "the file is nested more than 32 levels deep"


def test_the_check_stops_after_many_problems() -> None:
    started = time.monotonic()
    assert len(problems_of("run: x\n" + "".join(f"k: {i}\n" for i in range(100_000)))) == 100
    data = {f"key{i}": i for i in range(300_000)}
    with pytest.raises(JobFileInvalid) as refused:
        parse(data, wire=True)
    assert len(refused.value.problems) == 100
    assert refused.value.render().endswith("100 problems or more, nothing was submitted.")
    assert time.monotonic() - started < 20


def test_every_key_and_value_has_a_position() -> None:
    document = load("run: echo\nenv: {A: 1, ü: [x]}\nsteps:\n  - id: one\n    run: |\n      two\n")
    assert document.where(("run",)) == (1, 6, 4)
    assert document.where(("run",), key=True) == (1, 1, 3)
    assert document.where(("env", "A")) == (2, 10, 1)
    assert document.where(("env", "ü"), key=True) == (2, 13, 1)
    assert document.where(("env", "ü", 0)) == (2, 17, 1)
    assert document.where(("steps", 0, "id")) == (4, 9, 3)
    assert document.where(("steps",)) == (3, 1, 5), "a block points at its key"
    assert document.where(("steps", 0, "run"), find="two") == (6, 7, 3)
    assert document.where(("steps", 0, "timeout")) == (4, 5, 7), "a missing value points at the value around it"


def test_positions_count_characters_and_not_bytes() -> None:
    document = load("# 日本語 ü\nname: 日本語\nrun: echo ${{ x }}\n")
    assert document.where(("name",)) == (2, 7, 3)
    assert document.where(("run",), find="${{ x }}") == (3, 11, 8)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\x85", "\u2028"])
def test_lines_are_counted_as_yaml_counts_them(newline: str) -> None:
    document = load(newline.join(["# a", "run: echo", "timeout: 1h", ""]))
    line, column, width = document.where(("timeout",))
    assert document.lines[line - 1][column - 1 : column - 1 + width] == "1h"


def outcome(text: str | bytes) -> JobFile | JobFileInvalid:
    try:
        return parse_document(load(text))
    except JobFileInvalid as refused:
        return refused


def is_well_reported(refused: JobFile | JobFileInvalid) -> bool:
    if isinstance(refused, JobFile):
        return True
    lines = len(refused.lines) + 1
    placed = all(problem.line is None or 1 <= problem.line <= lines for problem in refused.problems)
    return placed and all(problem.message for problem in refused.problems) and refused.render().endswith("submitted.")


@given(st.text(max_size=200))
def test_any_text_is_a_document_or_a_refusal_with_a_position(text: str) -> None:
    assert is_well_reported(outcome(text))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_refusal(data: bytes) -> None:
    assert is_well_reported(outcome(data))


@given(st.text(alphabet="ab:- \n[]{}\"'|>&*!%@`#,?\t${}", max_size=60))
def test_any_mix_of_yaml_punctuation_is_read_or_explained(text: str) -> None:
    assert is_well_reported(outcome(text))
