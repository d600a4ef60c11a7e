"""Cached values are never older than allowed, measured on the steady clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deborgen_coordinator.operations import tokens
from deborgen_coordinator.operations.authenticate import authenticate
from deborgen_coordinator.operations.context import COORDINATOR, TOKEN_CACHE_SECONDS
from deborgen_coordinator.operations.runs.overview import KEPT_SECONDS, SMALL_RUN, overview
from deborgen_coordinator.operations.worker_fit import KEEP_SECONDS
from deborgen_shared.errors import Refusal
from deborgen_shared.messages import NewToken
from support.in_process import InProcessCoordinator


def test_a_token_that_another_process_revoked_is_accepted_for_one_more_second(
    make_pool: Callable[..., InProcessCoordinator],
) -> None:
    pool, other = make_pool(), make_pool()
    made = tokens.create(pool.ctx, COORDINATOR, NewToken(role="viewer", name="ada"))
    assert authenticate(pool.ctx, made.token).name == "ada"
    tokens.revoke(other.ctx, COORDINATOR, made.id)
    pool.clock.step_wall(-7200)
    assert authenticate(pool.ctx, made.token).name == "ada"
    pool.clock.pass_by(TOKEN_CACHE_SECONDS)
    with pytest.raises(Refusal, match="not a valid token"):
        authenticate(pool.ctx, made.token)


def test_a_token_that_this_process_revoked_is_refused_at_once(pool: InProcessCoordinator) -> None:
    made = tokens.create(pool.ctx, COORDINATOR, NewToken(role="viewer", name="ada"))
    authenticate(pool.ctx, made.token)
    tokens.revoke(pool.ctx, COORDINATOR, made.id)
    with pytest.raises(Refusal, match="not a valid token"):
        authenticate(pool.ctx, made.token)


def test_the_overview_of_a_large_run_is_at_most_two_seconds_old_and_exact_at_its_end(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when an overview is kept although the run has ended, and when it is grouped for each request."""
    for jobs in (SMALL_RUN, SMALL_RUN + 1):
        pool.submit(sweep={"grid": {"n": {"from": 1, "to": jobs}}})
    worker = pool.worker()
    for run, seen_at_once in ((1, 2), (2, 1)):
        for failed in (1, 2):
            (attempt,) = worker.start()
            worker.finish(attempt, "failed", exit_code=3)
            shown = overview(pool.ctx, run).failed[0].jobs
            assert shown == min(failed, seen_at_once), "only a small run is grouped each time"
        pool.clock.pass_by(KEPT_SECONDS)
        assert overview(pool.ctx, run).failed[0].jobs == 2
        (attempt,) = worker.start()
        worker.finish(attempt, "failed", exit_code=3)
        pool.cancel(str(run))
        assert overview(pool.ctx, run).failed[0].jobs == 3, "an ended run is shown as it is"


def test_a_new_worker_is_noticed_within_a_second(pool: InProcessCoordinator) -> None:
    """A warning that no machine can run a job is cached for a second."""

    def warnings() -> list[str]:
        return pool.submit(resources={"gpus": 1}).warnings

    (alone,) = warnings()
    assert "no worker has joined" in alone
    pool.worker("box", gpus=1).register()
    assert warnings() == [alone], "nothing is read again within the second"
    pool.clock.pass_by(KEEP_SECONDS)
    assert warnings() == []
