"""Jobs in checkouts of repositories, from real git servers, with and without a key, in containers and as processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.states import Outcome
from support.git_server import GitServer, Repository, SshServer, http_server, ssh_server
from support.podman import IMAGE
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
ALLOWED = {"git_protocols": "http,ssh", "git_hosts": "127.0.0.1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with http_server(tmp_path_factory.mktemp("served"), "git:t0ken-of-the-host") as server:
        yield server


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture
def secrets(pool: Pool, ssh: SshServer) -> Iterator[None]:
    values = {"TOKEN": "t0ken-of-the-host", "DEPLOY_KEY": ssh.key}
    for name, value in values.items():
        assert pool.admin.put(f"/v1/secrets/{name}", json={"value": value}).status_code == 200
    yield
    for name in values:
        pool.admin.delete(f"/v1/secrets/{name}")


def run_of(pool: Pool, number: int) -> dict[str, Any]:
    found: dict[str, Any] = pool.admin.get(f"/v1/runs/{number}").json()
    return found


@pytest.mark.parametrize("image", [None, IMAGE], ids=["process", "container"])
def test_a_job_works_in_a_checkout_of_a_private_repository(
    pool: Pool, request: pytest.FixtureRequest, server: GitServer, secrets: None, image: str | None
) -> None:
    make: Make = request.getfixturevalue("container_worker" if image else "new_worker")
    label = f"git-{bool(image)}"
    make(labels=f"test={label}", **ALLOWED).start()
    repository = server.repository(f"{label}.git")
    files = {"run.sh": "echo one", "data/x": "from the repository", "data/y": "replaced"}
    commit = repository.commit(files, links={"latest": "data/x", "out": "/etc/passwd"}, scripts=("run.sh",))
    script = (
        "./run.sh; cat latest; test ! -L out; test ! -e .git; touch data/new; ! env | grep -e t0ken -e '^TOKEN'\n"
        'echo ${{ git.sha }} ${{ git.short_sha }} ${{ git.ref }} "$SHA" > data/${{ git.short_sha }}; cat data/*'
    )
    job = {"image": image} if image else {}
    run = pool.submit(
        **job, run=script, requires={"test": label}, env={"SHA": "${{ git.short_sha }}"},
        workspace={"git": server.url_of(f"{label}.git"), "key": "TOKEN"}, artifacts=["data/${{ git.short_sha }}"],
    )  # fmt: skip
    assert pool.until(run)["state"] == "succeeded", pool.log(run)
    facts = f"{commit} {commit[:7]} main {commit[:7]}\n"
    assert pool.log(run).decode() == f"one\nfrom the repository{facts}from the repositoryreplaced"
    assert [each["path"] for each in pool.job(run)["artifacts"]] == [f"data/{commit[:7]}"]
    shown = run_of(pool, run)
    assert (shown["workspace_source"], shown["repo_ref"], shown["commit"]) == ("git", "main", commit)
    assert shown["repo_url"] == server.url_of(f"{label}.git")


def test_a_job_works_in_a_folder_of_a_repository_that_a_deploy_key_opens(
    pool: Pool, new_worker: Make, ssh: SshServer, secrets: None
) -> None:
    new_worker(labels="test=ssh", **ALLOWED, git_known_hosts=str(ssh.known_hosts)).start()
    inner = Repository(ssh.folder / "inner.git").commit({"x": "of the submodule"})
    text = '[submodule "lib"]\n\tpath = src/lib\n\turl = ../inner.git\n'
    files = {"src/a": "of the folder", ".gitmodules": text}
    Repository(ssh.folder / "outer.git").commit(files, "dev", submodules={"src/lib": inner})
    workspace = {
        "git": ssh.url_of("outer.git"), "ref": "dev", "subdir": "src/", "submodules": True, "key": "DEPLOY_KEY",
    }  # fmt: skip
    run = pool.submit(run="cat a lib/x; ls", workspace=workspace, requires={"test": "ssh"})
    assert pool.until(run)["state"] == "succeeded", pool.log(run)
    assert pool.log(run) == b"of the folderof the submodulea\nlib\n"


def test_fault_76_all_jobs_of_a_run_see_one_commit_although_the_branch_is_pushed_over_and_deleted(
    pool: Pool, new_worker: Make, server: GitServer, secrets: None
) -> None:
    """Seen to fail when an assignment does not name the commit that is pinned."""
    new_worker(labels="test=pin", cpus=1, **ALLOWED).start()
    repository = server.repository("pin.git")
    first = repository.commit({"a": "first"})
    workspace = {"git": server.url_of("pin.git"), "key": "TOKEN"}
    steps = [{"id": name, "run": f"cat a; echo {name}"} for name in ("one", "two")]
    run = pool.submit(steps=steps, workspace=workspace, requires={"test": "pin"}, priority=-1)
    wait_until(lambda: run_of(pool, run)["commit"] == first, what="the commit to be pinned")
    repository.commit({"a": "second"})
    repository.git("update-ref", "-d", "refs/heads/main")
    assert pool.done(run)["state"] == "succeeded"
    assert [pool.log(f"{run}.{index}") for index in (1, 2)] == [b"firstone\n", b"firsttwo\n"]
    retried = pool.admin.post(f"/v1/runs/{run}/retry", json={"only": "all"}).json()
    assert retried["commit"] == first
    assert pool.done(retried["id"])["state"] == "succeeded"
    assert pool.log(f"{retried['id']}.1") == b"firstone\n"


def test_fault_76_a_repository_that_one_machine_cannot_get_is_tried_on_another(
    pool: Pool, new_worker: Make, server: GitServer, secrets: None
) -> None:
    """Seen to fail when git's reason is not passed on."""
    server.repository("two.git").commit({"a": "1"})
    # The first machine may not contact the host. It alone is there when the job comes, and fails again and again, with
    # pauses; the second one can come at any time.
    requires = {"test": "two"}
    new_worker(labels="test=two", git_protocols="http", git_hosts="public").start()
    workspace = {"git": server.url_of("two.git"), "key": "TOKEN"}
    run = pool.submit(run="cat a", workspace=workspace, requires=requires, max_attempts=100)

    def has_failed() -> bool:
        return any(each["outcome"] == Outcome.ERROR for each in pool.job(run)["history"])

    wait_until(has_failed, what="the first attempt to fail")
    new_worker(labels="test=two", **ALLOWED).start()
    assert pool.until(run)["state"] == "succeeded"
    errors = [each["reason"] for each in pool.job(run)["history"] if each["outcome"] == Outcome.ERROR]
    assert "does not allow the host 127.0.0.1" in errors[0]


