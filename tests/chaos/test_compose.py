"""The pool of deploy/compose: built and brought up, it runs a job in the host's Podman and survives restarts."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.compose import BASE, POSTGRES, Compose, make_postgres, run
from support.examples import DEFAULT_IMAGE, EXAMPLES, NAMED_IMAGE, script
from support.person import DEBORGEN, Person
from support.podman import IMAGE, Podman
from support.published_pool import PublishedPool
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, pytest.mark.root, pytest.mark.timeout(900)]
#: Normally the supervisor ends a job 30 seconds after its time limit; here one second after.
QUICK = "services: {worker: {environment: {DEBORGEN_BACKSTOP_SECONDS: '1', DEBORGEN_WORKER_RUNNER: both}}}\n"


class ComposedPool(PublishedPool):
    """The pool of the compose file."""

    def __init__(self, compose: Compose, url: str) -> None:
        super().__init__()
        self.compose, self._url = compose, url

    @property
    def url(self) -> str:
        return self._url

    def submit(self, **document: Any) -> int:
        """Submit a job that runs in a container, unless `image` is None."""
        return super().submit(**{name: value for name, value in {"image": IMAGE, **document}.items() if value})

    def token(self, role: str, name: str) -> str:
        words = ("deborgen-coordinator", "token", "create", "--role", role, "--name", name)
        return run("podman", "exec", f"{self.compose.name}_coordinator_1", *words)


@contextlib.contextmanager
def named(image: str, name: str) -> Iterator[None]:
    """Give the image another name in this machine's Podman: there is no registry here to pull that name from."""
    run("podman", "tag", image, name)
    try:
        yield
    finally:
        run("podman", "untag", image, name)


