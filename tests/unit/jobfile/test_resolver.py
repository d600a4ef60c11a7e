from __future__ import annotations

import json
from math import inf, isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.loader import resolve
from deborgen_shared.jobfile.reading import load

NUMBERS = {
    "0": 0,
    "42": 42,
    "-7": -7,
    "+3": 3,
    "0o17": 15,
    "0x1F": 31,
    "1e-4": 0.0001,
    "1E3": 1000.0,
    "12e03": 12000.0,
    ".5": 0.5,
    "1.": 1.0,
    "-0.0": -0.0,
    "6.02e+23": 6.02e23,
    ".inf": inf,
    "-.INF": -inf,
}
STRINGS = [
    *("no", "No", "yes", "on", "off", "y", "n", "22:00", "1:30:00", "017", "00.5", "1_000", "0b101", "1e", "e5", "."),
    *("1.2.3", "2024-01-02", "0x", "0o8", "tRUE", "nULL", "- 1", "++1", "inf", "nan", "١٢", "9" * 500),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_these_are_numbers(text: str, value: float) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize("text", STRINGS)
def test_these_are_strings(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_these_are_null(text: str) -> None:
    assert resolve(text) is None


def test_booleans_and_special_floats() -> None:
    assert [resolve(text) for text in ("true", "True", "TRUE", "false", "False", "FALSE")] == [True] * 3 + [False] * 3
    found = resolve(".nan")
    assert isinstance(found, float)
    assert isnan(found)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_back(value: float) -> None:
    assert resolve(repr(value)) == value


@given(st.integers(-(10**30), 10**30))
def test_every_integer_is_read_back(value: int) -> None:
    assert resolve(str(value)) == value


TEXT = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_json_is_yaml(data: dict[str, Any]) -> None:
    data = {f"k{key}": value for key, value in data.items()}  # not `env`, whose numbers stay as they are written
    assert load(json.dumps(data, ensure_ascii=False)).data == data


def test_numbers_in_env_labels_requires_and_arguments_stay_as_written() -> None:
    document = load(
        "env: {V: 3.10, E: 1e5, T: true, N: null}\nlabels: {v: 1.10}\nrequires: {cuda: 12.0}\n"
        "run: [sleep, 1.50]\nresources: {cpus: 1.50}\nsteps:\n  - env: {V: 3.10}\n    sweep: {grid: {env: [3.10]}}\n"
    )
    assert document.data["env"] == {"V": "3.10", "E": "1e5", "T": "true", "N": None}
    assert document.data["labels"] == {"v": "1.10"}
    assert document.data["requires"] == {"cuda": "12.0"}
    assert document.data["run"] == ["sleep", "1.50"]
    assert document.data["resources"] == {"cpus": 1.5}
    assert document.data["steps"][0] == {"env": {"V": "3.10"}, "sweep": {"grid": {"env": [3.1]}}}
