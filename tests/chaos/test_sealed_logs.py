"""A log is sealed only when no more output can come, whatever the wall clock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_coordinator.operations.attempts import logs
from deborgen_shared.errors import Refusal
from support.in_process import InProcessCoordinator


def test_an_attempt_that_is_resumed_after_hours_continues_its_log(tmp_path: Path) -> None:
    # Fails when logs of lost attempts are sealed while the attempts may still be resumed.
    coordinator = InProcessCoordinator(tmp_path)
    worker = coordinator.worker("w1")
    coordinator.submit({"run": "true", "max_attempts": 3})
    attempt = worker.take()
    worker.write_log(attempt, b"before, ", 0)
    coordinator.sweeper.turn()
    for _ in range(30):
        coordinator.clock.pass_by(3.0)
        coordinator.sweeper.turn()
    coordinator.clock.step_wall(86_400.0)
    assert coordinator.sweeper._tidier.seal_logs() == 0
    assert worker.beat(attempt) == {attempt: "continue"}
    worker.write_log(attempt, b"after", 8)
    assert worker.finish(attempt, log_size=13) == "accepted"
    assert coordinator.sweeper._tidier.seal_logs() == 1
    assert logs.read(coordinator.ctx, 1, 1, 1, 0, 100) == b"before, after"
    assert coordinator.audit().clean
    coordinator.stop()


def test_a_log_that_was_sealed_unfinished_accepts_nothing_more(tmp_path: Path) -> None:
    coordinator = InProcessCoordinator(tmp_path)
    worker = coordinator.worker("w1")
    coordinator.submit({"run": "true"})
    attempt = worker.take()
    worker.write_log(attempt, b"half", 0)
    assert worker.finish(attempt, log_size=8) == "accepted"
    coordinator.clock.step_wall(86_400.0)
    assert coordinator.sweeper._tidier.seal_logs() == 1
    with pytest.raises(Refusal, match="is over"):
        worker.write_log(attempt, b"late", 4)
    assert [finding.check for finding in coordinator.audit().findings] == ["log_unfinished"]
    coordinator.stop()