def run_every_example(pool: ComposedPool, home: Path) -> None:
    """Submit every example and every starter, as people would who have read the documents, and wait for them."""
    token = str(pool.http.headers["Authorization"]).removeprefix("Bearer ")
    person = Person(home, DEBORGEN_URL=pool.url, DEBORGEN_TOKEN=token)
    shutil.copytree(EXAMPLES, person.folder / "examples")
    done = subprocess.run(
        ["sh", "-c", script(str(DEBORGEN))], cwd=person.folder / "examples", env=person.environment,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def brought_up(
    images: Path, podman: Podman, folder: Path, *profiles: str, **settings: str | None
) -> Iterator[ComposedPool]:
    """Start the pool with a worker and these profiles. A setting that is None has the default of the compose file."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (folder / "state").mkdir()
    (folder / "token").touch(mode=0o600)
    (folder / "quick.yaml").write_text(QUICK)
    compose = Compose(
        images, folder, f"deborgen-{'-'.join(['chaos', *profiles])}", LISTEN=address, PODMAN_SOCKET=str(podman.socket),
        WORKER_CPUS="2", WORKER_MEMORY="4GiB", WORKER_STATE=str(folder / "state"),
        WORKER_TOKEN_FILE=str(folder / "token"), DEBORGEN_LEASE_SECONDS="20", DEBORGEN_HEARTBEAT_SECONDS="1",
        **{"DEBORGEN_DEFAULT_IMAGE": "", **settings},
    )  # fmt: skip
    compose.files.append(folder / "quick.yaml")
    chosen = [word for profile in [*profiles, "worker"] for word in ("--profile", profile)]
    pool = ComposedPool(compose, f"http://{address}")
    try:
        compose.run(*chosen, "up", "-d", *profiles, "coordinator")
        wait_until(pool.healthy, every=0.2)
        pool.login(pool.token("admin", "organiser"))
        (folder / "token").write_text(pool.token("worker", "worker-1"))
        (folder / "token").chmod(0o600)
        compose.run(*chosen, "up", "-d", "worker")
        yield pool
    finally:
        compose.run(*chosen, "down", "-v", "-t", "5")
        left = run("podman", "ps", "-a", "--filter", f"name={compose.name}_", "--format", "{{.Names}}")
        podman.remove_all("worker-1")
        assert left == "", "no container is left behind"


@pytest.fixture(scope="module")
def pool(images: Path, podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposedPool]:
    with brought_up(images, podman, tmp_path_factory.mktemp("pool")) as pool:
        yield pool


def test_a_job_runs_in_the_hosts_podman(pool: ComposedPool) -> None:
    number = pool.submit(run="echo hello from a container; echo made > out", artifacts=["out"])
    wait_until(lambda: pool.job(number)["state"] in {"succeeded", "failed"}, 120, every=0.2)
    assert pool.job(number)["state"] == "succeeded", (pool.job(number), pool.log(number))
    assert pool.log(number) == b"hello from a container\n"
    assert [each["path"] for each in pool.job(number)["artifacts"]] == ["out"]


def test_a_worker_in_a_container_reports_the_metrics_of_its_machine(pool: ComposedPool) -> None:
    def metrics() -> Any:
        return pool.http.get(f"{pool.url}/v1/workers/worker-1", timeout=20).json().get("metrics")

    found = wait_until(metrics, 120, every=0.2)
    assert found["memory_free"] > 0
    assert found["disk_free"] > 0
    assert found["load"] >= 0


@pytest.mark.parametrize(
    ("part", "how", "image"),
    [
        ("coordinator", "restart", IMAGE),
        ("coordinator", "kill", IMAGE),
        ("supervisor", "kill", IMAGE),
        ("worker", "kill", IMAGE),
        ("worker", "kill", None),  # a plain process, in the container of the supervisor
    ],
)
def test_a_running_job_survives_a_restart_of_a_part(pool: ComposedPool, part: str, how: str, image: str | None) -> None:
    number = pool.submit(run="echo begun; for n in 1 2 3 4 5 6; do sleep 1; done; echo ended", image=image)
    wait_until(lambda: b"begun" in pool.log(number), 120, every=0.2)
    container = f"{pool.compose.name}_{part}_1"
    if how == "restart":
        run("podman", "restart", "-t", "10", container)
    else:
        run("podman", "kill", "-s", "KILL", container)
        run("podman", "start", container)
    wait_until(pool.healthy, every=0.2)
    wait_until(lambda: pool.job(number)["state"] in {"succeeded", "failed"}, 120, every=0.2)
    job = pool.job(number)
    assert (job["state"], job["attempts"], len(job["history"])) == ("succeeded", 1, 1), job
    assert pool.log(number) == b"begun\nended\n"


def test_without_its_worker_the_supervisor_keeps_time_limits_and_obeys_the_owner(
    pool: ComposedPool, podman: Podman
) -> None:
    """Seen to fail when the supervisor runs in the container of the worker."""
    number = pool.submit(run="echo begun; sleep 3600", timeout="6s")
    wait_until(lambda: b"begun" in pool.log(number), 120, every=0.2)
    worker, supervisor = (f"{pool.compose.name}_{part}_1" for part in ("worker", "supervisor"))
    run("podman", "kill", "-s", "KILL", worker)
    [container] = podman.of("worker-1")
    assert "1 running job is frozen" in run("podman", "exec", supervisor, "deborgen-worker", "pause", "--now")
    wait_until(lambda: podman.inspect(container)["State"]["Paused"], what="the owner to have frozen the job")
    status = run("podman", "exec", supervisor, "sh", "-c", "deborgen-worker status || true")
    assert f"{number}.1/1" in status
    assert "frozen without a worker" in status
    run("podman", "exec", supervisor, "deborgen-worker", "resume")
    wait_until(lambda: not podman.inspect(container)["State"]["Paused"], what="the owner to have resumed the job")
    wait_until(lambda: not podman.inspect(container)["State"]["Running"], what="the supervisor to end the job")
    assert not podman.inspect(worker)["State"]["Running"], "no worker was there to end it"
    run("podman", "start", worker)
    wait_until(lambda: pool.job(number)["state"] in {"succeeded", "failed"}, 120, every=0.2)
    assert [each["outcome"] for each in pool.job(number)["history"]] == ["timeout"]


def test_a_worker_that_is_stopped_with_term_gives_its_job_back_and_no_attempt_is_used_up(pool: ComposedPool) -> None:
    number = pool.submit(run="echo begun; sleep 3600", timeout="2h")
    wait_until(lambda: b"begun" in pool.log(number), 120, every=0.2)
    container = f"{pool.compose.name}_worker_1"
    run("podman", "stop", "-t", "55", container)
    wait_until(lambda: pool.job(number)["state"] == "queued", every=0.2)
    job = pool.job(number)
    assert (job["attempts"], [each["outcome"] for each in job["history"]]) == (0, ["released"])
    answer = pool.http.post(f"{pool.url}/v1/runs/{number}/cancel", json={}, timeout=20)
    assert answer.json()["jobs"] == {f"{number}.1": "canceled"}
    run("podman", "start", container)


def test_the_containers_have_read_only_roots_and_the_coordinator_is_not_root(pool: ComposedPool) -> None:
    for part in ("coordinator", "supervisor", "worker"):
        [found] = json.loads(run("podman", "inspect", f"{pool.compose.name}_{part}_1"))
        assert found["HostConfig"]["ReadonlyRootfs"], part
        assert found["EffectiveCaps"] in (None, []) or part != "coordinator"
    assert run("podman", "exec", f"{pool.compose.name}_coordinator_1", "id", "-u") == "10001"


def test_the_audit_of_the_pool_finds_nothing(pool: ComposedPool) -> None:
    said = run("podman", "exec", f"{pool.compose.name}_coordinator_1", "deborgen-coordinator", "audit")
    assert said.splitlines()[-1] == "lost 0, duplicated 0, unexpected 0"


def test_with_the_profile_postgres_a_job_survives_a_restart_of_the_database_and_every_example_runs_as_it_stands(
    images: Path, podman: Podman, tmp_path: Path
) -> None:
    """PostgreSQL's image is our own stand-in, because there is no registry here."""
    make_postgres(tmp_path)
    settings = {"POSTGRES_IMAGE": POSTGRES, "POSTGRES_PASSWORD": "sesame", "DEBORGEN_DEFAULT_IMAGE": None}
    url = "postgresql://deborgen:sesame@postgres/deborgen"
    with (
        named(BASE, DEFAULT_IMAGE), named(IMAGE, NAMED_IMAGE),
        brought_up(images, podman, tmp_path, "postgres", DEBORGEN_DATABASE=url, **settings) as pool,
    ):  # fmt: skip
        database = f"{pool.compose.name}_postgres_1"
        number = pool.submit(run="echo begun; for n in 1 2 3 4 5 6; do sleep 1; done; echo ended", image=None)
        wait_until(lambda: b"begun" in pool.log(number), 120, every=0.2)
        run("podman", "kill", "-s", "KILL", database)
        run("podman", "start", database)
        wait_until(lambda: pool.healthy() and pool.job(number).get("state") in {"succeeded", "failed"}, 120, every=0.2)
        job = pool.job(number)
        assert (job["state"], job["attempts"], len(job["history"])) == ("succeeded", 1, 1), job
        assert pool.log(number) == b"begun\nended\n"
        asked = ("psql", "-U", "deborgen", "-d", "deborgen", "-h", "/var/run/postgresql", "-Atc")
        assert run("podman", "exec", database, *asked, "SELECT count(*) FROM job") == "1", "the job is in PostgreSQL"
        run_every_example(pool, tmp_path / "person")
        assert run("podman", "exec", database, "id", "-u") == "70"
        run("podman", "exec", database, "pg_isready", "-U", "deborgen")
        said = run("podman", "exec", f"{pool.compose.name}_coordinator_1", "deborgen-coordinator", "audit")
        assert said.splitlines()[-1] == "lost 0, duplicated 0, unexpected 0"
