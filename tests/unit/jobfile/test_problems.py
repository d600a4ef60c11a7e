from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.problems import JobFileInvalid, Problem, did_you_mean


def test_a_path_is_written_as_people_do() -> None:
    assert Problem(("steps", 1, "run"), "x").path_text == "steps[1].run"
    assert Problem((), "x").path_text == ""


def test_a_problem_without_a_line_names_its_path() -> None:
    problem = Problem(("steps", 1, "run"), "is wrong", "do this")
    assert problem.render("job.yml", []) == "job.yml: steps[1].run: is wrong\n   | do this"


def test_problems_are_in_the_order_of_the_file() -> None:
    found = JobFileInvalid([Problem((), "b", line=3, column=1), Problem((), "a", line=2, column=9), Problem((), "c")])
    assert [problem.message for problem in found.problems] == ["c", "a", "b"]
    assert found.render("just checked").endswith("3 problems, just checked.")


def test_a_large_line_number_keeps_the_margin() -> None:
    lines = ["x"] * 12345
    assert Problem((), "m", "h", 12345, 1).render("f", lines) == "f:12345:1: m\n12345| x\n     | ^ h"


@given(st.text(max_size=300), st.integers(1, 300), st.integers(1, 300))
def test_what_is_shown_is_short_and_harmless(line: str, column: int, width: int) -> None:
    shown = Problem((), "message", "hint", 1, column, width).render("f", [line])
    rows = shown.split("\n")
    assert len(rows) <= 3
    assert all(row.isprintable() for row in rows)
    assert max(map(len, rows)) < 450


@pytest.mark.parametrize(("word", "meant"), [("memroy", "memory"), ("MEMORY", "memory"), ("cpu", "cpus")])
def test_similar_words_are_suggested(word: str, meant: str) -> None:
    assert did_you_mean(word, ["cpus", "memory", "gpus"]) == f"did you mean '{meant}'?"


def test_distant_words_are_not_suggested() -> None:
    assert did_you_mean("zebra", ["cpus", "memory"], "otherwise") == "otherwise"
