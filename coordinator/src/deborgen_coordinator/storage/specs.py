"""Rows of specs, of the classes of needs that they fall into, and of the steps that use them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .database import Connection, Row
from .rows import SpecRow, StepRow
from .transactions import Tx

STEP_COLUMNS = "run_id, number, name, needs, spec_id, first_index, last_index, jobs, unfinished, blockers"


def find(tx: Tx, digest: str) -> tuple[int, int] | None:
    """The spec of that digest, and its class."""
    return tx.one("SELECT id, class_id FROM spec WHERE digest = ?", (digest,))


def insert(tx: Tx, digest: str, body: bytes, needs: str, files: Iterable[str]) -> tuple[int, int]:
    """A new spec, stored once whoever submits it; its id and its class."""
    tx.run("INSERT INTO class (needs) VALUES (?) ON CONFLICT DO NOTHING", (needs,))
    row = tx.one("SELECT id FROM class WHERE needs = ?", (needs,))
    assert row is not None
    tx.run(
        "INSERT INTO spec (digest, body, class_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (digest, body.decode(), row[0]),
    )
    found = find(tx, digest)
    assert found is not None
    tx.many(
        "INSERT INTO spec_file (spec_id, digest) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(found[0], file) for file in files],
    )
    return found


def get(reader: Tx | Connection, spec_id: int) -> SpecRow:
    row = reader.one("SELECT id, body, class_id FROM spec WHERE id = ?", (spec_id,))
    assert row is not None
    return SpecRow(row[0], row[1].encode(), row[2])


def needs_of_class(reader: Tx | Connection, class_id: int) -> str:
    row = reader.one("SELECT needs FROM class WHERE id = ?", (class_id,))
    assert row is not None
    return str(row[0])


def add_step(tx: Tx, step: StepRow) -> None:
    tx.run(
        f"INSERT INTO step ({STEP_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            step.run,
            step.number,
            step.name,
            json.dumps(step.needs) if step.needs else "[]",
            step.spec_id,
            step.first_index,
            step.last_index,
            step.jobs,
            step.unfinished,
            step.blockers,
        ),
    )


def steps(reader: Tx | Connection, run: int, *, lock: bool = False) -> list[StepRow]:
    sql = f"SELECT {STEP_COLUMNS} FROM step WHERE run_id = ? ORDER BY number"
    if lock and isinstance(reader, Tx):
        sql += reader.for_update
    return [_step(row) for row in reader.rows(sql, (run,))]


def _step(row: Row) -> StepRow:
    values = list(row)
    values[3] = json.loads(row[3])
    return StepRow(*values)


def finish_jobs_of_only_step(tx: Tx, run: int, count: int) -> bool:
    """Count jobs as ended in a run without named steps, where nothing can need them; False if the run has some."""
    sql = "UPDATE step SET unfinished = unfinished - ? WHERE run_id = ? AND number = 1 AND name IS NULL"
    return tx.run(sql, (count, run)) == 1


def finish_jobs_of_step(tx: Tx, run: int, number: int, count: int) -> int:
    """Count jobs of a step as ended; how many are still to go."""
    row = tx.one(
        "UPDATE step SET unfinished = unfinished - ? WHERE run_id = ? AND number = ? RETURNING unfinished",
        (count, run, number),
    )
    assert row is not None
    return int(row[0])


def lift_blocker(tx: Tx, run: int, number: int) -> int:
    """One step that this one needs is through; how many are still to go."""
    row = tx.one(
        "UPDATE step SET blockers = blockers - 1 WHERE run_id = ? AND number = ? RETURNING blockers", (run, number)
    )
    assert row is not None
    return int(row[0])
