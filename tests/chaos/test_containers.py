"""The pool in containers that are killed, frozen and cut off from outside while jobs run in real Podman."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.containers import ContainerPool, container_pool, use_of_testcontainers
from support.podman import Podman
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, pytest.mark.root, pytest.mark.timeout(900)]
LEASE = 6.0
COUNT = "echo begun; for n in 1 2 3 4 5 6 7 8 9 10; do sleep 1; echo $n; done"
WHOLE_LOG = b"begun\n" + b"".join(b"%d\n" % n for n in range(1, 11))


@pytest.fixture(scope="module")
def pool(images: Path, podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerPool]:
    with use_of_testcontainers(podman), container_pool(podman, tmp_path_factory.mktemp("fleet"), LEASE) as made:
        made.add_worker("w1")
        yield made


@pytest.fixture(scope="module")
def pool_on_postgres(images: Path, podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerPool]:
    folder = tmp_path_factory.mktemp("fleet")
    with use_of_testcontainers(podman), container_pool(podman, folder, LEASE, postgres=True) as made:
        made.add_worker("w3")
        yield made


def start_a_job(pool: ContainerPool) -> int:
    number = pool.submit(run=COUNT, max_attempts=3)
    wait_until(lambda: b"begun" in pool.log(number), every=0.1)
    wait_until(lambda: pool.job(number)["history"][-1]["started_at"] is not None, every=0.1)
    return number


def outcomes_at_the_end(pool: ContainerPool, number: int, seconds: float = 90) -> list[str]:
    """The outcomes of the job's attempts, once it has ended."""
    wait_until(lambda: pool.job(number)["state"] in {"succeeded", "failed"}, seconds, every=0.2)
    return [each["outcome"] for each in pool.job(number)["history"]]


def survives_a_kill_of(pool: ContainerPool, part: str) -> None:
    number = start_a_job(pool)
    pool.podman("kill", part, "-s", "KILL")
    pool.podman("start", part)
    wait_until(pool.healthy, every=0.2)
    assert outcomes_at_the_end(pool, number) == ["succeeded"]
    assert pool.log(number) == WHOLE_LOG


def survives_a_freeze_of(pool: ContainerPool, part: str) -> None:
    """Freeze a part for longer than a lease."""
    number = start_a_job(pool)
    pool.pause(part)
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() - frozen > 2 * LEASE, 4 * LEASE)
    pool.podman("unpause", part)
    assert outcomes_at_the_end(pool, number) == ["succeeded"]
    assert pool.log(number) == WHOLE_LOG


def test_a_killed_worker_container_adopts_its_job_again(pool: ContainerPool) -> None:
    survives_a_kill_of(pool, "w1")


def test_a_killed_coordinator_container_loses_nothing(pool: ContainerPool) -> None:
    survives_a_kill_of(pool, "coordinator")


def test_a_coordinator_that_is_frozen_past_the_lease_loses_no_lease(pool: ContainerPool) -> None:
    survives_a_freeze_of(pool, "coordinator")


def test_a_worker_that_is_cut_off_past_the_lease_continues_the_same_attempt(pool: ContainerPool) -> None:
    number = start_a_job(pool)
    pool.cut_off("w1")
    wait_until(lambda: pool.job(number)["state"] == "queued", 6 * LEASE, every=0.2)
    pool.reconnect("w1")
    assert outcomes_at_the_end(pool, number) == ["succeeded"]
    assert pool.log(number) == WHOLE_LOG


def test_a_worker_whose_name_server_is_silent_uses_the_coordinators_last_address(pool: ContainerPool) -> None:
    """Its connections are cut, too. Seen to fail when a new connection waits for the name server's answer."""
    number = start_a_job(pool)
    with pool.silent_name_server("w1"):
        pool.cut_connections("w1")
        assert outcomes_at_the_end(pool, number) == ["succeeded"]
    assert pool.log(number) == WHOLE_LOG


def test_a_frozen_worker_ends_its_attempt_on_waking_if_another_has_taken_over(
    pool: ContainerPool, podman: Podman
) -> None:
    number = start_a_job(pool)
    pool.pause("w1")
    wait_until(lambda: pool.job(number)["state"] == "queued", 6 * LEASE, every=0.2)
    second = pool.add_worker("w2")
    wait_until(lambda: pool.job(number)["worker"] == second and pool.job(number)["state"] == "running", every=0.2)
    pool.podman("unpause", "w1")
    wait_until(lambda: podman.of("w1") == [], every=0.2)
    assert outcomes_at_the_end(pool, number) == ["lost", "succeeded"]
    assert pool.log(number) == WHOLE_LOG
    wait_until(lambda: podman.of("w2") == [], every=0.2)


def test_a_killed_database_container_loses_nothing(pool_on_postgres: ContainerPool) -> None:
    survives_a_kill_of(pool_on_postgres, "postgres")


def test_a_database_that_is_frozen_past_the_lease_loses_no_lease(pool_on_postgres: ContainerPool) -> None:
    survives_a_freeze_of(pool_on_postgres, "postgres")


def test_a_killed_coordinator_container_on_postgres_loses_nothing(pool_on_postgres: ContainerPool) -> None:
    survives_a_kill_of(pool_on_postgres, "coordinator")


@pytest.mark.parametrize("which", ["pool", "pool_on_postgres"])
def test_the_audit_finds_nothing(request: pytest.FixtureRequest, which: str) -> None:
    pool: ContainerPool = request.getfixturevalue(which)
    code, said = pool.coordinator.exec(["deborgen-coordinator", "audit"])
    assert code == 0, said.decode()
    assert said.decode().splitlines()[-1] == "lost 0, duplicated 0, unexpected 0"
