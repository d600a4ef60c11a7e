"""The graph of a run's steps: boxes from left to right, with a line from each step to the steps that need it."""

from __future__ import annotations

from typing import NamedTuple

from deborgen_shared.messages import StepView

WIDTH, HEIGHT, BETWEEN_X, BETWEEN_Y = 168, 46, 56, 14
#: A graph with more boxes would say less than the table of steps.
MOST_STEPS = 80


class StepBox(NamedTuple):
    step: StepView
    x: int
    y: int
    #: `ended`, `waits` or `goes on`.
    phase: str


class StepGraph(NamedTuple):
    width: int
    height: int
    boxes: list[StepBox]
    #: The path of each line.
    lines: list[str]


def draw(steps: list[StepView]) -> StepGraph | None:
    """The places of boxes and lines; None for a run with one step, or with too many."""
    if not 1 < len(steps) <= MOST_STEPS:
        return None
    columns = _columns(steps)
    depths: dict[int, int] = {}
    boxes: dict[str, StepBox] = {}
    for step in steps:
        column = columns[str(step.id)]
        row = depths[column] = depths.get(column, -1) + 1
        phase = "waits" if step.waits else "goes on" if step.unfinished else "ended"
        boxes[str(step.id)] = StepBox(step, column * (WIDTH + BETWEEN_X), row * (HEIGHT + BETWEEN_Y), phase)
    lines = [_line(boxes[need], boxes[str(step.id)]) for step in steps for need in step.needs]
    width = max(box.x for box in boxes.values()) + WIDTH
    height = max(box.y for box in boxes.values()) + HEIGHT
    return StepGraph(width + 2, height + 2, list(boxes.values()), lines)


def _columns(steps: list[StepView]) -> dict[str, int]:
    """How many steps come one after the other before each step."""
    columns: dict[str, int] = {}
    waiting = list(steps)
    while waiting:
        ready = [step for step in waiting if all(need in columns for need in step.needs)] or waiting
        for step in ready:
            columns[str(step.id)] = max((columns.get(need, -1) + 1 for need in step.needs), default=0)
        waiting = [step for step in waiting if str(step.id) not in columns]
    return columns


def _line(start: StepBox, end: StepBox) -> str:
    x1, y1, x2, y2 = start.x + WIDTH, start.y + HEIGHT // 2, end.x, end.y + HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
