"""How a machine is described to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deborgen import machines
from deborgen_shared.messages import GpuMetrics, Metrics, Resources, Worker

SOON = datetime.now(UTC) + timedelta(hours=1)


def worker(**fields: Any) -> Worker:
    return Worker(
        **{
            "name": "box", "state": "open", "reason": "", "hostname": "", "version": "", "labels": {},
            "capacity": Resources(), "free": Resources(), "running": [], "last_seen_at": None, "paused": False,
            "drain": False, **fields,
        }
    )  # fmt: skip


def test_the_state_is_shown_if_a_coordinator_of_release_0_1_reports_no_availability() -> None:
    assert machines.availability(worker(availability="busy")) == "busy"
    assert machines.availability(worker(state="draining")) == "draining"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"availability": "free"}, "box is free"),
        ({"availability": "paused", "reason": "paused by an admin"}, "box is paused by an admin"),
        ({"availability": "closed", "reason": "the disk is full"}, "box is closed: the disk is full"),
        ({"availability": "asleep", "until": SOON}, "box is asleep: until {soon}"),
        (
            {"availability": "yielding", "reason": "a game", "until": SOON},
            "box is yielding: a game, until {soon}",
        ),
        (
            {"availability": "paused", "reason": "paused by its owner until 18:00", "until": SOON},
            "box is paused by its owner until 18:00",
        ),
    ],
)
def test_a_machine_is_described_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert machines.sentence(worker(**fields)) == sentence.format(soon=machines.local_time(SOON))


def test_a_distant_time_is_shown_with_its_date() -> None:
    now = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert len(machines.local_time(now + timedelta(hours=3), now)) == len("15:00")
    assert machines.local_time(now + timedelta(days=3), now).startswith("2026-02-03 ")


def test_measurements_are_described_in_words_and_missing_ones_left_out() -> None:
    gpus = [GpuMetrics(name="RTX 4090", memory_free=20 << 30, busy=0.25), GpuMetrics(name="other")]
    full = Metrics(load=1.5, memory_free=3 << 30, disk_free=40 << 30, temperature=61.5, gpus=gpus)
    assert list(machines.measured(full)) == [
        ("load", "1.50"),
        ("memory free", "3 GiB"),
        ("disk free", "40 GiB"),
        ("temperature", "62 °C"),
        ("gpu", "RTX 4090, 25% busy, 20 GiB free"),
        ("gpu", "other"),
    ]
    assert list(machines.measured(Metrics(load=0.0))) == [("load", "0.00")]
    assert list(machines.measured(None)) == []
