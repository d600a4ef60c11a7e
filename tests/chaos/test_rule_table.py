"""docs/reliability.md and the tests agree: every rule has numbered tests in the files that its row names."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
RULES = (
    (TESTS.parent / "docs" / "reliability.md").read_text().partition("## The rules")[2].partition("## The faults")[0]
)
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.*) \|$", re.MULTILINE)


def files_by_rule() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for number in re.findall(r"def test_rule_(\d+)_", path.read_text()):
            found.setdefault(int(number), set()).add(str(path.relative_to(TESTS)))
    return found


def test_every_rule_names_the_files_that_have_its_tests() -> None:
    rows = {int(number): set(re.findall(r"`([^`]+)`", where)) for number, _, where in ROW.findall(RULES)}
    assert list(rows) == list(range(1, 17))
    assert rows == files_by_rule()


def test_every_rule_is_written_in_whole_sentences() -> None:
    for number, rule, _ in ROW.findall(RULES):
        assert rule.endswith("."), f"rule {number}"


def test_the_number_of_a_rule_or_a_fault_has_two_digits_in_every_test_name() -> None:
    for path in TESTS.rglob("test_*.py"):
        for number in re.findall(r"def test_(?:rule|fault)_(\d+)_", path.read_text()):
            assert len(number) == 2, f"{path.name} writes {number}"
