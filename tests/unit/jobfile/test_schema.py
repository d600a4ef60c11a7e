"""The schema and the parser come from one table; these tests compare them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.jobfile.keys import KEYS
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import load, parse

RIGHT = sorted((Path(__file__).parent / "right").glob("*.yml"))
VALIDATORS = {wire: jsonschema_rs.validator_for(schema(wire)) for wire in (False, True)}
DIGEST = "0" * 64

#: For each key, right values, and values that are wrong regardless of the other keys.
GOOD = {
    "name": ["pi", "a b", "日本", "x" * 200],
    "run": ["echo", "a\nb", ["a"], ["a", 1, 2.5, True, ""]],
    "image": ["busybox", "python:3.12-slim", f"r.example.org:5000/a/b@sha256:{DIGEST}", "a:${{ job.id }}"],
    "workspace": [
        {"git": "https://example.org/a"},
        {"git": "git@h:a/b", "ref": "v1", "subdir": "a/", "submodules": True, "key": "K"},
    ],
    "env": [{}, {"A": 1, "b_2": "x", "C": True, "D": 1.5, "E": ""}],
    "secrets": [[], ["A", "B"]],
    "resources": [{}, {"cpus": 0.5, "memory": "512MiB", "gpus": 0, "disk": "1.5GiB"}, {"cpus": 4}],
    "requires": [{"os": "linux", "gpu": "rtx*"}, {"cuda/version": 12, "ok": True}],
    "network": ["none", "internet"],
    "timeout": ["90s", "1h30m", "3d", "0.5h"],
    "watchdog": ["90s", "10m"],
    "max_attempts": [1, 100],
    "retry": [{}, {"program": True, "backoff": "10s"}],
    "repeat": [{"until": "test -f a", "most": 1}, {"until": ["python", "ok.py"], "most": 20}],
    "priority": [0, -1000, 1000],
    "artifacts": [[], ["out/*.png", "data/**", "x/", "./a"], [{"path": "a", "when": "always"}, {"path": "b"}]],
    "result": ["metrics.json", "a/b.json", ".hidden", "..a"],
    "checkpoint": [{"path": "state/"}, {"path": "s", "every": "5m"}],
    "labels": [{}, {"project": "thesis", "n": 1}],
    "sweep": [
        {"grid": {"a": [1, "x", 2.5], "b": {"from": 1, "to": 5}}},
        {"cases": [{"m": 1}, {"m": 2}], "grid": {"x": {"from": 0.1, "to": 1, "count": 3, "scale": "log"}}},
        {"grid": {"x": {"from": 0, "to": 1, "step": 0.5}}, "exclude": [{"x": 0.5}]},
    ],
}
BAD = {
    "name": ["", " \n", 5, ["a"], "a\0b", "x" * 201, None],
    "run": ["", "  ", [], [["a"]], {}, None, 5, [None]],
    "image": ["", "a b", "-x", "a;b", 7, "${{ }}", None],
    "workspace": [
        {},
        {"git": "nonsense"},
        {"git": "https://a/b", "shared": "b"},
        {"shared": "a", "ref": "b"},
        {"git": "https://a/b", "write": True},
        {"git": "https://a/b", "key": "a b"},
        {"git": "https://a/b", "commit": "abc"},
        {"git": "ext::sh"},
        "x",
        None,
    ],
    "env": [[], {"A B": 1}, {"1A": 1}, {"DEBORGEN_X": 1}, {"A": None}, {"A": []}, None],
    "secrets": ["A", ["A", "A"], ["a b"], [5], None],
    "resources": [4, {"cpu": 1}, {"cpus": 0}, {"memory": 5}, {"memory": "5GB"}, {"gpus": 1.5}, {"cpus": None}, None],
    "requires": ["gpu", {"a b": 1}, {"a": None}, {"a": {}}, None],
    "network": ["host", True, None],
    "timeout": [90, "90", "2 hours", "1m1h", "", None, ["1h"]],
    "watchdog": [600, "10", True, None],
    "max_attempts": [0, 101, "3", 1.5, True, None],
    "retry": [3, {"program": "yes"}, {"backoff": 10}, {"attempts": 3}, None],
    "repeat": [
        "true",
        {},
        {"until": "true"},
        {"most": 3},
        {"until": "", "most": 3},
        {"until": "true", "most": 0},
        {"until": "true", "most": 50_001},
        {"until": "true", "most": "3"},
        {"until": "x", "max": 3},
        None,
    ],
    "priority": [1001, "high", 0.5, None],
    "artifacts": ["a", ["../a"], ["/a"], [""], [{}], [{"path": "a", "when": "never"}], ["a\\b"], ["C:/a"], [5], None],
    "result": ["", "/a", "a/../b", 5, "a//b", None],
    "checkpoint": [{}, {"every": "5m"}, {"path": "s", "every": 5}, "state", None],
    "labels": [[], {"a b": "x"}, {"a": "x" * 201}, {"a": None}, None],
    "sweep": [
        *({}, [], {"a": [1]}, {"grid": {}}, {"cases": []}, {"grid": {"a": []}}, {"grid": {"a": 5}}, {"exclude": []}),
        *({"grid": {"a-b": [1]}}, {"grid": {"attempt": [1]}}, {"grid": {"a": [1, 1]}}, {"grid": {"a": {"from": 1}}}),
        *({"grid": {"a": {"from": 1, "to": 2, "count": 1}}}, {"grid": {"a": [[1]]}}, {"cases": [{}]}, {"cases": [5]}),
        None,
    ],
}
FILES = {
    False: (
        [[], ["sim.py", "data/"], ["."], ["./a/b.c", ".deborgenignore", "a/.deborgen"]],
        [
            "sim.py",
            ["../a"],
            ["/a"],
            [5],
            [".deborgen"],
            ["./.DEBORGEN/a"],
            [{"path": "a", "sha256": DIGEST, "size": 1}],
            ["a", "a"],
            None,
        ],
    ),
    True: (
        [[], [{"path": "a", "sha256": DIGEST, "size": 1}, {"path": "b/c", "sha256": DIGEST, "size": 0, "mode": 0o755}]],
        [
            ["a"],
            [{}],
            [{"path": "a/", "sha256": DIGEST, "size": 1}],
            [{"path": "a", "sha256": "x", "size": 1}],
            None,
            [{"path": ".Deborgen/params.json", "sha256": DIGEST, "size": 1}],
        ],
    ),
}


def accepted(data: Any, wire: bool) -> bool:
    try:
        parse(data, wire=wire)
    except JobFileInvalid:
        return False
    return True


def samples(wire: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    good, bad = FILES[wire]
    return GOOD | {"files": good}, BAD | {"files": bad}


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("key", [*GOOD, "files"])
def test_the_schema_and_the_parser_agree_on_each_value(key: str, wire: bool) -> None:
    good, bad = samples(wire)
    for value in good[key]:
        data = {"run": "x"} | {key: value}
        assert accepted(data, wire), value
        assert VALIDATORS[wire].is_valid(data), value
    for value in bad[key]:
        data = {"run": "x"} | {key: value}
        assert not accepted(data, wire), value
        assert not VALIDATORS[wire].is_valid(data), value


@st.composite
def documents(draw: st.DrawFn, wire: bool) -> dict[str, Any]:
    """Documents of right values and an occasional wrong one, as one job or as steps."""
    good, bad = samples(wire)

    def level(keys: list[str]) -> dict[str, Any]:
        picked = draw(st.lists(st.sampled_from(keys), max_size=5, unique=True))
        found = {key: draw(st.sampled_from(good[key])) for key in picked}
        if picked and draw(st.integers(0, 3)) == 0:
            found[picked[0]] = draw(st.sampled_from(bad[picked[0]]))
        if draw(st.integers(0, 15)) == 0:
            found["unknown"] = 1
        return found

    keys = [key for key in good if key not in ("run", "secrets")]
    if draw(st.booleans()):
        return level(keys) | ({"run": "x"} if draw(st.integers(0, 9)) else {})
    steps = [
        level([key for key in keys if key != "labels"])
        | {"id": f"s{i}"}
        | ({"run": "x"} if draw(st.integers(0, 9)) else {})
        for i in range(draw(st.integers(0, 3)))
    ]
    return level(keys) | {"steps": steps} | ({"run": "x"} if draw(st.integers(0, 9)) == 0 else {})


@pytest.mark.parametrize("wire", [False, True])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_schema_and_the_parser_agree_on_whole_documents(wire: bool, data: st.DataObject) -> None:
    document = data.draw(documents(wire))
    assert VALIDATORS[wire].is_valid(document) == accepted(document, wire)


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.stem)
def test_the_schema_accepts_every_right_file(file: Path) -> None:
    VALIDATORS[False].validate(load(file.read_bytes()).data)


def test_every_key_is_described() -> None:
    for wire in (False, True):
        found = schema(wire)
        assert set(found["properties"]) == {key.name for key in KEYS} | {"steps"}
        assert found["additionalProperties"] is False
        step = found["properties"]["steps"]["items"]
        assert set(step["properties"]) == ({key.name for key in KEYS} | {"id", "needs"}) - {"labels"}
        for properties in (found["properties"], step["properties"]):
            assert all("Default: " in shape["description"] for shape in properties.values())
    jsonschema_rs.meta.validate(schema())


def test_every_key_has_values_that_are_tried_and_a_place_in_the_example() -> None:
    """`build` stands in the place of `run`, and has examples of its own."""
    keys = {key.name for key in KEYS} - {"build"}
    assert {*GOOD, "files"} == {*BAD, "files"} == keys
    (example,) = (file for file in RIGHT if file.stem == "every_key")
    assert set(load(example.read_bytes()).data) == keys


def test_changing_the_returned_schema_does_not_affect_the_next_one() -> None:
    schema()["properties"].clear()
    assert schema()["properties"]


def patterns(shape: Any) -> set[str]:
    if isinstance(shape, dict):
        own = {shape["pattern"]} if isinstance(shape.get("pattern"), str) else set()
        return own.union(*map(patterns, shape.values()))
    return set().union(*map(patterns, shape)) if isinstance(shape, list) else set()


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["a", " ", "a ", "1", "1.", "a/", "./", "${{ a", "${{ a }}", "a@", "https://"])
def test_no_pattern_is_slow_on_hostile_text(text: str) -> None:
    """Many validators backtrack, as Python does. Seen to fail when a pattern scanned the text for its last letter."""
    for pattern in patterns(schema()) | patterns(schema(wire=True)):
        assert not re.search(pattern, text * (40_000 // len(text)) + " \0")
