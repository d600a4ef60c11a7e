from __future__ import annotations

import time
import tracemalloc
from collections import deque
from itertools import product
from math import isfinite, prod
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import parse
from deborgen_shared.jobfile.sweep import Sweep, significant


def a_sweep(grid: dict[str, Any] | None = None, **more: Any) -> Sweep:
    data = {"run": "echo", "sweep": ({"grid": grid} if grid else {}) | more}
    sweep = parse(data, wire=True).steps[0].sweep
    assert sweep is not None
    return sweep


def axis(value: Any) -> list[Any]:
    return list(a_sweep({"x": value}).values("x"))


def problem(sweep: Any, **more: Any) -> str:
    with pytest.raises(JobFileInvalid) as refused:
        parse({"run": "echo", "sweep": sweep}, wire=True, **more)
    (found,) = refused.value.problems
    return found.message


def test_the_last_axis_varies_fastest_and_cases_slowest() -> None:
    sweep = a_sweep({"a": [1, 2], "b": ["x", "y"]}, cases=[{"m": 1.0, "n": 5}, {"m": 2.0, "n": 6}])
    assert [tuple(params.values()) for params in sweep.params()] == [
        *((1.0, 5, 1, "x"), (1.0, 5, 1, "y"), (1.0, 5, 2, "x"), (1.0, 5, 2, "y")),
        *((2.0, 6, 1, "x"), (2.0, 6, 1, "y"), (2.0, 6, 2, "x"), (2.0, 6, 2, "y")),
    ]
    assert list(next(sweep.params())) == ["m", "n", "a", "b"]


def test_cases_alone_are_a_sweep() -> None:
    assert list(a_sweep(cases=[{"m": 1}, {"m": 2}]).params()) == [{"m": 1}, {"m": 2}]


def test_a_case_may_name_its_parameters_in_another_order() -> None:
    assert list(a_sweep(cases=[{"m": 1, "n": 2}, {"n": 4, "m": 3}]).params()) == [{"m": 1, "n": 2}, {"m": 3, "n": 4}]


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 5, "to": 5}, [5]),
        ({"from": 0, "to": 10, "step": 4}, [0, 4, 8]),
        ({"from": 3, "to": 0, "step": -1}, [3, 2, 1, 0]),
        ({"from": 0, "to": 1, "step": 0.1}, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ({"from": 1, "to": 0, "step": -0.5}, [1.0, 0.5, 0.0]),
        ({"from": 1e-4, "to": 1e-1, "count": 4, "scale": "log"}, [0.0001, 0.001, 0.01, 0.1]),
        ({"from": 1e-1, "to": 1e-4, "count": 4, "scale": "log"}, [0.1, 0.01, 0.001, 0.0001]),
        ({"from": 0, "to": 1, "count": 4}, [0.0, 0.333333333333, 0.666666666667, 1.0]),
        ({"from": 10, "to": 30, "count": 3}, [10, 20, 30]),
        ({"from": 4, "to": 9, "count": 3, "scale": "log"}, [4, 6, 9]),
        ({"from": 1, "to": 1024, "count": 11, "scale": "log"}, [2**i for i in range(11)]),
        ({"from": 0.1, "to": 0.7, "count": 7, "scale": "linear"}, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
    ],
)
def test_ranges_are_inclusive_and_rounded(written: dict[str, Any], values: list[Any]) -> None:
    assert axis(written) == values
    assert [type(value) for value in axis(written)] == [type(value) for value in values]


SCALARS = st.integers(-50, 50) | st.sampled_from(["a", "b", "c", "d"]) | st.booleans()
AXES = st.dictionaries(
    st.sampled_from("pqrs"), st.lists(SCALARS, min_size=1, max_size=5, unique_by=lambda v: v), min_size=1, max_size=3
)


