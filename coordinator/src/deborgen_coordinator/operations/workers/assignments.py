"""Assignments: a job as its worker receives it, with its templates filled in and its input files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from deborgen_shared.jobfile.template import render
from deborgen_shared.messages import Assignment, Input
from deborgen_shared.states import Phase

from ... import ids
from ...loops import Place
from ...storage import rounds, runs
from ...storage.rows import RunRow
from ...storage.transactions import Tx
from ..attempts import checkpoints
from ..attempts.pins import commit_for
from ..images import pool_image, push_target, step_images
from ..secrets import registry_credentials, secret_values
from ..spec_cache import CachedSpec
from ..work import Work
from .inputs import of_needed_steps, of_round

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
            inputs = of_needed_steps(work, owner, each.step) if owner.steps > 1 or owner.retry_of is not None else []
            found[owner.id, each.step] = inputs, len(_encode(inputs))
        inputs, inputs_size = found[owner.id, each.step]
        place = rounds.place_of(work.tx, each.job) if spec.job.repeat else None
        assignment = _assignment(work, each, spec, owner, place)
        assignment.lease_expires_at = expires
        of_loop = of_round(work.tx, owner, spec.job, place) if place is not None else []
        assignment.inputs = [*inputs, *of_loop] if of_loop else inputs
        size += _size(assignment, each, spec) + inputs_size + (len(_encode(of_loop)) if of_loop else 0)
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


def _assignment(work: Work, picked: Picked, spec: CachedSpec, owner: RunRow, place: Place | None) -> Assignment:
    """The assignment of a job, which stands at this place of a loop, without its inputs."""
    job, number, params = picked.job, picked.number, picked.params
    name, values = ids.name(job), _decode(params)
    body: Any = spec.raw
    plain = spec.plain
    if place is not None and place.phase is Phase.VERIFY:
        body = plain = check_of(spec)
    if plain is not None:
        context = {"run.id": str(owner.id), "job.id": name, "job.index": str(ids.index_of(job)), "attempt": str(number)}
        body = render(plain, values, context | step_images(work.tx, owner, plain))
    image = spec.job.image if plain is None else body.get("image")
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
        inputs=[],
        secrets=secrets,
        timeout_seconds=spec.job.timeout,
        lease_seconds=work.ctx.settings.lease_seconds,
        name=spec.job.name,
        submitter=owner.submitter,
        traceparent=UNSET if owner.traceparent is None else owner.traceparent,
        commit=commit_for(work, owner.id, spec.job),
        pool_image=found,
        push=push,
        phase=place.phase if place else None,
        round=place.round if place else None,
    )


def check_of(spec: CachedSpec) -> dict[str, Any]:
    """The specification of a loop's check: the same job, with the script of the check, and without artifacts."""
    assert spec.job.repeat is not None
    plain: dict[str, Any] = _decode(spec.raw)
    for key in ("artifacts", "result", "checkpoint"):
        plain.pop(key, None)
    return plain | {"run": plain["repeat"]["until"]}
