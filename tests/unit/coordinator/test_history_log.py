"""The thread that logs the events of commits."""

from __future__ import annotations

import logging

import pytest

from deborgen_coordinator.operations.history import HistoryLog
from support.waiting import wait_until


def event(name: str, worker: str) -> tuple[object, ...]:
    return (0.0, name, None, None, worker, "admin:ada", None, None, None)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    lines = [line for record in caplog.records for line in getattr(record, "lines", ())]
    return [(message, fields["worker"]) for message, fields in lines]


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deborgen.history")


def test_events_are_logged_once_and_in_order_although_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    log = HistoryLog()
    for number in range(3):
        log.add([event("worker.online", f"pc{number}")])
    wait_until(lambda: len(logged(caplog)) == 3)
    log.add([event("worker.offline", "pc1")])
    log.stop()
    assert logged(caplog) == [
        ("worker.online", "pc0"), ("worker.online", "pc1"), ("worker.online", "pc2"), ("worker.offline", "pc1"),
    ]  # fmt: skip


def test_an_event_that_cannot_be_logged_does_not_silence_the_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    log = HistoryLog()
    log.add([("no", "event")])
    wait_until(lambda: "events could not be logged" in caplog.text)
    log.add([event("worker.online", "pc1")])
    log.stop()
    assert logged(caplog) == [("worker.online", "pc1")]
