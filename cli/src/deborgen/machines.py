"""Describes a machine of the pool in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from deborgen import output
from deborgen_shared.messages import Metrics, Worker


def availability(worker: Worker) -> str:
    """Whether the worker can take a job, in one word. A coordinator of release 0.1 reports only the worker's state."""
    return worker.availability or worker.state


def why(worker: Worker) -> str:
    """The reason for the worker's availability. Says until when it applies, if known and not already in the reason."""
    if worker.until is None or " until " in worker.reason:
        return worker.reason
    until = f"until {local_time(worker.until)}"
    return f"{worker.reason}, {until}" if worker.reason else until


def troubles(worker: Worker) -> list[str]:
    """The images that the worker could not get, and the workspaces that it could not prepare."""
    return [f"{each.reason} ({output.age(each.at)})" for each in worker.troubles]


def sentence(worker: Worker) -> str:
    """One sentence: `box is paused by its owner until 18:00`, or `box is closed: only 200 MiB of disk are free`."""
    word, reason = availability(worker), why(worker)
    if not reason or reason.startswith(word):
        return f"{worker.name} is {reason or word}"
    return f"{worker.name} is {word}: {reason}"


def local_time(moment: datetime, now: datetime | None = None) -> str:
    """The local time of day, with the date unless it is less than twelve hours away."""
    away = abs((moment - (now or datetime.now(UTC))).total_seconds())
    return moment.astimezone().strftime("%H:%M" if away < 43200 else "%Y-%m-%d %H:%M")


def measured(metrics: Metrics | None) -> Iterator[tuple[str, str]]:
    """The machine's measurements in words for people. Values that it could not measure are left out."""
    if metrics is None:
        return
    if metrics.load is not None:
        yield "load", f"{metrics.load:.2f}"
    if metrics.memory_free is not None:
        yield "memory free", output.size(metrics.memory_free)
    if metrics.disk_free is not None:
        yield "disk free", output.size(metrics.disk_free)
    if metrics.temperature is not None:
        yield "temperature", f"{metrics.temperature:.0f} °C"
    for gpu in metrics.gpus:
        parts = [gpu.name]
        if gpu.busy is not None:
            parts.append(f"{gpu.busy:.0%} busy")
        if gpu.memory_free is not None:
            parts.append(f"{output.size(gpu.memory_free)} free")
        yield "gpu", ", ".join(parts)
