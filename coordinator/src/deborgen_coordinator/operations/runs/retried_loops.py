"""Which loops of a run are retried, and where each begins again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from msgspec.structs import replace

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import FIRST_ROUND, Rounds
from deborgen_shared.states import Phase, State

from ... import ids
from ...loops import Place, following
from ...storage import rounds, runs, specs
from ...storage.rows import JobRow, RunRow
from ...storage.transactions import Tx
from ..rounds import find_work, lineage


def one_per_loop(rows: Iterable[JobRow]) -> list[JobRow]:
    """The jobs of a run, with the jobs of each loop as one: the first of them, in the state of the last."""
    return [
        loop[0] if loop[0].point is None else replace(loop[0], state=loop[-1].state) for loop in _loops(rows).values()
    ]


def _loops(rows: Iterable[JobRow]) -> dict[int, list[JobRow]]:
    """The jobs of each loop in their order, by the id of the first of them. A job that is in no loop is alone."""

    def first(row: JobRow) -> int:
        return row.point or row.id

    # A loop has one unfinished job at most, so the order of the ids is the order of the rounds.
    ordered = sorted(rows, key=lambda row: (first(row), row.id))
    return {point: list(jobs) for point, jobs in groupby(ordered, key=first)}


def places(tx: Tx, old: RunRow, rows: Iterable[JobRow], chosen: Iterable[JobRow], which: Rounds) -> list[Place]:
    """Where the chosen loops of a run begin again; `rows` are all jobs of that run, and `point` is still the old one.

    Refuses if the artifacts with which a loop would go on have been removed.
    """
    loops = _loops(rows)
    found = []
    for row in chosen:
        if row.point is not None:
            place = Place(row.point, 1, Phase.WORK)
            if which != FIRST_ROUND:
                place = _due(loops[row.point])
                _check_artifacts(tx, old, loops[row.point], place)
            found.append(place)
    return found


def _due(loop: list[JobRow]) -> Place:
    """The job that is due after the newest work that has succeeded, and after the answer of its check, if it has one.

    A run that is itself a retry may have no such work: then its first job is due again.
    """
    worked = [row for row in loop if row.phase is Phase.WORK and row.state is State.SUCCEEDED]
    newest = _place(worked[-1] if worked else loop[0])
    checks = [row for row in loop if row.phase is Phase.VERIFY and row.round == newest.round]
    if checks and checks[-1].verified is False:
        return following(_place(checks[-1]), verified=False) or newest
    return (following(newest, None) or newest) if worked else newest


def _place(row: JobRow) -> Place:
    assert row.place is not None
    return row.place


def _check_artifacts(tx: Tx, old: RunRow, loop: list[JobRow], place: Place) -> None:
    """Refuse if the work with which the loop goes on was done in a run whose artifacts have been removed."""
    needed = place.round if place.phase is Phase.VERIFY else place.round - 1
    here = any(row.phase is Phase.WORK and row.round == needed for row in loop)
    job = ids.key(old.id, 1) if here else find_work(tx, old, place._replace(round=needed)) if needed else None
    if job is not None and runs.is_pruned(tx, ids.run_of(job)):
        raise Refusal(
            Code.INVALID_TRANSITION,
            f"the artifacts of run {ids.run_of(job)} have been removed, so its loops cannot go on",
            f"begin again with rounds={FIRST_ROUND}",
        )


def begin(tx: Tx, new: RunRow, old: RunRow, found: list[Place]) -> None:
    """Let the loops of the new run begin at these places. The jobs that they add get numbers that no job of the first
    run was submitted with, so 43.7 is still the retry of 42.7."""
    if found:
        rounds.place(tx, [place._replace(point=ids.key(new.id, ids.index_of(place.point))) for place in found])


def next_index(tx: Tx, old: RunRow, found: list[Place]) -> int:
    """The index of the next job that a loop adds to the retry."""
    if not found:
        return 0
    *_, first = lineage(tx, old)
    return 1 + max(step.last_index for step in specs.steps(tx, first.id))
