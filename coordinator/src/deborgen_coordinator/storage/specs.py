"""Rows of specs, of the classes of needs that they fall into, and of the steps that use them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .database import Connection, insert_into
from .rows import StepRow, builder, columns
from .transactions import Tx

STEP_COLUMNS = columns(StepRow, run="run_id")
STEPS = f"SELECT {', '.join(STEP_COLUMNS)} FROM step WHERE run_id = ? ORDER BY number"
ADD_STEP = insert_into("step", STEP_COLUMNS)
_step = builder(StepRow)


def find(tx: Tx, digest: str) -> tuple[int, int] | None:
    """The spec of that digest, and its class."""
    return tx.one("SELECT id, class_id FROM spec WHERE digest = ?", (digest,))


def insert(tx: Tx, digest: str, body: bytes, needs: str, files: Iterable[str]) -> tuple[int, int]:
    """A new spec, stored once whoever submits it; its id and its class."""
    tx.run("INSERT INTO class (needs) VALUES (?) ON CONFLICT DO NOTHING", (needs,))
    class_id = tx.value("SELECT id FROM class WHERE needs = ?", (needs,))
    tx.run(
        "INSERT INTO spec (digest, body, class_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (digest, body.decode(), class_id),
    )
    found = find(tx, digest)
    assert found is not None
    tx.many(
        "INSERT INTO spec_file (spec_id, digest) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(found[0], file) for file in files],
    )
    return found


def get(reader: Tx | Connection, spec_id: int) -> tuple[int, bytes]:
    """The spec's class, and its body."""
    class_id, body = reader.rows("SELECT class_id, body FROM spec WHERE id = ?", (spec_id,))[0]
    return class_id, body.encode()


def needs_of_class(reader: Tx | Connection, class_id: int) -> str:
    return str(reader.value("SELECT needs FROM class WHERE id = ?", (class_id,)))


def add_step(tx: Tx, step: StepRow) -> None:
    needs = json.dumps(step.needs) if step.needs else "[]"
    numbers = (step.spec_id, step.first_index, step.last_index, step.jobs, step.unfinished, step.blockers)
    tx.run(ADD_STEP, (step.run, step.number, step.name, needs, *numbers))


def steps(reader: Tx | Connection, run: int, *, lock: bool = False) -> list[StepRow]:
    held = reader.for_update if lock else ""
    return [_step(row) for row in reader.rows(STEPS + held, (run,))]


def finish_jobs_of_only_step(tx: Tx, run: int, count: int) -> bool:
    """Count jobs as ended in a run without named steps, where nothing can need them; False if the run has some."""
    sql = "UPDATE step SET unfinished = unfinished - ? WHERE run_id = ? AND number = 1 AND name IS NULL"
    return tx.run(sql, (count, run)) == 1


def finish_jobs_of_step(tx: Tx, run: int, number: int, count: int) -> int:
    """Count jobs of a step as ended; how many are still to go."""
    sql = "UPDATE step SET unfinished = unfinished - ? WHERE run_id = ? AND number = ? RETURNING unfinished"
    return int(tx.value(sql, (count, run, number)))


def lift_blocker(tx: Tx, run: int, number: int) -> int:
    """One step that this one needs is through; how many are still to go."""
    sql = "UPDATE step SET blockers = blockers - 1 WHERE run_id = ? AND number = ? RETURNING blockers"
    return int(tx.value(sql, (run, number)))
