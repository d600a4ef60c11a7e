"""Repositories from the command: the commit of a run, a ref that does not exist, `init git` and the example."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess
from support.git_server import GitServer, http_server
from support.person import Person
from support.pool import Pool

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with http_server(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of this module's own, with a worker that may contact the server."""
    coordinator = CoordinatorProcess(tmp_path_factory.mktemp("git-pool"), heartbeat_seconds=1, lease_seconds=20)
    with Pool(coordinator) as pool:
        pool.add_worker("git-pc", cpus=2, git_protocols="http", git_hosts="127.0.0.1", drain_grace="1s")
        yield pool


@pytest.fixture(scope="module")
def anna(pool: Pool) -> Person:
    return pool.person("anna")


def test_a_ref_that_does_not_exist_is_found_before_anything_is_sent(anna: Person, server: GitServer) -> None:
    server.repository("refs.git").commit({"a": "1"})
    text = f"run: cat a\nworkspace:\n  git: {server.url_of('refs.git')}\n  ref: 3f2c1ab\n"
    anna.write("job.yml", text)
    said = anna.err("submit", "job.yml", code=3)
    assert "job.yml:4:8: the repository has no branch and no tag '3f2c1ab'" in said
    assert "write all 40 characters of a commit" in said
    assert "1 problem, nothing was submitted." in said


def test_the_run_has_its_commit_from_the_start(anna: Person, server: GitServer) -> None:
    repository = server.repository("start.git")
    first = repository.commit({"a": "1"})
    job = f'run: cat a\nworkspace: {{git: "{server.url_of("start.git")}"}}\nrequires: {{nobody: has}}\n'
    anna.write("job.yml", job)
    run = anna.out("submit", "job.yml").strip()
    repository.commit({"a": "2"})
    shown = json.loads(anna.out("show", run, "--json"))["run"]
    assert (shown["workspace_source"], shown["repo_ref"], shown["commit"]) == ("git", "main", first)
    # With a key of one's own, the same file is the same submission, whatever was pushed meanwhile.
    again = [anna.out("submit", "job.yml", "--key", "mine").strip()]
    repository.commit({"a": "3"})
    again.append(anna.out("submit", "job.yml", "--key", "mine").strip())
    assert again[0] == again[1]


def test_init_git_runs_with_an_address_of_ones_own(anna: Person, server: GitServer) -> None:
    commit = server.repository("hello.git").commit({"README": "hi"}, "master")
    path = Path(anna.folder / anna.out("init", "git").strip())
    path.write_text(path.read_text().replace("https://github.com/octocat/Hello-World.git", server.url_of("hello.git")))
    run = anna.out("submit", str(path), "--wait").strip()
    assert anna.out("logs", run) == f"README\ncommit {commit[:7]} of master\n"


def test_the_example_of_a_private_repository(anna: Person, tmp_path: Path) -> None:
    folder = anna.folder / "git-example"
    shutil.copytree(EXAMPLES / "git", folder)
    with http_server(tmp_path / "private", "git:t0ken-of-anna") as server:
        commit = server.repository("solver.git").commit({"source.txt": "solve\n"})
        anna.out("secret", "set", "SOLVER_KEY", stdin=b"t0ken-of-anna\n")
        job = folder / "git.yml"
        job.write_text(job.read_text().replace("git@github.com:your-team/solver.git", server.url_of("solver.git")))
        run = anna.out("submit", str(job), "--wait").strip()
    rows = json.loads(anna.out("results", run, "--json"))["results"]
    assert rows["commit"] == commit
    assert [row["commit"] for row in rows["rows"] if row["step"] == "try"] == [commit] * 3
    assert anna.out("logs", f"{run}.2") == "tolerance 0.001\nsolve\n"
    anna.out("secret", "remove", "SOLVER_KEY")
