"""Where a job stands in a loop, and which job follows it. Everything here is pure.

Each round of a loop is a job of work and then a check. A loop has at most `most` rounds. A retry that goes on where an
earlier run stopped keeps counting rounds: if that run had used up its rounds, there are `most` further ones.
"""

from __future__ import annotations

from typing import NamedTuple

from deborgen_shared.states import Phase


class Place(NamedTuple):
    """Where a job stands in a loop. `point` is the id of the first job of this loop in the run."""

    point: int
    round: int
    phase: Phase


def is_last_round(number: int, most: int) -> bool:
    """Whether a loop ends with this round, even if its check says no."""
    return number % most == 0


def following(place: Place, verified: bool | None) -> Place | None:
    """The job that is due after a job that has succeeded; None if the loop is complete.

    `verified` is the answer of a check; it is None for a job of work.
    """
    if place.phase is Phase.WORK:
        return place._replace(phase=Phase.VERIFY)
    return None if verified else Place(place.point, place.round + 1, Phase.WORK)
