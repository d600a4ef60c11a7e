"""Specs, their classes (jobs with the same needs), and the steps that use them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from . import hot
from .database import DatabaseConnection
from .models import JobClass, Step
from .rows import StepRow, builder, columns
from .statements import Locked
from .transactions import Tx

_step = builder(StepRow)


def digest_of(needs: str) -> str:
    return hashlib.sha256(needs.encode()).hexdigest()


def find(tx: Tx, digest: str) -> tuple[int, int] | None:
    """The id of the spec with this digest, and the id of its class."""
    return hot.spec_under.one(tx, digest)


def insert(tx: Tx, digest: str, body: bytes, needs: str, files: Iterable[str]) -> tuple[int, int]:
    """Store a spec, its class and the digests of its files, if they are new; return the ids of spec and class."""
    hot.add_spec.run(tx, digest, body.decode(), _class_id(tx, needs))
    found = find(tx, digest)
    assert found is not None
    hot.add_spec_file.run_many(tx, [(found[0], file) for file in files])
    return found


def _class_id(tx: Tx, needs: str) -> int:
    """The id of the class with these needs, which is stored if it is new."""
    digest = digest_of(needs)
    known = hot.class_under.one(tx, digest)
    if known is None:
        new = JobClass.insert(digest=digest, needs=needs)
        tx.run(new.on_conflict(action="nothing", conflict_target=[JobClass.digest]))
        known = hot.class_under.one(tx, digest)
        assert known is not None
    return int(known[0])


def get(reader: Tx | DatabaseConnection, spec_id: int) -> tuple[int, bytes]:
    """The spec's class, and its body."""
    [(class_id, body)] = hot.spec_numbered.rows(reader, spec_id)
    return class_id, body.encode()


def needs_of_class(reader: Tx | DatabaseConnection, class_id: int) -> str:
    return str(hot.needs_of_class.value(reader, class_id))


def add_step(tx: Tx, step: StepRow) -> None:
    needs = json.dumps(step.needs) if step.needs else "[]"
    numbers = (step.spec_id, step.first_index, step.last_index, step.jobs, step.unfinished, step.blockers)
    hot.add_step.run(tx, step.run, step.number, step.name, needs, *numbers)


def steps(reader: Tx | DatabaseConnection, run: int, *, lock: bool = False) -> list[StepRow]:
    query = Step.select(*columns(StepRow, Step)).where(Step.run == run).order_by(Step.number)
    return [_step(row) for row in reader.rows(Locked(query) if lock else query)]


def finish_jobs_of_only_step(tx: Tx, run: int, count: int) -> bool:
    """Note that `count` more jobs of a run without named steps have ended; False if the run has named steps."""
    return hot.finish_jobs_of_only_step.run(tx, count, run) == 1


def finish_jobs_of_step(tx: Tx, run: int, number: int, count: int) -> int:
    """Note that `count` more jobs of a step have ended; return how many of its jobs have not."""
    query = Step.update({Step.unfinished: Step.unfinished - count}).where(Step.run == run, Step.number == number)
    return int(tx.value(query.returning(Step.unfinished)))


def add_jobs_to_step(tx: Tx, run: int, number: int, count: int) -> None:
    """Note that a loop has added this many jobs to a step."""
    change = {Step.jobs: Step.jobs + count, Step.unfinished: Step.unfinished + count}
    tx.run(Step.update(change).where(Step.run == run, Step.number == number))


def lift_blocker(tx: Tx, run: int, number: int) -> int:
    """Note that a step that this step needs has succeeded; return how many of the needed steps have not."""
    query = Step.update({Step.blockers: Step.blockers - 1}).where(Step.run == run, Step.number == number)
    return int(tx.value(query.returning(Step.blockers)))
