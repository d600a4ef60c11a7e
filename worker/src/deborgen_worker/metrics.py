"""Metrics of this machine: its load, memory, disk, temperature and GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from deborgen_shared.messages import MOST_GPUS, Celsius, GpuMetrics, Load, Metrics, Size
from deborgen_worker import host

#: Seconds between two readings of the temperature.
TEMPERATURE_SECONDS = 30.0
#: Do not report a temperature that is older than this many seconds.
MAX_TEMPERATURE_AGE_SECONDS = 100.0

#: The chips that measure the processor itself, by their names in Linux. Other chips may measure a disk, a network card
#: or the air.
PROCESSOR_CHIPS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal", "acpitz"})


class Gauges:
    """Measures the machine. `folder` is on the disk whose free space is reported."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._temperature: Any = None
        self._taken = 0.0

    def read(self) -> Metrics:
        """The values that can be measured at once, and the last temperature. This never waits and never raises."""
        fresh = self._clock() - self._taken < MAX_TEMPERATURE_AGE_SECONDS
        return Metrics(
            load=_reading(Load, lambda: psutil.getloadavg()[0]),
            memory_free=_reading(Size, lambda: psutil.virtual_memory().available),
            disk_free=_reading(Size, lambda: psutil.disk_usage(str(self._folder)).free),
            temperature=self._temperature if fresh else None,
            # The load of a GPU is not measured yet: nvidia-smi takes too long to be called for every heartbeat.
            gpus=[GpuMetrics(name=model[:200]) for _, model in host.gpus()[:MOST_GPUS]],
        )

    def take_temperature(self) -> float:
        """Read the slow sensors. Returns the seconds until the next reading.

        A machine has dozens of sensors, and a driver may ask a disk or a firmware that answers late or never. So this
        runs in a thread of its own, and the heartbeat reports the last reading.
        """
        self._temperature = _reading(Celsius, _processor_temperature)
        self._taken = self._clock()
        return TEMPERATURE_SECONDS


def _processor_temperature() -> float:
    chips = psutil.sensors_temperatures()
    return max(each.current for name in PROCESSOR_CHIPS & chips.keys() for each in chips[name])


def _reading(kind: Any, sensor: Callable[[], Any]) -> Any:
    """The sensor's value, or None if it fails or if the coordinator would refuse the value.

    A container may lack files, a system may lack functions, and a driver may return anything. Then only this reading is
    missing, and the heartbeat is still sent.
    """
    try:
        return msgspec.convert(sensor(), kind)
    except Exception:
        return None
