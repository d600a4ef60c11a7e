"""A log is sealed only when nothing more can come of it, whatever the wall clock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_coordinator.operations import logs
from deborgen_shared.errors import Refusal
from support.simulation_coordinator import InProcess


def test_an_attempt_that_comes_back_after_hours_goes_on_with_its_log(tmp_path: Path) -> None:
    # Fails when logs of lost attempts are sealed while somebody may still take them up again.
    coordinator = InProcess(tmp_path)
    worker = coordinator.worker("w1")
    coordinator.submit({"run": "true", "max_attempts": 3})
    attempt = worker.take()
    worker.log(attempt, 0, b"before, ")
    coordinator.sweeper.turn()
    for _ in range(30):
        coordinator.clock.pass_(3.0)
        coordinator.sweeper.turn()
    coordinator.clock.step_wall(86_400.0)
    assert coordinator.sweeper._tidier.seal_logs() == 0
    assert worker.beat(attempt) == {attempt: "continue"}
    worker.log(attempt, 8, b"after")
    assert worker.finish(attempt, log_size=13) == "accepted"
    assert coordinator.sweeper._tidier.seal_logs() == 1
    assert logs.read(coordinator.ctx, 1, 1, 1, 0, 100) == b"before, after"
    assert coordinator.audit().clean
    coordinator.down()


def test_a_log_that_was_sealed_unfinished_takes_nothing_more(tmp_path: Path) -> None:
    coordinator = InProcess(tmp_path)
    worker = coordinator.worker("w1")
    coordinator.submit({"run": "true"})
    attempt = worker.take()
    worker.log(attempt, 0, b"half")
    assert worker.finish(attempt, log_size=8) == "accepted"
    coordinator.clock.step_wall(86_400.0)
    assert coordinator.sweeper._tidier.seal_logs() == 1
    with pytest.raises(Refusal, match="is over"):
        worker.log(attempt, 4, b"late")
    assert [finding.check for finding in coordinator.audit().findings] == ["log_unfinished"]
    coordinator.down()
