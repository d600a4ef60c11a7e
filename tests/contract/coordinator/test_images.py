"""Images that jobs build: what is recorded, how later jobs get them, and when they go."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import msgspec
import pytest

from deborgen_coordinator.operations import images, secrets
from deborgen_coordinator.operations.blobs import register
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.maintenance.retention import DAY
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.storage import blobs
from deborgen_shared import messages as m
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.queries import ImagesQuery
from deborgen_shared.states import Outcome, Role
from support.in_process import InProcessCoordinator, InProcessWorker, person

ID, OTHER_ID = "1" * 64, "2" * 64


def builder(pool: InProcessCoordinator, name: str = "box", **capacity: Any) -> InProcessWorker:
    labels = {"build": True, "runner.container": True, "network.internet": True}
    return pool.worker(name, labels=labels, **capacity)


def store(pool: InProcessCoordinator, data: bytes = b"an archive") -> m.Artifact:
    """Upload bytes as a worker does."""
    digest = hashlib.sha256(data).hexdigest()
    pool.ctx.blobs.store(iter([data]), partial(register, pool.ctx))
    return m.Artifact(path="image.tar", sha256=digest, size=len(data))


def built(name: str = "solver:1", digest: str = ID, archive: m.Artifact | None = None, **more: Any) -> m.Built:
    return m.Built(name=name, digest=digest, size=7, archive=archive.sha256 if archive else None, seconds=1.5, **more)


def build(
    pool: InProcessCoordinator, worker: InProcessWorker, name: str = "solver:1", digest: str = ID, data: bytes = b"a"
) -> str:
    """A job that has built an image; returns the job's id."""
    pool.submit({"build": {"tag": name}, "files": [file(pool)]})
    [attempt] = worker.claim()
    archive = store(pool, data)
    worker.finish(attempt, artifacts=[archive], built=built(name, digest, archive))
    return attempt.partition("/")[0]


def file(pool: InProcessCoordinator) -> dict[str, Any]:
    stored = store(pool, b"FROM scratch")
    return {"path": "Containerfile", "sha256": stored.sha256, "size": stored.size}


def spec_of(assignment: m.Assignment) -> dict[str, Any]:
    return dict(msgspec.json.decode(msgspec.json.encode(assignment.spec)))


def listed(pool: InProcessCoordinator, **query: Any) -> list[m.ImageView]:
    return images.list_images(pool.ctx, ImagesQuery(**query)).items


def has(pool: InProcessCoordinator, data: bytes) -> bool:
    digest = hashlib.sha256(data).hexdigest()
    return bool(pool.ctx.store.read(lambda reader: blobs.known_blobs(reader, [digest])))


def clean(pool: InProcessCoordinator) -> None:
    """Let so much time pass that everything goes that nobody needs."""
    pool.clock.pass_by(2 * DAY)
    Cleaner(pool.ctx).run_once()


def test_a_built_image_is_recorded_with_the_result_of_its_job(pool: InProcessCoordinator) -> None:
    job = build(pool, builder(pool))
    [image] = listed(pool)
    assert (image.name, image.digest, image.job, image.submitter, image.worker) == (
        "solver:1", f"sha256:{ID}", job, "alice", "box",
    )  # fmt: skip
    detail = pool.job(job)
    assert detail.result == {
        "image": "solver:1", "digest": f"sha256:{ID}", "image_url": None, "size": 7, "commit": None, "seconds": 1.5,
    }  # fmt: skip
    assert detail.artifacts == [], "the archive is no artifact for people"
    assert "image.built" in pool.types()
    assert pool.audit().findings == []


def test_only_a_worker_that_offers_builds_gets_them(pool: InProcessCoordinator) -> None:
    plain = pool.worker("plain", labels={"runner.container": True})
    run = pool.submit({"build": {"tag": "a"}, "files": [file(pool)], "network": "none"})
    assert "builds no images" in run.warnings[0]
    assert plain.claim() == []
    assert len(builder(pool).claim()) == 1


