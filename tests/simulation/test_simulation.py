"""The real coordinator and real workers on one clock, through crashes, reboots, partitions and worse, from a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.simulation import simulate
from support.simulation_bugs import BUGS
from support.simulation_seeds import hunt_all, run_seeds

SEEDS = 100
#: Seeds that broke a rule once, and what was wrong then.
KEPT = [line.split(None, 1) for line in (Path(__file__).parent / "kept_seeds.txt").read_text().splitlines()]


@pytest.mark.timeout(900)
def test_no_seed_breaks_a_rule() -> None:
    failures = run_seeds(range(SEEDS))
    assert not failures, "\n\n".join(failures[:3])


@pytest.mark.parametrize(("seed", "reason"), KEPT)
def test_a_seed_that_once_broke_a_rule_no_longer_does(seed: str, reason: str) -> None:
    simulate(int(seed))


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(4711) == simulate(4711)


@pytest.mark.timeout(900)
def test_every_planted_bug_is_found() -> None:
    found = hunt_all(list(BUGS))
    assert len(found) >= 8
    missed = [bug for bug, seed in found.items() if seed is None]
    assert not missed, f"not found by any seed: {missed}"
