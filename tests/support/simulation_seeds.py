"""Many seeds of the simulation, spread over the processors, in processes that are replaced now and then."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Sequence

from support.simulation import SimulationFailed, simulate
from support.simulation_bugs import planted


def _simulate_quietly(seed: int) -> str | None:
    logging.disable(logging.CRITICAL)
    try:
        simulate(seed)
    except SimulationFailed as failure:
        return str(failure)
    return None


def run_seeds(seeds: Sequence[int], progress: bool = False) -> list[str]:
    """The stories of the seeds that broke a rule."""
    context = multiprocessing.get_context("fork")
    failures = []
    with context.Pool(os.cpu_count(), maxtasksperchild=20) as pool:
        for done, story in enumerate(pool.imap_unordered(_simulate_quietly, seeds, chunksize=5), 1):
            if story is not None:
                failures.append(story)
                if progress:
                    print(story, flush=True)
            if progress and done % 500 == 0:
                print(f"{done} of {len(seeds)}, {len(failures)} broke a rule", flush=True)
    return failures


def hunt(bug: str, most: int = 200) -> tuple[int, str] | None:
    """The first seed that finds the planted bug, and the rule that it broke."""
    logging.disable(logging.CRITICAL)
    with planted(bug):
        for seed in range(most):
            try:
                simulate(seed)
            except SimulationFailed as failure:
                return seed, failure.reason
    return None


def hunt_all(bugs: Sequence[str]) -> dict[str, tuple[int, str] | None]:
    """Hunt all these bugs, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    with context.Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        return dict(zip(bugs, pool.map(hunt, bugs, chunksize=1), strict=True))
