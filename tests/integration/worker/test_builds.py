"""Images that are built with real Podman: what they become, and what is left when a build does not succeed."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deborgen_worker.runners.builds import cgroups, leftovers
from deborgen_worker.runners.builds.runner import mark_of
from support.coordinator import CoordinatorProcess
from support.documents import ROOT, blocks_of
from support.git_server import http_server
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

pytestmark = [pytest.mark.podman, pytest.mark.root]

#: What a build says just before it waits for ever.
WAITING = b"the build waits"
#: A build starts Podman several times, which takes long on a busy machine.
MANY_SECONDS = 150.0


@pytest.fixture(scope="module")
def worker(
    coordinator: CoordinatorProcess, podman: Podman, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """A worker that builds images. Whatever the tests do, none of them is left."""
    each = WorkerProcess(
        tmp_path_factory.mktemp("b"), coordinator, runner="podman", podman_socket=str(podman.socket), builds="true",
        env={"CONTAINERS_CONF": str(CONF)}, kill_grace="10s", cpus=4, priority="normal", git_protocols="http",
        git_hosts="127.0.0.1",
    )  # fmt: skip
    os.environ["CONTAINERS_CONF"] = str(CONF)
    try:
        with each:
            yield each
    finally:
        for build in builds_of(each):
            leftovers.sweep(build)
        podman.remove_all(each.name)


def builds_of(worker: WorkerProcess) -> set[str]:
    """The builds of a worker of which an image, a layer or a working container is on this machine."""
    found = leftovers.builds_with_images() | set(leftovers.working_containers())
    return {each for each in found if each.startswith(mark_of(worker.state))}


def groups_of(worker: WorkerProcess) -> list[str]:
    names = [name for _, names, _ in os.walk(cgroups.ROOT) for name in names]
    return [name for name in names if name.startswith(f"deborgen-{mark_of(worker.state)}")]


@pytest.fixture
def submit(pool: Pool, worker: WorkerProcess) -> Callable[..., int]:
    """Submits a build of a Containerfile, which is given line by line below its base image."""

    def run(*lines: str, tag: str = "solver:1", **body: Any) -> int:
        build = {"tag": tag, **body.pop("build", {})}
        return pool.submit(files=[upload(pool, *lines)], network="none", build=build, **body)

    return run


def upload(pool: Pool, *lines: str, base: str = IMAGE) -> dict[str, Any]:
    data = "\n".join(["ARG BASE=" + base, "FROM $BASE", *lines, ""]).encode()
    digest = hashlib.sha256(data).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{digest}", data=data).status_code == 201
    return {"path": "Containerfile", "sha256": digest, "size": len(data)}


def images(pool: Pool) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in pool.admin.get("/v1/images").json()["items"]}


def test_an_image_is_built_and_used_at_once(pool: Pool, worker: WorkerProcess, podman: Podman) -> None:
    file = upload(pool, "ARG WORD=none", "RUN echo $WORD > /made", "FROM scratch AS unused")
    build = {"tag": "solver:${{ run.id }}", "args": {"WORD": "hello ${{ run.id }}"}, "target": "0"}
    steps = [
        {"id": "compile", "files": [file], "build": build, "network": "none"},
        {"id": "use", "image": "${{ steps.compile.image }}", "run": "cat /made"},
    ]
    run = pool.submit(steps=steps)
    assert pool.done(run)["state"] == "succeeded", pool.log(run)
    assert pool.log(f"{run}.2") == f"hello {run}\n".encode()
    result, image = pool.job(run)["result"], images(pool)[f"solver:{run}"]
    assert b"STEP 1" in pool.log(run)
    assert {result["image"], image["name"]} == {f"solver:{run}"}
    assert result["digest"] == image["digest"]
    assert result["size"] == image["size"] > 0
    wait_until(lambda: images(pool)[f"solver:{run}"]["on"] == [worker.name], what="the worker to say what it has")

    def removed() -> bool:
        podman("rmi", image["digest"][7:], check=False)
        return image["digest"] not in podman("images", "--all", "--quiet", "--no-trunc")

    wait_until(removed, what="the image to be gone, as on a machine that did not build it")
    use = pool.submit(steps=[{"id": each, "needs": [], "run": "cat /made"} for each in ("a", "b")],
                      image=f"pool/solver:{run}")  # fmt: skip
    assert pool.done(use)["state"] == "succeeded", pool.job(use)["reason"]
    assert pool.log(f"{use}.2") == f"hello {run}\n".encode()
    assert podman("image", "inspect", "--format", "{{.Id}}", image["digest"][7:]) == image["digest"][7:]
    assert list((worker.state / "images").glob("*.tar*")) == [], "the archive was only needed once"


def test_the_first_image_of_the_document(pool: Pool, worker: WorkerProcess) -> None:
    """Apart from the base image and the network, which this machine does not have, everything is as it is shown."""
    [typed] = [block.text for block in blocks_of("docs/builds.md") if block.language == "sh"]
    [shown] = [block.text for block in blocks_of("docs/builds.md") if block.language == "yaml"]
    ada = pool.person("ada")
    assert ada.out(*shlex.split(typed)[1:]).split() == ["build.yml", "Containerfile"]
    here = f"build: {{tag: hello:1, args: {{BASE: {IMAGE}}}}}\n    network: none"
    for text in (shown, (ada.folder / "build.yml").read_text()):
        assert 'build: {tag: "hello:1"}' in text
        run = ada.submit(text.replace('build: {tag: "hello:1"}', here), name="build.yml")
        assert pool.done(int(run))["state"] == "succeeded", pool.log(f"{run}.1")
        assert ada.out("logs", f"{run}.2") == "built in the pool\n"
    [row] = [row for row in ada.rows("images") if row["image"] == "pool/hello:1"]
    assert (row["job"], row["built_by"], row["built_on"]) == (f"{run}.1", "ada", worker.name)
    ada.out("images", "remove", "pool/hello:1")
    assert "pool/hello:1" not in ada.out("images")


def test_the_example_builds_from_a_repository_and_sweeps_in_the_image(
    pool: Pool, worker: WorkerProcess, tmp_path: Path
) -> None:
    """Apart from the address of the repository, the base image and the network, the example runs as it stands."""
    folder = ROOT / "examples/build"
    files = {each.name: each.read_text() for each in (folder / "repository").iterdir()}
    with http_server(tmp_path / "served") as server:
        commit = server.repository("solver.git").commit(files)
        here = f"args: {{BASE: {IMAGE}}}\n      ref: main"
        text = (folder / "build.yml").read_text().replace("https://github.com/your-team", server.url)
        text = text.replace("ref: main", here).replace("  - id: image\n", "  - id: image\n    network: none\n")
        run = pool.person("ada").submit(text)
        assert pool.done(int(run))["state"] == "succeeded", pool.log(f"{run}.1")
    assert pool.job(f"{run}.1")["result"]["commit"] == commit, pool.log(f"{run}.1")
    assert images(pool)[f"solver:{commit[:7]}"]["commit"] == commit
    rows = pool.admin.get(f"/v1/runs/{run}/results").json()["items"]
    assert [row["result"]["square"] for row in rows if row["step"] == "solve"] == [1, 4, 9, 16]


def test_a_build_that_fails_says_so_in_its_log(pool: Pool, submit: Callable[..., int], worker: WorkerProcess) -> None:
    before = builds_of(worker)
    job = pool.until(run := submit("RUN echo to no avail; exit 7"))
    assert (job["state"], job["exit_code"]) == ("failed", 7)
    assert b"to no avail" in pool.log(run)
    job = pool.until(run := submit("ADD http://127.0.0.1:1/secret /secret"))
    assert (job["state"], job["history"][-1]["outcome"]) == ("failed", "failed")
    assert b"ADD http://127.0.0.1:1/secret is refused" in pool.log(run)
    job = pool.until(submit(build={"args": {"BASE": "localhost/deborgen-no-such-image:1"}}))
    assert job["history"][-1]["outcome"] == "error"
    assert "is not on this machine" in job["reason"]
    job = pool.until(run := submit(build={"containerfile": "Elsewhere"}))
    assert b"the file Elsewhere cannot be read" in pool.log(run)
    wait_until(lambda: builds_of(worker) <= before, what="the layers of failed builds to go")


def test_a_build_has_no_network_unless_its_job_asks_for_one(pool: Pool, submit: Callable[..., int]) -> None:
    job = pool.until(run := submit("RUN ls /sys/class/net", resources={"memory": "64MiB", "cpus": 0.5}))
    assert job["state"] == "succeeded", pool.log(run)
    lines = pool.log(run).decode().splitlines()
    assert "lo" in lines
    assert not {"eth0", "tap0"} & set(lines)


def gone(pool: Pool, worker: WorkerProcess, run: int, before: set[str]) -> None:
    """Nothing of the build is left: no container, no layer, no group, no folder, no process."""

    def left() -> list[str]:
        folders = [each.name for each in (worker.state / "attempts").iterdir() if each.name.startswith(f"{run}.")]
        lines = {each.pid: " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])}
        programs = [pid for pid, line in lines.items() if str(worker.state) in line and "builder.py" in line]
        return [*folders, *(builds_of(worker) - before), *groups_of(worker), *map(str, programs)]

    wait_until(lambda: not left(), 90, "nothing of the build to be left", log=worker.log)


def waiting(pool: Pool, submit: Callable[..., int], **body: Any) -> int:
    """A build that has made a layer, and now waits for ever."""
    run = submit("RUN echo layer > /layer", f"RUN echo {WAITING.decode()}; sleep 600", **body)
    wait_until(lambda: WAITING in pool.log(run).replace(b"RUN echo " + WAITING, b""), MANY_SECONDS, "the build to wait")
    return run


def test_fault_78_a_canceled_build_leaves_nothing(
    pool: Pool, submit: Callable[..., int], worker: WorkerProcess
) -> None:
    """Seen to fail when nobody sweeps up after a build."""
    before = builds_of(worker)
    run = waiting(pool, submit)
    pool.admin.post(f"/v1/runs/{run}/cancel", json={})
    assert pool.until(run)["state"] == "canceled"
    gone(pool, worker, run, before)


def test_fault_78_a_build_that_runs_out_of_time_leaves_nothing(
    pool: Pool, submit: Callable[..., int], worker: WorkerProcess
) -> None:
    """Seen to fail when nobody sweeps up after a build."""
    before = builds_of(worker)
    run = submit("RUN echo layer > /layer", "RUN sleep 600", timeout="3s")
    assert pool.until(run)["history"][-1]["outcome"] == "timeout"
    gone(pool, worker, run, before)


def test_fault_78_a_build_goes_on_when_its_worker_is_killed(
    pool: Pool, submit: Callable[..., int], worker: WorkerProcess
) -> None:
    """Seen to fail when a new session does not take up builds."""
    before = builds_of(worker)
    run = waiting(pool, submit)
    worker.kill()
    worker.start()
    wait_until(
        lambda: f"{run}.1/1 is still running" in worker.said(), MANY_SECONDS, "the build to be adopted", log=worker.log
    )
    assert pool.job(run)["state"] == "running"
    pool.admin.post(f"/v1/runs/{run}/cancel", json={})
    assert pool.until(run)["state"] == "canceled"
    gone(pool, worker, run, before)


def test_fault_78_a_build_whose_worker_and_supervisor_are_killed_leaves_nothing(
    pool: Pool, submit: Callable[..., int], worker: WorkerProcess
) -> None:
    """Seen to fail when nobody sweeps up after a build."""
    before = builds_of(worker)
    run = waiting(pool, submit)
    worker.kill()
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if any(word.endswith(("supervisor.py", "builder.py")) for word in words) and str(worker.state) in " ".join(
            words
        ):
            os.kill(each.pid, signal.SIGKILL)
    worker.start()
    assert pool.until(run)["history"][-1]["outcome"] == "lost"
    gone(pool, worker, run, before)


def test_fault_78_a_build_whose_podman_is_killed_leaves_nothing(
    pool: Pool, submit: Callable[..., int], worker: WorkerProcess
) -> None:
    """Seen to fail when nobody sweeps up after a build."""
    before = builds_of(worker)
    run = waiting(pool, submit)
    [program] = [each for each in psutil.process_iter(["cmdline"]) if _builds(each.info["cmdline"], worker.state)]
    program.kill()
    assert pool.until(run)["state"] == "failed"
    gone(pool, worker, run, before)


def _builds(words: list[str] | None, state: Path) -> bool:
    return (words or [])[1:2] == ["build"] and str(state) in " ".join(words or [])
