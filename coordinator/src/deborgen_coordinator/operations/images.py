"""Images that jobs build: recorded with the result of their job, named by later jobs, listed and removed by people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.images import POOL, tagged
from deborgen_shared.jobfile.model import Build, JobFile, Step
from deborgen_shared.jobfile.problems import Path, Problem, show
from deborgen_shared.jobfile.template import GIT_FACTS, LOOKUP, OPEN, STEP_IMAGE, filled, render
from deborgen_shared.messages import Images, ImageView, PoolImage, PushTarget, Result
from deborgen_shared.queries import ImagesQuery
from deborgen_shared.states import Outcome, Role

from .. import ids
from ..storage import images, runs, specs
from ..storage.database import DatabaseConnection
from ..storage.rows import HeldAttempt, ImageRow, RunRow
from ..storage.transactions import Tx
from . import views
from .context import Actor, Context
from .lookup import Noun, UnknownName, parse_cursor
from .work import About, Work

#: Stands for what only the worker knows, in the name of an image.
GIT_MARK = "\0"
#: The longest list of known images in a hint.
MOST_NAMED = 10


# Images in job files


def image_of_pool(image: str | None) -> str:
    """The name of an image of the pool, without `pool/`; empty if the image is from elsewhere."""
    return image.removeprefix(POOL) if image is not None and image.startswith(POOL) else ""


def pin_images(ctx: Context, document: Any, jobfile: JobFile) -> tuple[dict[str, str], list[Problem]]:
    """The images of the pool that a job file names, each with its id added; and a problem for each unknown one."""
    wanted = {step.spec.image: step for step in jobfile.steps if image_of_pool(step.spec.image)}
    if not wanted:
        return {}, []

    def look(reader: DatabaseConnection) -> tuple[dict[str, str], list[Problem]]:
        pinned, problems = {}, []
        for image, step in wanted.items():
            assert image is not None
            found = None if OPEN in image else _named(reader, image_of_pool(image))
            if found is not None:
                pinned[image] = reference(found)
            else:
                problems.append(_unknown(reader, image, _place(document, step)))
        return pinned, problems

    return ctx.store.read(look)


def _named(reader: DatabaseConnection, name: str) -> ImageRow | None:
    """The image with a name in a job file, which may end with an id."""
    name, _, digest = name.partition("@sha256:")
    return images.with_digest(reader, digest) if digest else images.current(reader, tagged(name))


def _unknown(reader: DatabaseConnection, image: str, path: Path) -> Problem:
    if OPEN in image:
        return Problem(path, "the name of an image of the pool cannot have lookups", "write one step per image")
    known = [row.name for row in images.newest(reader, replaced=False, before=None, limit=MOST_NAMED)]
    hint = f"it has: {', '.join(POOL + name for name in known)}" if known else "build one first, with 'build'"
    return Problem(path, f"the pool has no image '{show(image.removeprefix(POOL))}'", hint)


def _place(document: Any, step: Step) -> Path:
    """Where the document names the image of a step: in the step itself, or for all steps at the top."""
    for part in step.path:
        document = document[part]
    return (*(step.path if "image" in document else ()), "image")


def reference(row: ImageRow) -> str:
    """The image as the spec of a job names it."""
    return f"{POOL}{row.name}@sha256:{row.digest}"


def step_images(tx: Tx, owner: RunRow, spec: Mapping[str, Any]) -> dict[str, str]:
    """The values of the lookups of images that other steps have built, in this run or in one that it retries."""
    names = {
        found[1] for text in _texts(spec) for name in LOOKUP.findall(text) if (found := STEP_IMAGE.fullmatch(name))
    }
    values: dict[str, str] = {}
    lineage: RunRow | None = owner
    while lineage is not None and names:
        for step in specs.steps(tx, lineage.id):
            if step.name in names and (row := images.of_job(tx, ids.key(lineage.id, step.first_index))) is not None:
                values.setdefault(f"steps.{step.name}.image", reference(row))
        lineage = runs.get_existing(tx, lineage.retry_of) if lineage.retry_of is not None else None
    return values


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if OPEN in value else []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


# What workers need


class Registry(NamedTuple):
    """The pool's registry, with a path, and whether it speaks plain HTTP."""

    place: str
    plain: bool


def registry(ctx: Context) -> Registry | None:
    """The pool's registry, if it has one."""
    text = ctx.settings.registry
    return Registry(text.removeprefix("http://"), text.startswith("http://")) if text else None


def push_target(ctx: Context, build: Build | None) -> PushTarget | None:
    found = registry(ctx) if build is not None and build.push else None
    return PushTarget(place=found.place, plain=found.plain) if found is not None else None


def pool_image(ctx: Context, tx: Tx, image: str | None) -> PoolImage | None:
    """Where a worker gets an image of the pool; None if the image is from elsewhere or is gone."""
    name = image_of_pool(image)
    row = images.with_digest(tx, name.rpartition("@sha256:")[2]) if name else None
    if row is None:
        return None
    found = registry(ctx)
    plain = found is not None and found.plain and (row.url or "").startswith(f"{found.place}/")
    return PoolImage(digest=row.digest, size=row.size, archive=row.archive, url=row.url, plain=plain)


