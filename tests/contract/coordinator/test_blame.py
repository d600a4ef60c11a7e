"""Rule 15: blame goes where it belongs. A machine that fails slows down, and rests only for failures of its own."""

from __future__ import annotations

from typing import Any

import pytest

from deborgen_coordinator.blame import FAILURES_BEFORE_PROBATION, FIRST_REST
from deborgen_coordinator.operations.jobs.why import why
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.workers.look import get_worker, list_workers
from deborgen_coordinator.storage import experiences
from support.in_process import PAST_LEASE, InProcessCoordinator, InProcessWorker

IMAGE = "registry.example.org/solver:1"
CONTAINERS: dict[str, Any] = {"labels": {"runner.container": True}}


def fail_job(worker: InProcessWorker, cause: str = "registry_unreachable", image: str = IMAGE) -> str:
    """Take a job, and fail to get its image."""
    attempt = worker.take()
    words = f"the image {image} could not be pulled: {cause}"
    worker.finish(attempt, "error", reason=words, cause=cause, image=image)
    return attempt


def succeed(worker: InProcessWorker, image: str = IMAGE) -> None:
    """Take a job, and run it to its end with this image."""
    worker.finish(worker.take(), image=f"{image}@sha256:{'0' * 64}")


def submit_many(pool: InProcessCoordinator, by: str = "alice", **keys: Any) -> int:
    """Submit more jobs than a test uses up."""
    keys = {"image": IMAGE, "sweep": {"grid": {"n": {"from": 1, "to": 40}}}, "retry": {"backoff": "1h"}, **keys}
    return pool.submit(by=by, **keys).id


def pass_by(pool: InProcessCoordinator, seconds: float, *workers: InProcessWorker) -> None:
    """Let time pass, while these workers send their heartbeats."""
    while seconds > 0:
        pool.sleep(min(9.0, seconds))
        seconds -= 9.0
        for worker in workers:
            worker.beat()