def test_a_later_job_file_gets_the_image_by_its_id(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    build(pool, worker)
    pool.submit({"image": "pool/solver:1"})
    pool.submit({"build": {"tag": "solver:1"}, "files": [file(pool)]})
    assignments = {each.job: each for each in worker.assignments(2)}
    [pinned] = [each for each in assignments.values() if each.pool_image]
    assert spec_of(pinned)["image"] == f"pool/solver:1@sha256:{ID}"
    assert pinned.pool_image is not None
    assert pinned.pool_image.digest == ID
    assert pinned.pool_image.archive == hashlib.sha256(b"a").hexdigest()


def test_a_name_that_the_pool_does_not_know_is_a_problem_at_its_line(pool: InProcessCoordinator) -> None:
    build(pool, builder(pool))
    with pytest.raises(Refusal) as refused:
        pool.submit({"image": "pool/solver:2"})
    [problem] = refused.value.details["problems"]
    assert problem == {"path": "image", "message": "the pool has no image 'solver:2'", "hint": "it has: pool/solver:1"}
    steps = [{"id": "a", "run": "x"}, {"id": "b", "run": "x", "image": "pool/nothing"}]
    with pytest.raises(Refusal) as refused:
        pool.submit({"image": "pool/${{ run.id }}", "steps": steps})
    assert [each["path"] for each in refused.value.details["problems"]] == ["image", "steps[1].image"]


def test_a_later_step_gets_the_image_of_its_run(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    build(pool, worker, digest=OTHER_ID)
    steps = [
        {"id": "make-it", "build": {"tag": "solver:1"}, "files": [file(pool)]},
        {"id": "use", "image": "${{ steps.make-it.image }}", "run": "echo ${{ steps.make-it.image }}"},
    ]
    run = pool.submit({"steps": steps}).id
    [attempt] = worker.claim()
    archive = store(pool, b"b")
    worker.finish(attempt, artifacts=[archive], built=built(archive=archive))
    [use] = worker.assignments()
    assert spec_of(use)["image"] == f"pool/solver:1@sha256:{ID}"
    assert f"pool/solver:1@sha256:{ID}" in spec_of(use)["run"]
    assert use.pool_image is not None
    assert use.pool_image.digest == ID
    worker.finish(use.attempt, Outcome.FAILED)
    retried, _ = retry_run(pool.ctx, person("alice"), run, m.Retry(only="failed"))
    [again] = worker.assignments()
    assert again.job.startswith(f"{retried.id}.")
    assert spec_of(again)["image"] == f"pool/solver:1@sha256:{ID}", "the run that it retries has built it"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "other:1"}, "is not the name"),
        ({"archive": None, "url": None}, "in an archive or in a registry"),
        ({"archive": "3" * 64}, "not the only artifact"),
    ],
)
def test_an_image_that_the_job_does_not_build_is_refused(
    pool: InProcessCoordinator, change: dict[str, Any], why: str
) -> None:
    worker = builder(pool)
    pool.submit({"build": {"tag": "solver:1"}, "files": [file(pool)]})
    [attempt] = worker.claim()
    archive = store(pool)
    values = {"name": "solver:1", "digest": ID, "size": 7, "archive": archive.sha256, **change}
    with pytest.raises(Refusal, match=why):
        worker.finish(attempt, artifacts=[archive], built=m.Built(**values))
    assert listed(pool) == []


