"""What infrastructure failures mean for the machine on which they happened, and whose fault they are.

A machine that fails several times in a row gets one job at a time, with pauses, until a program runs there to its end,
no matter whose fault the failures are. It rests for longer only for failures that are its own. A *subject* is what an
attempt needs of a machine before its program can run: its image, or its workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from deborgen_shared.states import Cause

#: After this many infrastructure failures in a row, a machine gets one job at a time.
FAILURES_BEFORE_PROBATION = 5
#: A machine that gets one job at a time pauses for this many seconds before the next one; at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
#: After this many failures in a row that are its own, a machine rests for this many seconds; at first, and at most.
FAILURES_BEFORE_REST = 5
FIRST_REST, LONGEST_REST = 600.0, 86_400.0
#: After a failure with a subject, other machines come first for this many seconds; at first, and at most.
FIRST_AVOID, LONGEST_AVOID = 60.0, 3_600.0
#: Remember at most this many failures of a machine.
MOST_REMEMBERED = 20

#: A registry, or the machine's owner, has given an answer. The job file may be wrong, and nothing is wrong with the
#: machine.
ANSWERED = frozenset({Cause.IMAGE_UNKNOWN, Cause.IMAGE_REFUSED, Cause.IMAGE_NOT_ALLOWED})
_IMAGE = "image "


class Failure(NamedTuple):
    """An infrastructure failure. `kind` is its cause, or its outcome if the worker did not name a cause."""

    subject: str
    submitter: int
    kind: str


class MachinePause(NamedTuple):
    """A machine gets no job for this many seconds. A `rest` is for failures of its own."""

    seconds: float
    rest: bool = False


def image_subject(image: str) -> str:
    return _IMAGE + image


def workspace_subject(spec_id: int | None) -> str:
    """The workspace of a spec that brings files along; None stands for the empty workspace."""
    return f"workspace {spec_id}" if spec_id is not None else "workspace"


def image_of(subject: str) -> str:
    """The image, if the subject is one; otherwise empty."""
    return subject.removeprefix(_IMAGE) if subject.startswith(_IMAGE) else ""


def on_probation(failures: int) -> bool:
    """Whether a machine with this many infrastructure failures in a row gets only one job at a time."""
    return failures >= FAILURES_BEFORE_PROBATION


def count_own_failures(failures: Sequence[Failure], works_elsewhere: Callable[[str], bool]) -> int:
    """How many of these failures are the machine's own.

    A failure is its own if the same image or workspace worked on another machine. If jobs of two people failed on it
    for different reasons, these failures are its own too, even if the same jobs failed on other machines.
    """
    unclear = [failure for failure in failures if failure.kind not in ANSWERED]
    hit_two_people = any(a.submitter != b.submitter and a.kind != b.kind for a in unclear for b in unclear)
    return sum(
        (hit_two_people and failure in unclear)
        or (failure.kind != Cause.IMAGE_NOT_ALLOWED and works_elsewhere(failure.subject))
        for failure in failures
    )


def pause_after(failures: int, own: int, rests: int) -> MachinePause:
    """The pause of a machine after this many failures in a row, of which `own` are its own, and after this many
    rests."""
    if not on_probation(failures):
        return MachinePause(0.0)
    if own >= FAILURES_BEFORE_REST:
        return MachinePause(min(LONGEST_REST, _doubled(FIRST_REST, rests)), rest=True)
    return MachinePause(min(LONGEST_PAUSE, _doubled(FIRST_PAUSE, failures - FAILURES_BEFORE_PROBATION)))


def avoid_seconds(failures: int) -> float:
    """For how many seconds other machines come first, after this many failures in a row with the same subject."""
    return min(LONGEST_AVOID, _doubled(FIRST_AVOID, failures - 1))


def _doubled(seconds: float, times: int) -> float:
    return seconds * 2.0 ** min(times, 32)  # a float overflows at 2 to the power of 1024
