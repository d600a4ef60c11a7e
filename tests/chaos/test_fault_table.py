"""docs/reliability.md and the tests agree: every row of the table of faults has tests by its number, where it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from chaos.planted import PLANTED

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS.parent / "docs" / "reliability.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*) \|$", re.MULTILINE)


def numbered_tests() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for number in re.findall(r"def test_fault_0*(\d+)_", path.read_text()):
            found.setdefault(int(number), set()).add(str(path.relative_to(TESTS)))
    return found


def test_every_fault_of_the_table_has_a_test_by_its_number() -> None:
    rows = ROW.findall(DOCUMENT.read_text())
    assert len(rows) >= 67
    found = numbered_tests()
    for number, _, _, where in rows:
        named = set(re.findall(r"`([^`]+)`", where))
        assert named, f"row {number} names no test"
        assert named <= found.get(int(number), set()), f"row {number}: {named - found.get(int(number), set())}"


def test_every_test_of_a_fault_is_in_the_table() -> None:
    rows = {int(number) for number, *_ in ROW.findall(DOCUMENT.read_text())}
    assert set(numbered_tests()) <= rows


def docstrings() -> dict[str, str]:
    """What each test of a fault says of itself, on one line."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_fault_"):
                found[f"{path.relative_to(TESTS)}::{node.name}"] = " ".join((ast.get_docstring(node) or "").split())
    return found


def test_every_test_of_a_fault_says_how_it_was_seen_to_fail() -> None:
    """`make seen-to-fail` breaks what it says, and looks."""
    said = docstrings()
    how = [(test, planted.broken) for planted in PLANTED for test in planted.tests]
    for test, words in how:
        assert words in said[test], f"{test} does not say: {words}"
    assert set(said) == {test for test, _ in how}, "a test that was never seen to fail belongs into planted.py"


def test_what_is_planted_still_has_its_place_in_the_product() -> None:
    for planted in PLANTED:
        for file, old, new in planted.edits:
            assert (TESTS.parent / file).read_text().count(old) == 1, f"{file} does not have {old!r} once"
            assert old != new
