"""Submit a job file: it becomes a run with its jobs, in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.model import JobFile, JobSpec, Step
from deborgen_shared.jobfile.problems import JobFileInvalid, Problem
from deborgen_shared.jobfile.reading import parse
from deborgen_shared.messages import Checked, Origin, Run
from deborgen_shared.states import Phase, State

from ... import ids
from ...loops import Place
from ...storage import blobs, events, jobs, pins, rounds, runs, specs
from ...storage.rows import RunRow, StepRow
from ...storage.transactions import Tx
from .. import views
from ..attempts.pins import known_pins, without_commit, workspace_of
from ..context import Actor, Context
from ..images import pin_images
from ..secrets import secret_problems
from ..work import About, Work
from .images import image_problems

_encode = msgspec.json.Encoder().encode

#: If a run has at least this many jobs, they are inserted as a stream.
LARGE = 50


@dataclass(frozen=True, slots=True)
class Planned:
    """A step of the job file, with its spec in the form in which it is stored."""

    step: Step
    body: bytes
    digest: str
    needs: str


class RunSource(NamedTuple):
    """What a submission says about where it came from: a bridge, and the trace that it belongs to."""

    origin: Origin | None = None
    traceparent: str | None = None


UNKNOWN_SOURCE = RunSource()


class NewRun(NamedTuple):
    """What a new run is made of."""

    jobfile: JobFile
    planned: list[Planned]
    submitter: int
    warnings: list[str]
    source: RunSource


def submit(
    ctx: Context,
    actor: Actor,
    document: object,
    idempotency_key: str | None,
    body_digest: str,
    source: RunSource = UNKNOWN_SOURCE,
) -> tuple[Run, bool]:
    """The run, and whether it is new: a repeat with the same key gets the run that the first call created."""
    jobfile, pinned = _check(ctx, actor, document)
    planned = [_plan(ctx, step, pinned) for step in jobfile.steps]
    warnings = _warnings(ctx, planned)
    submitter = 0
    stored: dict[str, tuple[int, int]] = {}

    def insert(work: Work) -> tuple[RunRow, bool]:
        nonlocal submitter
        stored.clear()  # if this function runs a second time, its earlier changes were undone
        submitter = ctx.spec_cache.submitters.get(actor.name) or runs.submitter_id(work.tx, actor.name)
        return create_once(work.tx, submitter, idempotency_key, body_digest, lambda: make(work))

    def make(work: Work) -> RunRow:
        for plan in planned:
            stored[plan.digest] = ctx.spec_cache.stored.get(plan.digest) or store_spec(work.tx, plan)
        return _insert(work, NewRun(jobfile, planned, submitter, warnings, source), stored)

    row, created = ctx.work(actor, insert)
    ctx.spec_cache.keep_submission(actor.name, submitter, stored)
    return views.run(row), created


def check(ctx: Context, actor: Actor, document: object) -> Checked:
    """Check a document as a submit would. Nothing is stored, and its files need not be uploaded yet."""
    jobfile, pinned = _check(ctx, actor, document)
    return Checked(jobs=jobfile.count, warnings=_warnings(ctx, [_plan(ctx, step, pinned) for step in jobfile.steps]))


def _check(ctx: Context, actor: Actor, document: object) -> tuple[JobFile, dict[str, str]]:
    """The job file, and the images of the pool that it names, each with its id."""
    try:
        jobfile = parse(
            document,
            wire=True,
            max_jobs=min(ctx.settings.max_jobs_per_run, ids.MOST_JOBS),
            default_max_attempts=ctx.settings.default_max_attempts,
        )
    except JobFileInvalid as invalid:
        raise refusal(invalid.problems) from None
    pinned, unknown = pin_images(ctx, document, jobfile)
    refused = jobfile.not_yet or [
        *unknown,
        *image_problems(jobfile, ctx.settings.registries),
        *secret_problems(ctx, actor, document, jobfile),
    ]
    if refused:
        raise refusal(refused)
    return jobfile, pinned


def refusal(problems: list[Problem], hint: str = "nothing was submitted") -> Refusal:
    """All problems of a job file, in one answer."""
    count = len(problems)
    listed = [{"path": p.path_text, "message": p.message, "hint": p.hint} for p in problems[:100]]
    first = f"{problems[0].path_text}: {problems[0].message}" if problems[0].path else problems[0].message
    more = f" (and {count - 1} more)" if count > 1 else ""
    return Refusal(
        Code.INVALID_JOB,
        f"the job file is not valid: {first}{more}",
        problems[0].hint or hint,
        details={"problems": listed},
    )


def _plan(ctx: Context, step: Step, pinned: dict[str, str]) -> Planned:
    spec: JobSpec = without_commit(step.spec)
    if spec.image in pinned:
        spec = msgspec.structs.replace(spec, image=pinned[spec.image])
    elif spec.image is None and spec.build is None and ctx.settings.default_image:
        spec = msgspec.structs.replace(spec, image=ctx.settings.default_image)
    if spec.watchdog is None and ctx.settings.default_watchdog:
        spec = msgspec.structs.replace(spec, watchdog=ctx.settings.default_watchdog)
    body = _encode(spec)
    return Planned(step, body, hashlib.sha256(body).hexdigest(), spec.needs_key())


def _warnings(ctx: Context, planned: list[Planned]) -> list[str]:
    found: list[str] = []
    for plan in planned:
        warning = ctx.worker_fit.warning(plan.needs)
        if warning:
            found.append(f"step '{plan.step.id}': {warning}" if plan.step.id else warning)
    return found


def create_once(
    tx: Tx, submitter: int, key: str | None, body_digest: str, make: Callable[[], RunRow]
) -> tuple[RunRow, bool]:
    """The run under this idempotency key, and whether this call created it. Without a key, every call creates a run."""
    before = runs.submission(tx, submitter, key) if key is not None else None
    if before is not None:
        return find_repeated(tx, before, body_digest), False
    row = make()
    if key is not None:
        remember(tx, submitter, key, body_digest, row.id)
    return row, True


def find_repeated(tx: Tx, before: tuple[str, int], body_digest: str) -> RunRow:
    """The run of an earlier submission with the same key. A different body is refused."""
    digest, run = before
    if digest != body_digest:
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"this idempotency key was used for another request, which became run {run}",
            "use a new key for each submission",
            details={"run": run},
        )
    row = runs.get(tx, run)
    assert row is not None
    return row


def remember(tx: Tx, submitter: int, key: str, body_digest: str, run: int) -> None:
    """Store the run under the key. If another process has just used the key, refuse, which undoes this run."""
    if not runs.remember_submission(tx, submitter, key, body_digest, run):
        raise Refusal(Code.UNAVAILABLE, "the same submission is being processed right now", "send it again")


def store_spec(tx: Tx, plan: Planned) -> tuple[int, int]:
    """The ids of the spec and of its class. A spec is stored once, however often it is submitted. Its files must have
    been uploaded, and are kept as long as the spec."""
    found = specs.find(tx, plan.digest)
    if found is not None:
        return found
    files = plan.step.spec.files
    if files:
        known = blobs.known_blobs(tx, {file.sha256 for file in files})
        problems = [
            Problem((*plan.step.path, "files", at), _file_problem(file.path, file.size, known.get(file.sha256)))
            for at, file in enumerate(files)
            if known.get(file.sha256) != file.size
        ]
        if problems:
            raise refusal(problems, hint="")
    return specs.insert(tx, plan.digest, plan.body, plan.needs, {file.sha256 for file in files})


def _file_problem(path: str, size: int, have: int | None) -> str:
    if have is None:
        return f"the file '{path}' was not uploaded"
    return f"the file '{path}' has {have} bytes, not {size}"


def _insert(work: Work, submitted: NewRun, stored: dict[str, tuple[int, int]]) -> RunRow:
    tx = work.tx
    jobfile, planned, submitter, warnings, (origin, traceparent) = submitted
    count = jobfile.count
    wanted = [step.spec for step in jobfile.steps]
    known = known_pins(wanted)
    row = runs.insert(
        tx,
        name=jobfile.name,
        submitter=work.actor.name,
        submitter_id=submitter,
        labels=_encode(jobfile.labels).decode(),
        warnings=_encode(warnings).decode(),
        retry_of=None,
        jobs=count,
        steps=len(planned),
        origin=_encode(origin).decode() if origin else None,
        traceparent=traceparent,
        next_index=count + 1 if any(plan.step.spec.repeat for plan in planned) else 0,
        artifact_store=work.ctx.blobs.kind.value,
        workspace=workspace_of(wanted, known),
        now=work.now,
    )
    run = row.id
    for (repo, ref), commit in known.items():
        pins.add(tx, run, repo, ref, commit)
    if jobfile.labels:
        runs.add_labels(tx, run, jobfile.labels)
    index = 1
    in_loops: list[int] = []
    for number, plan in enumerate(planned, 1):
        spec_id, size = stored[plan.digest][0], plan.step.count
        needs = list(plan.step.needs)
        specs.add_step(
            tx,
            StepRow(run, number, plan.step.id, needs, spec_id, index, index + size - 1, size, size, len(needs)),
        )
        if plan.step.spec.repeat:
            in_loops += range(index, index + size)
        index += size
    rows = _job_rows(run, planned, stored, submitter)
    jobs.insert(tx, rows, large=count >= LARGE)
    rounds.place(tx, (Place(ids.key(run, index), 1, Phase.WORK) for index in in_loops))
    trace = {headers.TRACEPARENT: traceparent} if traceparent else {}
    announce(work, run, ids.key(run, 1), {"name": jobfile.name, "jobs": count, **trace})
    return row


def _job_rows(
    run: int, planned: list[Planned], stored: dict[str, tuple[int, int]], submitter: int
) -> Iterator[tuple[Any, ...]]:
    index, queued = 0, State.QUEUED.value
    for number, plan in enumerate(planned, 1):
        spec_id, class_id = stored[plan.digest]
        ready = 0 if plan.step.needs else 1
        rank = -plan.step.spec.priority
        for params in plan.step.params():
            index += 1
            text = _encode(params).decode()
            yield ids.key(run, index), number, spec_id, class_id, submitter, rank, text, ready, queued


def announce(work: Work, run: int, first: int, data: dict[str, Any]) -> None:
    """Record a new run and its jobs, with one event per job, and wake a waiting claim.

    `first` is the id of the run's first job; `data` has the run's name and the number of its jobs.
    """
    work.record("run.submitted", About(ids.key(run, 0)), new=State.QUEUED, data=data)
    if data["jobs"] == 1:
        work.record(f"job.{State.QUEUED}", About(first), new=State.QUEUED)
    else:
        events.record_queued(work.tx, *ids.span(run), str(work.actor), work.now)
    work.wake("jobs")
