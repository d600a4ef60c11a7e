"""How this machine is doing right now: its load, memory, disk, temperature and GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from deborgen_shared.messages import MOST_GPUS, Celsius, GpuMetrics, Load, Metrics, Size
from deborgen_worker import host

#: How often the temperature is taken, and how old it may be when it is told.
TEMPERATURE_SECONDS = 30.0
TEMPERATURE_AGE = 100.0

#: The chips that measure the processor itself, by the names that Linux gives them. Of other chips nobody knows whether
#: they measure a disk, a network card or the air.
PROCESSOR_CHIPS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal", "acpitz"})


class Gauges:
    """Measures the machine. `disk_free` is of the disk that holds the folder."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._temperature: Any = None
        self._taken = 0.0

    def read(self) -> Metrics:
        """What can be measured at once, and the last temperature. It waits for nothing and raises nothing."""
        fresh = self._clock() - self._taken < TEMPERATURE_AGE
        return Metrics(
            load=_reading(Load, lambda: psutil.getloadavg()[0]),
            memory_free=_reading(Size, lambda: psutil.virtual_memory().available),
            disk_free=_reading(Size, lambda: psutil.disk_usage(str(self._folder)).free),
            temperature=self._temperature if fresh else None,
            # How much of a GPU is in use is not known yet: nvidia-smi takes too long to be asked with every heartbeat.
            gpus=[GpuMetrics(name=model[:200]) for _, model in host.gpus()[:MOST_GPUS]],
        )

    def take_temperature(self) -> float:
        """Read the slow sensors; the seconds until the next time.

        A machine has dozens of them, and a driver may ask a disk or a firmware that answers late or never. So this has
        a thread of its own, and the heartbeat tells what was found last.
        """
        self._temperature = _reading(Celsius, _processor_temperature)
        self._taken = self._clock()
        return TEMPERATURE_SECONDS


def _processor_temperature() -> float:
    chips = psutil.sensors_temperatures()
    return max(each.current for name in PROCESSOR_CHIPS & chips.keys() for each in chips[name])


def _reading(kind: Any, sensor: Callable[[], Any]) -> Any:
    """What the sensor says, or None if it fails or says what the coordinator would refuse.

    A container may lack files, a system may lack functions, and a driver may answer with anything. That costs this one
    reading, never the heartbeat.
    """
    try:
        return msgspec.convert(sensor(), kind)
    except Exception:
        return None