def test_a_ref_that_does_not_exist_is_an_error_with_its_reason(
    pool: Pool, new_worker: Make, server: GitServer, secrets: None
) -> None:
    server.repository("none.git").commit({"a": "1"})
    new_worker(labels="test=none", **ALLOWED).start()
    workspace = {"git": server.url_of("none.git"), "ref": "gone", "key": "TOKEN"}
    run = pool.submit(run="cat a", workspace=workspace, requires={"test": "none"})
    job = pool.until(run)
    assert job["state"] == "failed"
    assert "no branch and no tag 'gone'" in pool.job(run)["reason"]


def test_a_worker_whose_owner_allows_no_repositories_gets_no_such_job(
    pool: Pool, new_worker: Make, server: GitServer
) -> None:
    new_worker(name="plain-pc", git="false").start()
    new_worker(name="secure-pc", git_protocols="https").start()
    run = pool.submit(run="true", workspace={"git": server.url_of("x.git")})

    def lines() -> dict[str, str]:
        found = pool.admin.get(f"/v1/jobs/{run}.1/why").json()["workers"]
        return {each["worker"]: each["reason"] for each in found}

    wait_until(lambda: {"plain-pc", "secure-pc"} <= lines().keys(), what="both workers to be there")
    words = "does not check out repositories over http: its owner can allow it, with git_protocols"
    assert {lines()[name] for name in ("plain-pc", "secure-pc")} == {words}
    pool.admin.post(f"/v1/runs/{run}/cancel")


def test_fault_77_a_hostile_repository_executes_nothing_and_is_bounded(
    pool: Pool, new_worker: Make, server: GitServer, secrets: None, tmp_path: Path
) -> None:
    """Seen to fail when the names and sizes in a repository are not looked at."""
    ran = tmp_path / "ran"
    new_worker(labels="test=hostile", **ALLOWED).start()
    evil = '[submodule "x"]\n\tpath = x\n\turl = file:///etc\n'
    attributes = {".gitattributes": "* filter=evil\n", ".gitconfig": f'[filter "evil"]\n\tsmudge = touch {ran}\n'}
    hook = {"hooks/post-checkout": f"#!/bin/sh\ntouch {ran}\n", "a": "1"}
    repository = server.repository("hostile.git")
    commits = {
        "harmless": repository.commit({**attributes, **hook}, "harmless", scripts=("hooks/post-checkout",)),
        "submodule": repository.commit({".gitmodules": evil}, "submodule", submodules={"x": "1" * 40}),
        "names": repository.commit({"a\x1b[2Jb": "1"}, "names"),
        "large": repository.commit({"zeros": bytes(40 << 20)}, "large"),
    }
    runs = {
        name: pool.submit(
            run="cat a", requires={"test": "hostile"}, resources={"disk": "20MiB"},
            workspace={"git": server.url_of("hostile.git"), "ref": name, "submodules": True, "key": "TOKEN"},
        )
        for name in commits
    }  # fmt: skip
    states = {name: pool.until(run)["state"] for name, run in runs.items()}
    assert states == {"harmless": "succeeded", "submodule": "failed", "names": "failed", "large": "failed"}
    reasons = {name: pool.job(run)["reason"] for name, run in runs.items()}
    assert "does not allow the protocol file" in reasons["submodule"]
    assert "do not print" in reasons["names"]
    assert "does not fit on the job's disk" in reasons["large"]
    assert not ran.exists()