@given(AXES, st.lists(st.integers(0, 9), max_size=3, unique=True), st.data())
def test_the_count_matches_and_all_combinations_differ(
    grid: dict[str, list[Any]], rows: list[int], data: st.DataObject
) -> None:
    cases = [{"case": row} for row in rows]
    names = [*grid, *(["case"] if cases else [])]
    pools = {**grid, "case": rows}
    exclude = data.draw(
        st.lists(
            st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).flatmap(
                lambda picked: st.fixed_dictionaries({name: st.sampled_from(pools[name]) for name in picked})
            ),
            max_size=3,
        )
    )

    def excluded(params: dict[str, Any]) -> bool:
        return any(
            all(params[n] == v and isinstance(params[n], bool) == isinstance(v, bool) for n, v in row.items())
            for row in exclude
        )

    order = [*(["case"] if cases else []), *grid]
    expected = [dict(zip(order, values, strict=True)) for values in product(*(pools[name] for name in order))]
    assert prod(len(pools[name]) for name in order) == len(expected)
    expected = [params for params in expected if not excluded(params)]
    assume(expected)
    sweep = a_sweep(grid, **({"cases": cases} if cases else {}), exclude=exclude)
    found = list(sweep.params())
    assert sweep.count == len(found) == len(expected)
    assert [repr(params) for params in found] == [repr(params) for params in expected]


@given(
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.integers(2, 40),
    st.sampled_from(["log", "linear"]),
    st.data(),
)
def test_exclude_matches_every_generated_float_as_a_person_writes_it(
    first: float, last: float, count: int, scale: str, data: st.DataObject
) -> None:
    assume(abs(first - last) > 1e-3 * max(first, last))
    values = axis({"from": first, "to": last, "count": count, "scale": scale})
    assert len(values) == count == len(set(values))
    unwanted = data.draw(st.sampled_from(values))
    sweep = a_sweep(
        {"x": {"from": first, "to": last, "count": count, "scale": scale}, "y": [1, 2]},
        exclude=[{"x": float(f"{unwanted:.12g}")}],
    )
    assert sweep.count == 2 * (count - 1)
    assert unwanted not in [params["x"] for params in sweep.params()]


def test_exclude_matches_a_generated_float_by_its_written_form() -> None:
    sweep = a_sweep({"dt": {"from": 1e-4, "to": 1e-1, "count": 4, "scale": "log"}}, exclude=[{"dt": 1e-3}])
    assert [params["dt"] for params in sweep.params()] == [0.0001, 0.01, 0.1]
    assert a_sweep({"x": [0.1 + 0.2, 1]}, exclude=[{"x": 0.3}]).count == 1


def test_true_is_not_one_for_exclude() -> None:
    assert a_sweep({"x": [0, 1]}, exclude=[{"x": True}]).count == 2
    assert a_sweep({"x": [0, 1]}, exclude=[{"x": 1.0}]).count == 1


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_twelve_digits_are_kept(value: float) -> None:
    assert significant(value) == pytest.approx(value, rel=1e-11)
    assert significant(significant(value)) == significant(value)


def test_a_sweep_over_the_limit_is_refused_without_generating_it() -> None:
    million = {"from": 1, "to": 10**6}
    started = time.monotonic()
    assert problem({"grid": {"a": million}}) == "the sweep makes 1,000,000 jobs, but the limit is 100,000"
    assert problem({"grid": {f"a{i}": million for i in range(32)}}).startswith("the sweep makes more than 10^15 jobs")
    spaced = {"from": 0.5, "to": 2, "count": 10**6, "scale": "log"}
    assert problem({"grid": {f"a{i}": spaced for i in range(32)}}).startswith("the sweep makes more than 10^15 jobs")
    assert problem({"grid": {"a": {"from": 1, "to": 2**62}}}).startswith("the axis 'sweep.grid.a' has more than 10^15 ")
    assert problem({"grid": {"a": [1, 2, 3]}}, max_jobs=2) == "the sweep makes 3 jobs, but the limit is 2"
    assert time.monotonic() - started < 20


def test_a_sweep_of_exactly_the_limit_is_accepted() -> None:
    assert parse({"run": "x", "sweep": {"grid": {"a": {"from": 1, "to": 7}}}}, wire=True, max_jobs=7).count == 7


