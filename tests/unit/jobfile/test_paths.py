from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deborgen_shared.jobfile.paths import check_path, find_twins

GOOD = [
    "a",
    "a.txt",
    "out/a.png",
    "out/*.png",
    "data/**",
    ".hidden",
    "..a",
    "a..",
    "a b",
    "日本/語",
    "-rf",
    "ab:c",
    "x" * 255,
]
BAD = {
    "": "is empty",
    "/etc/passwd": "is absolute",
    "/": "is absolute",
    "..": "contains '..'",
    "../a": "contains '..'",
    "a/../b": "contains '..'",
    "a/..": "contains '..'",
    ".": "contains '.'",
    "./a": "contains '.'",
    "a//b": "has an empty part between slashes",
    "a/": "ends with a slash",
    "a\\b": "contains a backslash",
    "a\0b": "contains a NUL byte",
    "C:/x": "starts with a drive letter",
    "c:x": "starts with a drive letter",
    "x" * 256: "has a part longer than 255 bytes",
    "é" * 128: "has a part longer than 255 bytes",
    "/".join(["x" * 200] * 6): "is longer than 1024 bytes",
    "\ud800": "is not valid Unicode",
}


@pytest.mark.parametrize("path", GOOD)
def test_these_paths_are_valid(path: str) -> None:
    assert check_path(path) is None


@pytest.mark.parametrize(("path", "reason"), BAD.items())
def test_these_paths_are_refused(path: str, reason: str) -> None:
    assert check_path(path) == reason


@given(st.text(alphabet="a.b/\\:C\0 é", max_size=20))
def test_a_valid_path_stays_inside_its_folder_on_every_system(path: str) -> None:
    if check_path(path) is None:
        assert not PurePosixPath(path).is_absolute()
        assert ".." not in PurePosixPath(path).parts
        windows = PureWindowsPath(path)
        assert not windows.drive
        assert not windows.root
        assert ".." not in windows.parts
        assert str(PurePosixPath(path)) == path, "there is one spelling only"


def test_twins_are_found() -> None:
    nfd = unicodedata.normalize("NFD", "café")
    assert find_twins(["a", "b/c", "B/d"]) == []
    assert find_twins(["a", "A"]) == [("a", "A")]
    assert find_twins(["x/café", f"x/{nfd}"]) == [("x/café", f"x/{nfd}")]
    assert find_twins(["a", "a"]) == [("a", "a")]
    assert find_twins(["data", "DATA/a", "data2"]) == [("data", "DATA/a")], "a file where a folder must be"
    assert find_twins(["x/y/z", "X/y"]) == [("X/y", "x/y/z")]
    assert find_twins(["a", "a/b", "a/b/c", "a/B"]) == [("a", "a/b"), ("a/b", "a/b/c"), ("a/b", "a/B")]
    assert find_twins(["straße", "STRASSE"]) == [("straße", "STRASSE")]


@given(st.lists(st.text(alphabet="abAB/é", min_size=1, max_size=6), max_size=8))
def test_paths_without_twins_stay_different_without_case_and_normalisation(paths: list[str]) -> None:
    if not find_twins(paths):
        assert len({unicodedata.normalize("NFC", path).casefold() for path in paths}) == len(paths)
