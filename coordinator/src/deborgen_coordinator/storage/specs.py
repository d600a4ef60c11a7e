"""Specs, their classes (jobs with the same needs), and the steps that use them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from . import hot
from .database import DatabaseConnection
from .models import JobClass, Spec, SpecFile, Step
from .rows import StepRow, builder, columns
from .statements import Locked
from .transactions import Tx

_step = builder(StepRow)


def digest_of(needs: str) -> str:
    return hashlib.sha256(needs.encode()).hexdigest()


def find(tx: Tx, digest: str) -> tuple[int, int] | None:
    """The id of the spec with this digest, and the id of its class."""
    return tx.one(Spec.select(Spec.id, Spec.job_class).where(Spec.digest == digest))


def insert(tx: Tx, digest: str, body: bytes, needs: str, files: Iterable[str]) -> tuple[int, int]:
    """Store a spec, its class and the digests of its files, unless they are stored already; return the ids of spec and
    class."""
    _insert_once(tx, JobClass.insert(digest=digest_of(needs), needs=needs), JobClass.digest)
    class_id = tx.value(JobClass.select(JobClass.id).where(JobClass.digest == digest_of(needs)))
    _insert_once(tx, Spec.insert(digest=digest, body=body.decode(), job_class=class_id), Spec.digest)
    found = find(tx, digest)
    assert found is not None
    for file in files:
        _insert_once(tx, SpecFile.insert(spec=found[0], digest=file), SpecFile.digest, SpecFile.spec)
    return found


def _insert_once(tx: Tx, query: Any, *key: Any) -> None:
    tx.run(query.on_conflict(action="nothing", conflict_target=key))


def get(reader: Tx | DatabaseConnection, spec_id: int) -> tuple[int, bytes]:
    """The spec's class, and its body."""
    [(class_id, body)] = reader.rows(Spec.select(Spec.job_class, Spec.body).where(Spec.id == spec_id))
    return class_id, body.encode()


def needs_of_class(reader: Tx | DatabaseConnection, class_id: int) -> str:
    return str(reader.value(JobClass.select(JobClass.needs).where(JobClass.id == class_id)))


def add_step(tx: Tx, step: StepRow) -> None:
    needs = json.dumps(step.needs) if step.needs else "[]"
    numbers = (step.spec_id, step.first_index, step.last_index, step.jobs, step.unfinished, step.blockers)
    hot.add_step.run(tx, step.run, step.number, step.name, needs, *numbers)


def steps(reader: Tx | DatabaseConnection, run: int, *, lock: bool = False) -> list[StepRow]:
    query = Step.select(*columns(StepRow, Step)).where(Step.run == run).order_by(Step.number)
    return [_step(row) for row in reader.rows(Locked(query) if lock else query)]


def finish_jobs_of_only_step(tx: Tx, run: int, count: int) -> bool:
    """Note that `count` more jobs of a run without named steps have ended. Returns False if the run has named steps."""
    return hot.finish_jobs_of_only_step.run(tx, count, run) == 1


def finish_jobs_of_step(tx: Tx, run: int, number: int, count: int) -> int:
    """Note that `count` more jobs of a step have ended; return how many have not."""
    query = Step.update({Step.unfinished: Step.unfinished - count}).where(Step.run == run, Step.number == number)
    return int(tx.value(query.returning(Step.unfinished)))


def lift_blocker(tx: Tx, run: int, number: int) -> int:
    """Note that one of the steps that this step needs has succeeded; return how many have not."""
    query = Step.update({Step.blockers: Step.blockers - 1}).where(Step.run == run, Step.number == number)
    return int(tx.value(query.returning(Step.blockers)))