def test_rule_15_after_five_failures_in_a_row_a_machine_gets_one_job_at_a_time_with_growing_pauses(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when a machine gets all that it asks for, however often it fails."""
    submit_many(pool)
    worker = pool.worker(**CONTAINERS)
    for _ in range(FAILURES_BEFORE_PROBATION):
        fail_job(worker)
    for seconds in (2, 4, 8, 16, 32, 60, 60):
        assert worker.claim(4) == []
        shown = get_worker(pool.ctx, "pc1")
        assert (shown.availability, shown.state) == ("closed", "resting")
        assert "infrastructure failures in a row; the next job in" in shown.reason
        pass_by(pool, seconds, worker)
        assert get_worker(pool.ctx, "pc1").availability == "limited"
        [attempt] = worker.start(4)
        assert worker.claim(4) == [], "it has one already"
        worker.finish(attempt, "error", cause="registry_unreachable", image=IMAGE)
    pass_by(pool, 60, worker)
    succeed(worker)
    assert len(worker.start(4)) == 4, "a program ran to its end"
    assert get_worker(pool.ctx, "pc1").availability == "free"
    types = [event.type for event in pool.events(worker="pc1") if event.type.startswith("worker.")]
    assert types == ["worker.registered", "worker.online", "worker.paused", "worker.resumed"]


@pytest.mark.parametrize("outcome", ["failed", "timeout", "out_of_memory"])
def test_rule_15_a_failure_of_the_program_shows_that_the_machine_is_healthy(
    pool: InProcessCoordinator, outcome: str
) -> None:
    submit_many(pool)
    worker = pool.worker(**CONTAINERS)
    for _ in range(FAILURES_BEFORE_PROBATION - 1):
        fail_job(worker)
    worker.finish(worker.take(), outcome)
    fail_job(worker)
    assert len(worker.claim(4)) == 1, "the image that it fails with comes alone"
    assert get_worker(pool.ctx, "pc1").availability == "free"


def test_fault_93_a_typo_in_the_image_of_a_sweep_puts_no_machine_to_rest_and_other_people_go_first(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when every five failures in a row are the machine's own."""
    typo = "registry.example.org/slover:1"
    pool.submit(image=typo, sweep={"grid": {"n": {"from": 1, "to": 12}}}, max_attempts=3, retry={"backoff": "1s"})
    only = pool.worker(**CONTAINERS)
    for attempt in only.start(8):
        only.finish(attempt, "error", reason="unknown", cause="image_unknown", image=typo)
    pool.submit(image=IMAGE, by="bob")
    pass_by(pool, 60, only)
    assert get_worker(pool.ctx, "pc1").availability == "limited"
    assert only.start() == ["2.1/1"], "although alice's jobs are older"
    only.finish("2.1/1", image=f"{IMAGE}@sha256:0")
    assert get_worker(pool.ctx, "pc1").availability == "free"
    assert len(only.start(8)) == 1, "alice's wrong image is tried again, one job at a time"
    pauses = [event.data["rest_seconds"] for event in pool.events(worker="pc1") if event.type == "worker.paused"]
    assert max(pauses) <= 60


def test_rule_15_a_machine_rests_if_the_same_image_works_elsewhere(pool: InProcessCoordinator) -> None:
    """Seen to fail when no failure is the machine's own."""
    submit_many(pool)
    well, ill = pool.worker("well", **CONTAINERS), pool.worker("ill", **CONTAINERS)
    given = ill.start(FAILURES_BEFORE_PROBATION)
    succeed(well)
    for attempt in given:
        ill.finish(attempt, "error", cause="registry_unreachable", image=IMAGE)
    shown = get_worker(pool.ctx, "ill")
    assert (shown.availability, shown.state) == ("closed", "resting")
    assert "by its own fault; rests for 10 more minutes" in shown.reason
    pass_by(pool, FIRST_REST - 20, well, ill)
    assert ill.claim() == []
    pass_by(pool, 30, ill)
    pool.sleep(2 * PAST_LEASE)  # well is offline, and leaves the image to the other one
    ill.beat()
    fail_job(ill)
    assert "rests for 20 more minutes" in get_worker(pool.ctx, "ill").reason, "it is longer each time"


def test_rule_15_a_machine_rests_if_jobs_of_two_people_fail_on_it_for_different_reasons(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when no failure is the machine's own."""
    submit_many(pool, "alice")
    worker = pool.worker(**CONTAINERS)
    for _ in range(3):
        fail_job(worker)
    pool.cancel("1")
    submit_many(pool, "bob")
    for _ in range(2):
        worker.finish(worker.take(), "error", reason="the container cannot be created")
    assert "by its own fault" in get_worker(pool.ctx, "pc1").reason


def test_rule_15_an_image_that_the_owner_does_not_allow_puts_no_machine_to_rest(pool: InProcessCoordinator) -> None:
    submit_many(pool)
    other, worker = pool.worker("other", **CONTAINERS), pool.worker(**CONTAINERS)
    succeed(other)
    other.leave()
    for _ in range(FAILURES_BEFORE_PROBATION):
        fail_job(worker, "image_not_allowed")
    assert "by its own fault" not in get_worker(pool.ctx, "pc1").reason


def test_fault_93_a_machine_that_cannot_get_an_image_gets_no_more_such_jobs_while_another_one_could_take_them(
    pool: InProcessCoordinator,
) -> None:
    """Five jobs, a machine that fail_job at once, and an idle one. Seen to fail when a machine gets more jobs with an
    image that it could not get."""
    submit_many(pool, sweep={"grid": {"n": {"from": 1, "to": 5}}}, max_attempts=3, retry={"backoff": "1s"})
    hole, idle = pool.worker("hole", **CONTAINERS), pool.worker("idle", **CONTAINERS)
    pool.sleep(3)
    fail_job(hole)
    assert hole.claim(4) == []
    pass_by(pool, 6, hole, idle)
    assert hole.claim(4) == []
    assert sorted(idle.start(8)) == ["1.1/2", "1.2/1", "1.3/1", "1.4/1", "1.5/1"]
    for attempt in list(idle.holding):
        idle.finish(attempt, image=f"{IMAGE}@sha256:0")
    assert [job.state for job in (pool.job(f"1.{n}") for n in range(1, 6))] == ["succeeded"] * 5


def test_fault_93_a_machine_goes_on_with_other_images_while_it_cannot_get_one(pool: InProcessCoordinator) -> None:
    """Seen to fail when a machine gets more jobs with an image that it could not get."""
    submit_many(pool)
    hole = pool.worker("hole", **CONTAINERS)
    pool.worker("other", **CONTAINERS)
    pool.sleep(3)
    fail_job(hole)
    submit_many(pool, image="registry.example.org/other:1", sweep={"grid": {"n": [1, 2]}})
    submit_many(pool, image="registry.example.org/${{ v }}:1", sweep={"grid": {"v": ["solver", "third"]}})
    assert sorted(hole.start(8)) == ["2.1/1", "2.2/1", "3.2/1"]


def test_rule_15_the_next_try_avoids_every_machine_that_failed_this_image(pool: InProcessCoordinator) -> None:
    """Seen to fail when a job avoids only the last machine that failed it."""
    pool.submit(image=IMAGE, max_attempts=9, retry={"backoff": "1s"})
    first, second = pool.worker("first", **CONTAINERS), pool.worker("second", **CONTAINERS)
    third = pool.worker("third", **CONTAINERS)
    for each in (first, second):
        pass_by(pool, 6, first, second, third)
        fail_job(each)
    pass_by(pool, 9, first, second, third)
    assert (first.claim(), second.claim()) == ([], [])
    assert third.start() == ["1.1/3"]


def test_rule_15_with_no_other_machine_left_the_job_comes_back_as_soon_as_its_pause_is_over(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when a machine that failed the same image counts as another one that could take the job."""
    pool.submit(image=IMAGE, max_attempts=9, retry={"backoff": "1s"})
    first, second = pool.worker("first", **CONTAINERS), pool.worker("second", **CONTAINERS)
    for each in (first, second):
        pass_by(pool, 6, first, second)
        fail_job(each)
    pass_by(pool, 9, first, second)
    assert first.start() == ["1.1/3"]


def test_rule_15_a_machine_that_cannot_prepare_a_workspace_leaves_the_job_to_others(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=9, retry={"backoff": "1s"})
    first, second, third = (pool.worker(name) for name in ("first", "second", "third"))
    for each in (first, second):
        pass_by(pool, 6, first, second, third)
        each.finish(each.take(), "error", reason="the workspace cannot be prepared", cause="workspace")
    pass_by(pool, 9, first, second, third)
    assert (first.claim(), second.claim()) == ([], [])
    assert third.start() == ["1.1/3"]


def test_rule_15_an_image_is_tried_again_later_and_a_success_clears_it(pool: InProcessCoordinator) -> None:
    submit_many(pool)
    ill, well = pool.worker("ill", **CONTAINERS), pool.worker("well", **CONTAINERS)
    pool.sleep(3)
    fail_job(ill)
    assert ill.claim() == []
    pass_by(pool, 63, ill, well)
    succeed(ill)
    assert get_worker(pool.ctx, "ill").troubles == []
    fail_job(ill)
    pass_by(pool, 63, ill, well)
    assert len(ill.start()) == 1, "it is the first failure again"


def test_workers_and_why_say_which_machine_cannot_get_which_image(pool: InProcessCoordinator) -> None:
    """Seen to fail when only the reason of an attempt says so."""
    submit_many(pool)
    hole = pool.worker("hole", **CONTAINERS)
    pool.worker("well", **CONTAINERS)
    pool.sleep(3)
    fail_job(hole)
    words = f"the image {IMAGE} could not be pulled: registry_unreachable"
    troubles = {
        shown.name: [(each.image, each.reason) for each in shown.troubles] for shown in list_workers(pool.ctx).items
    }
    assert troubles == {"hole": [(IMAGE, words)], "well": []}
    pool.submit(image=IMAGE)
    lines = {line.worker: (line.fits, line.reason) for line in why(pool.ctx, 2, 1).workers}
    assert lines == {
        "hole": (False, f"{words}; other machines come first"),
        "well": (True, "can run it with its next claim"),
    }


def test_a_worker_that_does_not_name_a_cause_is_counted_as_before(pool: InProcessCoordinator) -> None:
    """A worker of an earlier release, or a cause of a later one."""
    submit_many(pool)
    worker = pool.worker(**CONTAINERS)
    for cause in ("", "the_moon", "", "", ""):
        worker.finish(worker.take(), "error", reason="no disk", cause=cause)
    assert get_worker(pool.ctx, "pc1").troubles == []
    assert get_worker(pool.ctx, "pc1").state == "resting"


def test_experiences_are_forgotten_after_a_day(pool: InProcessCoordinator) -> None:
    submit_many(pool)
    worker = pool.worker(**CONTAINERS)
    fail_job(worker)
    cleaner = Cleaner(pool.ctx)
    cleaner.run_once()
    assert len(pool.ctx.store.read(experiences.troubles)) == 1
    pool.clock.pass_by(86_401)
    cleaner.run_once()
    assert pool.ctx.store.read(experiences.troubles) == []
