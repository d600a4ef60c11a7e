"""Globs of paths. The files in `wrong/` show what a person reads about a broken one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deborgen_shared.jobfile.globs import Glob, check_glob


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("out/*.png", ["out/a.png"], ["out/b/a.png", "a.png", "out/a.jpg"]),
        ("data/**", ["data/a", "data/b/c"], ["data", "other/a"]),
        ("**/*.csv", ["a.csv", "x/y/a.csv"], ["a.txt"]),
        ("best.json", ["best.json"], ["xbest.json", "best.jsonx"]),
        ("out", ["out", "out/a", "out/b/c"], ["outer/a"]),
        ("out/", ["out/a"], ["out2/a"]),
        ("r?n[0-9].txt", ["run1.txt"], ["run.txt", "runx.txt"]),
        ("x[!0-9]y", ["xay"], ["x1y", "x/y"]),
        ("x[^0-9]y", ["xay"], ["x1y", "x^1y"]),
        ("x[-a]", ["x-", "xa"], ["x", "xb"]),
        ("x[a-]", ["x-", "xa"], ["x", "xb"]),
        ("x[[]", ["x["], ["x", "x[]"]),
        ("x[z-a]", [], ["xz", "xa"]),
        ("x[]", [], ["x", "x[]", "x]"]),
        ("x[", ["x["], ["x"]),
        ("a**b", ["a/x/b", "axb"], ["ab", "a"]),
        ("./**/**/a", ["a", "x/y/a"], ["xa"]),
    ],
)
def test_globs_mean_what_people_expect(pattern: str, yes: list[str], no: list[str]) -> None:
    glob = Glob(pattern)
    assert all(glob.matches(path) for path in yes)
    assert not any(glob.matches(path) for path in no)


def as_expression(pattern: str) -> re.Pattern[str]:
    """The regular expression for a glob of these few characters."""
    words = {"**/": "(?:.*/)?", "**": ".+", "*": "[^/]*", "?": "[^/]", "[ab]": "[ab]", "[!a]": "[^a/]"}
    tokens = re.findall(r"\*\*/|\*\*|\[!?[ab]+\]|.", pattern)
    return re.compile("".join(words.get(each, each) for each in tokens) + "(?:/.+)?")


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "?", "**", "**/", "[ab]", "[!a]"]), min_size=1, max_size=7),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_a_glob_matches_what_its_expression_matches(tokens: list[str], names: list[str]) -> None:
    pattern, path = "".join(tokens).rstrip("/") or "a", "/".join(names)
    assert Glob(pattern).matches(path) == bool(as_expression(pattern).fullmatch(path))


@pytest.mark.parametrize("pattern", ["*a" * 500 + "*b", "**/" * 300 + "*a" * 50 + "b", "**a" * 300 + "b"])
def test_no_glob_takes_longer_than_its_length_times_that_of_the_path(pattern: str) -> None:
    """Seen to fail, by running forever, when a glob becomes a regular expression that backtracks."""
    assert not Glob(pattern).matches("a" * 1000)
    assert not Glob(pattern).matches("a/" * 500 + "a")


@settings(max_examples=300)
@given(st.text("az-!^[]*?/", max_size=8), st.text("az-/[", max_size=6))
def test_a_broken_glob_does_no_harm_and_a_class_that_is_accepted_matches_something(pattern: str, path: str) -> None:
    """A parameter may break a pattern after the job file was checked."""
    Glob(pattern).matches(path)
    for piece in re.findall(r"\[[^]/]*\]", pattern) if check_glob(pattern) is None else ():
        assert any(Glob(piece).matches(letter) for letter in "abyz-!^[]?*"), piece
