"""docs/reliability.md and the tests agree: every row of the table of faults has numbered tests in its files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from deborgen_coordinator import leases
from deborgen_coordinator.operations.maintenance import lease_check
from deborgen_worker import agent
from planted.patch import Patch, nothing, planted_here
from planted.table import every_bug
from support.simulation_bugs import BUGS, MORE

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
    """The docstring of each test of a fault or of a rule, on one line."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith(("test_fault_", "test_rule_")):
                found[f"{path.relative_to(TESTS)}::{node.name}"] = " ".join((ast.get_docstring(node) or "").split())
    return found


def test_every_test_of_a_fault_says_when_it_was_seen_to_fail() -> None:
    """The docstring names the planted bug: `make seen-to-fail` plants it, and checks that the test fails."""
    said = docstrings()
    how = [(test, planted.broken) for planted in every_bug() for test in planted.tests]
    for test, words in how:
        assert words in said[test], f"{test} does not say: {words}"
    faults = {test for test in said if "::test_fault_" in test}
    assert faults <= {test for test, _ in how}, "each test of a fault belongs in the table in tests/planted"


def test_every_planted_bug_replaces_something_that_exists_in_the_product() -> None:
    bugs = [planted.patches for planted in every_bug()] + [*(BUGS | MORE).values()]
    for patch in [patch for patches in bugs for patch in patches]:
        assert patch.replacement(patch.original()) != patch.original(), f"{patch.target} is not changed"


def test_a_target_that_does_not_exist_is_named_in_the_error() -> None:
    for target in ("deborgen_coordinator.leases:nothing_like_it", "deborgen_worker.agent:Agent.nothing_like_it"):
        with pytest.raises(AttributeError, match=target):
            Patch(target, nothing).plant()


def test_a_bug_planted_in_this_process_also_affects_imported_names_and_is_removed_again() -> None:
    before = leases.clock_move, vars(lease_check)["clock_move"], agent.Agent.apply_runner_events
    with planted_here(
        [
            Patch("deborgen_coordinator.leases:clock_move", nothing),
            Patch("deborgen_worker.agent:Agent.apply_runner_events", nothing),
        ]
    ):
        assert leases.clock_move is vars(lease_check)["clock_move"] is not before[0]
        assert agent.Agent.apply_runner_events is not before[2]
    assert (leases.clock_move, vars(lease_check)["clock_move"], agent.Agent.apply_runner_events) == before