# What workers report


def record_image(work: Work, held: HeldAttempt, result: Result) -> dict[str, Any] | None:
    """Store the image that a job has built, and return the result of the job; None if it has built none."""
    built = result.built
    spec = work.ctx.spec_cache.spec(work.tx, held.spec_id)
    build = spec.job.build
    if built is None or build is None or result.outcome != Outcome.SUCCEEDED.value:
        return None
    values = {
        "name": built.name, "digest": built.digest, "archive": built.archive, "url": built.url, "size": built.size,
        "job": held.job, "number": held.number, "repo": build.git, "commit": built.commit or None,
        "seconds": built.seconds,
    }  # fmt: skip
    images.add(work.tx, work.now, **values)
    shown = {
        "image": built.name, "digest": f"sha256:{built.digest}", "image_url": built.url, "size": built.size,
        "commit": built.commit or None, "seconds": round(built.seconds, 3),
    }  # fmt: skip
    work.record("image.built", About.attempt_of(held), data=shown)
    return shown


def check_built(ctx: Context, tx: Tx, held: HeldAttempt, params: Mapping[str, Any], result: Result) -> None:
    """Refuse an image that is not the one that the job builds: another name, or an archive that was not uploaded."""
    built = result.built
    if built is None:
        return
    spec = ctx.spec_cache.spec(tx, held.spec_id)
    archives = [artifact.sha256 for artifact in result.artifacts]
    wrong = ""
    if spec.job.build is None:
        wrong = "the job builds no image"
    elif (built.archive is None) == (built.url is None):
        wrong = "it is in an archive or in a registry"
    elif archives != ([built.archive] if built.archive else []):
        wrong = "the archive of the image is not the only artifact"
    elif not _pattern(spec.plain or {"build": {"tag": spec.job.build.tag}}, held, params).fullmatch(built.name):
        wrong = f"{built.name!r} is not the name of the image that the job builds"
    if wrong:
        raise Refusal(
            Code.INVALID_JOB, f"the image of {result.attempt}: {wrong}", "report the image that the job built"
        )


def _pattern(plain: Mapping[str, Any], held: HeldAttempt, params: Mapping[str, Any]) -> re.Pattern[str]:
    """What the name of the job's image may be. Only the worker knows what `git.*` stands for."""
    context = {
        "run.id": str(ids.run_of(held.job)), "job.id": ids.name(held.job), "job.index": str(ids.index_of(held.job)),
        "attempt": str(held.number),
    }  # fmt: skip
    tag = tagged(render(plain, params, context)["build"]["tag"])
    known = re.escape(filled(tag, lambda name: GIT_MARK if name in GIT_FACTS else ""))
    return re.compile(known.replace(GIT_MARK, "[A-Za-z0-9_.-]{1,128}"))


# What people see


def list_images(ctx: Context, query: ImagesQuery) -> Images:
    before, limit = parse_cursor(query.cursor), query.limit

    def look(reader: DatabaseConnection) -> tuple[list[ImageRow], dict[str, list[str]]]:
        rows = images.newest(reader, replaced=bool(query.replaced), before=before, limit=limit + 1)
        return rows, images.places(reader, {row.digest for row in rows})

    rows, places = ctx.store.read(look)
    more = str(rows[limit - 1].id) if len(rows) > limit else None
    return Images(items=[_view(row, places.get(row.digest, [])) for row in rows[:limit]], next=more)


def _view(row: ImageRow, places: list[str]) -> ImageView:
    return ImageView(
        name=row.name, digest=f"sha256:{row.digest}", image_url=row.url, size=row.size, commit=row.commit,
        repo_url=row.repo, job=ids.name(row.job), submitter=row.submitter, worker=row.worker, seconds=row.seconds,
        created_at=views.when(row.created_at), on=places, replaced=row.standing != images.CURRENT,
    )  # fmt: skip


def remove_image(ctx: Context, actor: Actor, name: str) -> None:
    """Take away the name of an image. Its bytes go when no unfinished job needs them."""
    name = tagged(name)

    def remove(work: Work) -> None:
        row = images.current(work.tx, name)
        if row is None:
            raise UnknownName(Noun.IMAGE, f"the pool has no image {name}")
        if actor.role is not Role.ADMIN and actor.name != row.submitter:
            hint = "only its submitter or an admin may remove it"
            raise Refusal(Code.FORBIDDEN, f"the image {name} was built for {row.submitter}", hint)
        images.remove(work.tx, name)
        work.record("image.removed", About(), data={"image": name, "digest": f"sha256:{row.digest}"})

    ctx.work(actor, remove)


def drop_removed(ctx: Context) -> int:
    """Delete the rows of removed images that no unfinished job needs; return how many."""

    def drop(tx: Tx) -> int:
        gone = images.removed(tx)
        if not gone:
            return 0
        unfinished, bodies = images.needed(tx)
        free = [
            row for row, digest, job in gone
            if ids.run_of(job) not in unfinished and not any(f"@sha256:{digest}" in body for body in bodies)
        ]  # fmt: skip
        return images.drop(tx, free)

    return ctx.store.write(drop) if ctx.store.read(images.removed) else 0