def test_a_job_that_builds_no_image_cannot_report_one(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    pool.submit()
    [attempt] = worker.claim()
    with pytest.raises(Refusal, match="builds no image"):
        worker.finish(attempt, built=built(url="registry.example.org/solver:1@sha256:x"))


def test_the_name_may_have_what_only_the_worker_knows(pool: InProcessCoordinator) -> None:
    step = {
        "build": {"tag": "solver:${{ job.index }}-${{ v }}"},
        "files": [file(pool)],
        "sweep": {"grid": {"v": ["a"]}},
    }
    worker = builder(pool)
    pool.submit(step)
    [attempt] = worker.claim()
    archive = store(pool)
    worker.finish(attempt, artifacts=[archive], built=built("solver:1-a", ID, archive))
    assert [image.name for image in listed(pool)] == ["solver:1-a"]


def test_a_result_without_its_archive_waits_for_it(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    pool.submit({"build": {"tag": "solver:1"}, "files": [file(pool)]})
    [attempt] = worker.claim()
    missing = m.Artifact(path="image.tar", sha256="9" * 64, size=3)
    assert worker.finish(attempt, artifacts=[missing], built=built(archive=missing)) == "missing_blobs"
    assert listed(pool) == []


def test_a_known_image_keeps_its_archive_whatever_a_later_job_reports(pool: InProcessCoordinator) -> None:
    """Seen to fail when the newest report of an image replaced its archive, which nobody had checked."""
    worker = builder(pool)
    build(pool, worker, data=b"good")
    build(pool, worker, name="elsewhere:1", digest=ID, data=b"evil")
    pool.submit({"image": "pool/solver:1"})
    [use] = worker.assignments()
    assert use.pool_image is not None
    assert use.pool_image.archive == hashlib.sha256(b"good").hexdigest()


def test_cleanup_and_retention_leave_an_image_that_has_a_name(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    build(pool, worker, data=b"old")
    build(pool, worker, digest=OTHER_ID, data=b"new")
    assert [(image.digest, image.replaced) for image in listed(pool, replaced=1)] == [
        (f"sha256:{OTHER_ID}", False), (f"sha256:{ID}", True),
    ]  # fmt: skip
    assert [image.digest for image in listed(pool)] == [f"sha256:{OTHER_ID}"]
    clean(pool)
    assert has(pool, b"old"), "it is kept as long as the results of its run"
    assert has(pool, b"new")


def test_retention_takes_a_replaced_image_with_its_run(make_pool: Any) -> None:
    pool = make_pool(retention_days=1)
    worker = builder(pool)
    build(pool, worker, data=b"old")
    build(pool, worker, digest=OTHER_ID, data=b"new")
    clean(pool)
    clean(pool)
    assert not has(pool, b"old")
    assert has(pool, b"new")
    assert len(listed(pool, replaced=1)) == 1


def test_a_removed_image_goes_when_no_unfinished_job_needs_it(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    build(pool, worker, data=b"bytes")
    pool.submit({"image": "pool/solver:1"})
    images.remove_image(pool.ctx, person("alice"), "solver:1")
    assert listed(pool) == []
    clean(pool)
    assert has(pool, b"bytes"), "a queued job names it"
    worker.register()
    [use] = worker.assignments()
    assert use.pool_image is not None
    worker.finish(use.attempt)
    clean(pool)
    clean(pool)
    assert not has(pool, b"bytes")
    with pytest.raises(Refusal):
        pool.submit({"image": "pool/solver:1"})


def test_an_image_stays_while_a_step_of_its_run_may_need_it(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    steps = [
        {"id": "a", "build": {"tag": "solver:1"}, "files": [file(pool)]},
        {"id": "b", "image": "${{ steps.a.image }}", "run": "x"},
    ]
    pool.submit({"steps": steps})
    [attempt] = worker.claim()
    archive = store(pool, b"bytes")
    worker.finish(attempt, artifacts=[archive], built=built(archive=archive))
    images.remove_image(pool.ctx, person("root", Role.ADMIN), "solver:1")
    clean(pool)
    assert has(pool, b"bytes")


def test_only_its_submitter_or_an_admin_removes_an_image(pool: InProcessCoordinator) -> None:
    build(pool, builder(pool))
    with pytest.raises(Refusal) as refused:
        images.remove_image(pool.ctx, person("bob"), "solver:1")
    assert refused.value.code is Code.FORBIDDEN
    with pytest.raises(Refusal) as refused:
        images.remove_image(pool.ctx, person("bob"), "nothing")
    assert refused.value.code is Code.NOT_FOUND


def test_a_person_sees_which_machines_have_an_image(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    build(pool, worker)
    worker.register(images=[ID])
    other = builder(pool, "other")
    other.heartbeat(images=[ID, OTHER_ID])
    assert [image.on for image in listed(pool)] == [["box", "other"]]
    other.heartbeat()
    assert [image.on for image in listed(pool)] == [["box", "other"]], "nothing has changed"
    other.heartbeat(images=[])
    assert [image.on for image in listed(pool)] == [["box"]]


def test_the_list_of_images_comes_in_pages(pool: InProcessCoordinator) -> None:
    worker = builder(pool)
    for number in (1, 2, 3):
        build(pool, worker, name=f"a:{number}", digest=str(number) * 64)
    first = images.list_images(pool.ctx, ImagesQuery(limit=2))
    rest = images.list_images(pool.ctx, ImagesQuery(limit=2, cursor=first.next))
    assert [image.name for image in [*first.items, *rest.items]] == ["a:3", "a:2", "a:1"]
    assert rest.next is None


def test_the_registry_and_its_credentials_reach_the_worker_and_nobody_else(make_pool: Any) -> None:
    pool = make_pool(registry="http://10.0.0.1:5000/pool", registry_secret="REGISTRY")
    secrets.set_secret(
        pool.ctx, person("root", Role.ADMIN), "REGISTRY", m.NewSecret(value="robot:password", shared=True)
    )
    worker = builder(pool)
    pool.submit({"build": {"tag": "solver:1"}, "files": [file(pool)]})
    [assignment] = worker.assignments()
    assert assignment.push == m.PushTarget(place="10.0.0.1:5000/pool", plain=True)
    assert assignment.secrets == {m.REGISTRY_CREDENTIALS: "robot:password"}
    url = f"10.0.0.1:5000/pool/solver:1@sha256:{OTHER_ID}"
    worker.finish(assignment.attempt, built=built(url=url))
    pool.submit({"image": "pool/solver:1"})
    [use] = worker.assignments()
    assert use.pool_image == m.PoolImage(digest=ID, size=7, url=url, plain=True)
    assert use.secrets == {m.REGISTRY_CREDENTIALS: "robot:password"}
    assert "password" not in repr([pool.job("1.1"), pool.job("2.1"), pool.events()])
    pool.submit({"build": {"tag": "here", "push": False}, "files": [file(pool)]})
    [private] = worker.assignments()
    assert (private.push, private.secrets) == (None, {})
