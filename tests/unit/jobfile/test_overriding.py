from __future__ import annotations

from typing import Any

import pytest

from deborgen_shared.jobfile.overriding import override, parse_axis
from deborgen_shared.jobfile.reading import load, parse


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("1..5", {"from": 1, "to": 5}),
        ("-3..3", {"from": -3, "to": 3}),
        ("0..100..10", {"from": 0, "to": 100, "step": 10}),
        ("a,b,c", ["a", "b", "c"]),
        ("1, 2,3", [1, 2, 3]),
        ("1e-4,0.5", [0.0001, 0.5]),
        ("rk4", ["rk4"]),
        ("true,no", [True, "no"]),
        ("", [""]),
        ("null", ["null"]),
        ("1..x", ["1..x"]),
    ],
)
def test_an_axis_as_a_person_types_it(text: str, axis: Any) -> None:
    assert parse_axis(text) == axis


def expand(data: Any) -> list[dict[str, Any]]:
    return [params for step in parse(data, wire=False).steps for params in step.params()]


def test_an_axis_is_replaced_in_its_place() -> None:
    data: dict[str, Any] = {"run": "x", "sweep": {"grid": {"a": [1, 2, 3], "b": [1]}}}
    changed = override(data, {"a": [9]})
    assert expand(changed) == [{"a": 9, "b": 1}]
    assert data["sweep"]["grid"]["a"] == [1, 2, 3], "what was given is not changed"


def test_an_axis_is_added_even_if_there_was_no_sweep() -> None:
    assert expand(override({"run": "echo ${{ seed }}"}, {"seed": parse_axis("1..2")})) == [{"seed": 1}, {"seed": 2}]


def test_a_parameter_of_the_cases_becomes_an_axis() -> None:
    data = {"run": "x", "sweep": {"cases": [{"m": 1, "n": 5}, {"m": 2, "n": 5}]}}
    assert expand(override(data, {"m": [7]})) == [{"n": 5, "m": 7}]
    assert expand(override(data, {"m": [7], "n": [8]})) == [{"m": 7, "n": 8}]


def test_the_axis_goes_to_the_steps_that_sweep_over_the_name() -> None:
    data = {
        "steps": [
            {"id": "a", "run": "x"},
            {"id": "b", "run": "x", "sweep": {"grid": {"seed": [1, 2]}}},
        ]
    }
    assert expand(override(data, {"seed": [5]})) == [{}, {"seed": 5}]


def test_without_such_steps_the_axis_goes_to_those_that_look_the_name_up() -> None:
    data = {"steps": [{"id": "a", "run": "x"}, {"id": "b", "run": ["x", "${{ seed }}"]}]}
    assert expand(override(data, {"seed": [5, 6]})) == [{}, {"seed": 5}, {"seed": 6}]
    with pytest.raises(ValueError, match="no step has a parameter 'speed', and none looks it up"):
        override(data, {"speed": [1]})


def test_a_sweep_shared_by_an_alias_is_changed_only_in_the_right_step() -> None:
    document = load(
        'steps:\n  - {id: a, run: x, sweep: &s {grid: {n: [1]}}}\n  - {id: b, run: "x ${{ m }}", sweep: *s}\n'
    )
    assert expand(override(document.data, {"m": [3]})) == [{"n": 1}, {"n": 1, "m": 3}]


def test_data_that_is_not_a_job_is_left_to_the_parser() -> None:
    assert override(["x"], {"a": [1]}) == ["x"]
    assert override({"run": "x", "sweep": 5}, {"a": [1]}) == {"run": "x", "sweep": 5}
    assert override({"run": "x", "sweep": {"grid": 5}}, {"a": [1]}) == {"run": "x", "sweep": {"grid": 5}}
