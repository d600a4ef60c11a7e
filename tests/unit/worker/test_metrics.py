"""Metrics of the machine: what can be measured is reported, and a failing sensor affects nothing else."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from deborgen_shared.messages import MOST_GPUS, Metrics
from deborgen_worker import host
from deborgen_worker.metrics import MAX_TEMPERATURE_AGE_SECONDS, Gauges
from support.clock import FakeClock

Reading = namedtuple("Reading", "label current high critical")


def chips(**temperatures: list[float]) -> Callable[[], dict[str, list[Reading]]]:
    """What psutil returns on a machine with these chips."""
    found = {name: [Reading("", each, None, None) for each in values] for name, values in temperatures.items()}
    return lambda: found


@pytest.fixture
def gauges(tmp_path: Path) -> Gauges:
    return Gauges(tmp_path)


def test_this_machine_reports_its_load_memory_and_disk(gauges: Gauges, tmp_path: Path) -> None:
    gauges.take_temperature()
    found = gauges.read()
    assert found.load is not None
    assert found.memory_free is not None
    assert found.disk_free is not None
    assert 0 < found.memory_free <= psutil.virtual_memory().total
    assert 0 < found.disk_free <= psutil.disk_usage(str(tmp_path)).total
    assert msgspec.json.decode(msgspec.json.encode(found), type=Metrics) == found, "the coordinator accepts it"


@pytest.mark.parametrize(
    ("sensor", "field"), [("getloadavg", "load"), ("virtual_memory", "memory_free"), ("disk_usage", "disk_free")]
)
def test_a_failing_sensor_is_left_out_and_the_others_are_reported(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch, sensor: str, field: str
) -> None:
    """Seen to fail when only the errors of the operating system are expected."""
    before = {name for name in ("load", "memory_free", "disk_free") if getattr(gauges.read(), name) is not None}

    def broken(*_arguments: Any) -> Any:
        raise RuntimeError("no such sensor")

    monkeypatch.setattr(psutil, sensor, broken)
    found = gauges.read()
    assert getattr(found, field) is None
    assert {name for name in before if getattr(found, name) is not None} == before - {field}


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0, 1e300, "high", None])
def test_nonsense_is_left_out_because_the_coordinator_would_refuse_it(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch, nonsense: Any
) -> None:
    monkeypatch.setattr(psutil, "getloadavg", lambda: (nonsense, 0, 0))
    assert gauges.read().load is None


def test_the_temperature_is_that_of_the_hottest_part_of_the_processor(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "sensors_temperatures", chips(coretemp=[48.0, 61.5, 50.0], nvme=[70.0]), raising=False)
    gauges.take_temperature()
    assert gauges.read().temperature == 61.5


@pytest.mark.parametrize("found", [{}, {"nvme": [40.0]}, {"coretemp": []}, {"k10temp": [math.nan]}])
def test_a_machine_without_a_processor_sensor_reports_no_temperature(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch, found: dict[str, list[float]]
) -> None:
    monkeypatch.setattr(psutil, "sensors_temperatures", chips(**found), raising=False)
    gauges.take_temperature()
    assert gauges.read().temperature is None


def test_a_system_without_sensors_reports_no_temperature(gauges: Gauges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil, "sensors_temperatures", raising=False)
    gauges.take_temperature()
    assert gauges.read().temperature is None


def test_the_heartbeat_never_waits_for_a_temperature_and_reports_no_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    gauges = Gauges(tmp_path, clock.steady)
    calls: list[str] = []

    def sensors() -> dict[str, list[Reading]]:
        calls.append("asked")
        return chips(coretemp=[50.0])()

    monkeypatch.setattr(psutil, "sensors_temperatures", sensors, raising=False)
    assert (gauges.read().temperature, calls) == (None, [])
    gauges.take_temperature()
    assert [gauges.read().temperature for _ in range(3)] == [50.0] * 3
    assert calls == ["asked"]
    clock.pass_by(MAX_TEMPERATURE_AGE_SECONDS)
    assert gauges.read().temperature is None, "a sensor that hangs must not show an old temperature forever"


def test_at_most_as_many_gpus_are_listed_as_a_message_may_carry(
    gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "gpus", lambda: tuple((f"nvidia.com/gpu={n}", "RTX " * 100) for n in range(100)))
    found = gauges.read()
    assert len(found.gpus) == MOST_GPUS
    assert (found.gpus[0].memory_free, found.gpus[0].busy) == (None, None)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Metrics) == found
