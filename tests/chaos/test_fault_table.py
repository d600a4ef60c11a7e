"""docs/reliability.md and the tests agree: every row of the table of faults has tests by its number, where it says."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS.parent / "docs" / "reliability.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.*) \|$", re.MULTILINE)


def tests_by_number() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for number in re.findall(r"def test_fault_0*(\d+)_", path.read_text()):
            found.setdefault(int(number), set()).add(str(path.relative_to(TESTS)))
    return found


def test_every_fault_of_the_table_has_a_test_by_its_number() -> None:
    rows = ROW.findall(DOCUMENT.read_text())
    assert len(rows) >= 67
    found = tests_by_number()
    for number, _, _, where in rows:
        named = set(re.findall(r"`([^`]+)`", where))
        assert named, f"row {number} names no test"
        assert named <= found.get(int(number), set()), f"row {number}: {named - found.get(int(number), set())}"


def test_every_test_of_a_fault_is_in_the_table() -> None:
    rows = {int(number) for number, *_ in ROW.findall(DOCUMENT.read_text())}
    assert set(tests_by_number()) <= rows
