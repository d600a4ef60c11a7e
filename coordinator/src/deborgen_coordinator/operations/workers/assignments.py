"""Assignments: a job as its worker receives it, with its templates filled in and its input files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from deborgen_shared.jobfile.paths import INPUTS
from deborgen_shared.jobfile.template import render
from deborgen_shared.messages import Assignment, Input

from ... import ids
from ...storage import blobs, jobs, runs, specs
from ...storage.rows import RunRow, StepRow
from ...storage.transactions import Tx
from ..attempts import checkpoints
from ..attempts.pins import commit_for
from ..images import pool_image, push_target, step_images
from ..secrets import registry_credentials, secret_values
from ..spec_cache import CachedSpec
from ..work import Work

#: The assignments of one claim take roughly this many bytes at most, unless a single one takes more.
CLAIM_BYTES = 8 * 2**20
#: What the other fields of an assignment take as JSON.
_BYTES_AROUND = 1_000
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Picked(NamedTuple):
    """A job that was chosen for a claim, and the number of its new attempt."""

    job: int
    number: int
    step: int
    spec_id: int
    params: str


def expiry(work: Work) -> datetime:
    """The end, on the wall clock, of a lease that is granted now, to show to people."""
    return datetime.fromtimestamp(work.now + work.ctx.settings.lease_seconds, UTC)


def find_owners(tx: Tx, picked: list[Picked]) -> dict[int, RunRow]:
    """The runs of the picked jobs, by number."""
    return runs.get_many(tx, {ids.run_of(each.job) for each in picked}) if picked else {}


def assign(
    work: Work, picked: list[Picked], owners: dict[int, RunRow], read: dict[int, CachedSpec], most: int | None = None
) -> list[Assignment]:
    """The assignments for the picked jobs, or for the first of them if all together take more than `most` bytes.

    Specs that are not cached are read and added to `read`.
    """
    expires = expiry(work)
    #: The inputs of each step's jobs, and their size.
    found: dict[tuple[int, int], tuple[list[Input], int]] = {}
    assignments: list[Assignment] = []
    size = 0
    for each in picked:
        spec = work.ctx.spec_cache.spec(work.tx, each.spec_id, read)
        owner = owners[ids.run_of(each.job)]
        if (owner.id, each.step) not in found:
            inputs = _inputs(work.tx, owner, each.step) if owner.steps > 1 or owner.retry_of is not None else []
            found[owner.id, each.step] = inputs, len(_encode(inputs))
        inputs, inputs_size = found[owner.id, each.step]
        assignment = _assignment(work, each, spec, owner, inputs)
        assignment.lease_expires_at = expires
        size += _size(assignment, each, spec) + inputs_size
        if spec.job.checkpoint is not None:
            assignment.checkpoint = checkpoints.last(work.tx, each.job)
            size += len(_encode(assignment.checkpoint))
        if most is not None and size > most and assignments:
            break
        assignments.append(assignment)
    return assignments


def _size(assignment: Assignment, picked: Picked, spec: CachedSpec) -> int:
    """Roughly how many bytes the assignment takes as JSON, without its inputs."""
    own = len(spec.raw) if spec.plain is None else len(_encode(assignment.spec))
    return own + len(picked.params) + _BYTES_AROUND


def _assignment(work: Work, picked: Picked, spec: CachedSpec, owner: RunRow, inputs: list[Input]) -> Assignment:
    job, number, params = picked.job, picked.number, picked.params
    name, values = ids.name(job), _decode(params)
    body: Any = spec.raw
    if spec.plain is not None:
        context = {"run.id": str(owner.id), "job.id": name, "job.index": str(ids.index_of(job)), "attempt": str(number)}
        body = render(spec.plain, values, context | step_images(work.tx, owner, spec.plain))
    image = spec.job.image if spec.plain is None else body.get("image")
    found, push = pool_image(work.ctx, work.tx, image), push_target(work.ctx, spec.job.build)
    secrets: dict[str, str] = {}
    if spec.job.all_secrets:
        secrets = secret_values(work, runs.submitter_id(work.tx, owner.submitter), spec.job.all_secrets)
    if push is not None or (found is not None and found.url is not None):
        secrets |= registry_credentials(work)
    return Assignment(
        attempt=ids.attempt_name(job, number),
        job=name,
        number=number,
        spec=body,
        params=values,
        inputs=inputs,
        secrets=secrets,
        timeout_seconds=spec.job.timeout,
        lease_seconds=work.ctx.settings.lease_seconds,
        name=spec.job.name,
        submitter=owner.submitter,
        commit=commit_for(work, owner.id, spec.job),
        pool_image=found,
        push=push,
    )


def _inputs(tx: Tx, owner: RunRow, number: int) -> list[Input]:
    """The artifacts of the steps that this step needs. If a job of such a step was not retried, its artifacts come from
    the earlier run."""
    steps = {step.number: step for step in specs.steps(tx, owner.id)}
    found: list[Input] = []
    for need in steps[number].needs:
        by_index: dict[tuple[int, str], Input] = {}
        retried: set[int] = set()
        lineage: RunRow | None = owner
        is_sweep = False
        while lineage is not None:
            for step in specs.steps(tx, lineage.id):
                if step.name == need:
                    is_sweep = is_sweep or step.last_index > step.first_index
                    _collect(tx, step, by_index, retried)
            lineage = runs.get_existing(tx, lineage.retry_of) if lineage.retry_of is not None else None
        for (index, path), made in sorted(by_index.items()):
            made.target = f"{INPUTS}/{need}/{index}/{path}" if is_sweep else f"{INPUTS}/{need}/{path}"
            found.append(made)
    return found


def _collect(tx: Tx, step: StepRow, by_index: dict[tuple[int, str], Input], retried: set[int]) -> None:
    """Collect the artifacts of a step's jobs, except jobs that a later run has `retried`."""
    first, last = ids.key(step.run, step.first_index), ids.key(step.run, step.last_index)
    for job, path, digest, size in blobs.artifacts_of_span(tx, first, last):
        index = ids.index_of(job)
        if index not in retried:
            made = Input(step=step.name or "", job=ids.name(job), path=path, target="", sha256=digest, size=size)
            by_index[index, path] = made
    retried.update(ids.index_of(job) for job in jobs.ids_in_span(tx, first, last))