def test_a_hundred_thousand_combinations_need_constant_memory() -> None:
    sweep = a_sweep({"a": {"from": 1, "to": 1000}, "b": {"from": 1, "to": 100}})
    assert sweep.count == 100_000
    tracemalloc.start()
    try:
        (last,) = deque(sweep.params(), maxlen=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert last == {"a": 1000, "b": 100}
    assert peak < 500_000, "a list of them would take thirty megabytes"


def test_the_cost_of_exclude_is_limited() -> None:
    grid = {f"a{i}": [0, 1] for i in range(16)}
    rows = [{f"a{i}": 0 for i in range(16) if bits >> i & 1} for bits in range(1, 18)]
    assert "more than 16 different sets" in problem({"grid": grid, "exclude": rows})
    assert a_sweep(grid, exclude=rows[:16]).count < 2**16


def test_the_message_names_each_limit_of_a_sweep() -> None:
    assert "the limit is 32" in problem({"grid": {f"a{i}": [1] for i in range(33)}})
    assert "the limit is 32" in problem({"cases": [{f"a{i}": 1 for i in range(33)}]})
    assert "the limit is 1,000" in problem({"grid": {"a": [1, 2]}, "exclude": [{"a": 1}] * 1001})
    assert "the limit is 4,096" in problem({"grid": {"a": ["x" * 4097]}})
    assert "the limit is 64" in problem({"grid": {"a" * 65: [1]}})


NUMBERS = st.integers(-(2**64), 2**64) | st.floats() | st.sampled_from([0, 1, -1, 1e308, -1e308, 5e-324, 0.1, 10**6])


@given(
    st.fixed_dictionaries(
        {"from": NUMBERS, "to": NUMBERS},
        optional={"step": NUMBERS, "count": NUMBERS, "scale": st.sampled_from(["linear", "log"])},
    )
)
def test_any_range_is_refused_or_has_finite_and_different_numbers(written: dict[str, Any]) -> None:
    try:
        sweep = parse({"run": "x", "sweep": {"grid": {"x": written}}}, wire=True, max_jobs=2_000).steps[0].sweep
        assert sweep is not None
        values: list[Any] = list(sweep.values("x"))
    except JobFileInvalid as refused:
        values = []
        told = refused.render()
    else:
        told = ""
    assert len(told) < 1_000
    assert all(isfinite(value) for value in values)
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    "written",
    [
        {"from": -1e308, "to": 1e308, "step": 1.0},
        {"from": 0, "to": 1, "step": 1e-320},
        {"from": -1e308, "to": 1e308, "count": 5},
        {"from": 1e-308, "to": 1e308, "count": 5, "scale": "log"},
        {"from": 1.0, "to": 1.0000000001, "step": 1e-14},
    ],
)
def test_a_range_that_cannot_be_computed_is_refused(written: dict[str, Any]) -> None:
    assert problem({"grid": {"x": written}}).startswith(("the range 'sweep.grid.x'", "the axis 'sweep.grid.x'"))


def test_parameters_that_would_fill_the_database_are_refused() -> None:
    """A job file of 33 KB would write 667 MB. Seen to fail when only the number of jobs is checked."""
    long = [f"{number:04000}" for number in range(8)]
    many = {"grid": {"text": long, "n": {"from": 1, "to": 12_000}}}
    assert problem(many) == "the parameters of all jobs take 369 MiB, but the limit is 61 MiB"
    names = {f"a_name_that_is_as_long_as_a_name_may_be_which_is_{number:02}": [0] for number in range(31)}
    assert "but the limit is 61 MiB" in str(problem({"grid": {**names, "n": {"from": 1, "to": 99_999}}}))
    assert a_sweep({"text": long, "n": {"from": 1, "to": 1_000}}).count == 8_000


def test_a_hundred_thousand_jobs_with_ordinary_parameters_are_accepted() -> None:
    axes = {"method": ["euler", "rk4"], "dt": {"from": 1e-4, "to": 1e-1, "count": 500}, "seed": {"from": 1, "to": 100}}
    assert a_sweep(axes).count == 100_000
