"""Every fenced block of every document is proved: commands are typed, settings are loaded, Python is run.

A block without a proof fails the first test here. Things that a test machine does not have (an address of a VPN, the
folders of root, a registry) are replaced by something similar; each replacement is in this file.
"""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from deborgen_worker.settings import TABLE
from support.compose import BASE, make_base
from support.coordinator import clean_environment
from support.documents import (
    ROOT,
    Block,
    blocks,
    blocks_of,
    clone_into,
    commands,
    commands_in_tables,
    documents,
    is_for_the_organiser,
)
from support.person import Person
from support.podman import CONF, podman_ready
from support.pool import Pool
from support.waiting import wait_until

from .conftest import pool_with_a_box

__all__ = ["podman_ready"]

BIN = Path(sys.executable).parent
HERE = "integration/cli/test_command_blocks.py"
ORGANISER = "fleet/test_documents.py::test_the_organiser_can_type_what_is_documented"
DRAWN = "a picture, which nobody types"

#: The tests that prove the blocks of a document in a language, or the reason why no test can.
PROOFS: dict[tuple[str, str], tuple[str, ...]] = {
    ("ARCHITECTURE.md", "text"): (DRAWN,),
    ("README.md", "text"): (DRAWN,),
    ("README.md", "console"): (
        "integration/cli/test_readme.py::test_every_command_of_the_readme_works_as_shown",
    ),
    ("cli/README.md", "sh"): (f"{HERE}::test_the_first_commands_of_the_package",),
    ("cli/README.md", "python"): (f"{HERE}::test_python_blocks_run_unchanged",),
    ("docs/builds.md", "sh"): ("integration/worker/test_builds.py::test_the_first_image_of_the_document",),
    ("docs/builds.md", "yaml"): ("integration/worker/test_builds.py::test_the_first_image_of_the_document",),
    ("docs/cli.md", "python"): (f"{HERE}::test_python_blocks_run_unchanged",),
    ("docs/cli.md", "text"): (f"{HERE}::test_the_help_of_schema_is_right",),
    ("docs/disaster-recovery.md", "sh"): (ORGANISER, f"{HERE}::test_going_back_to_an_older_release_by_hand"),
    ("docs/evening.md", "sh"): (ORGANISER, f"{HERE}::test_the_first_job_of_the_evening"),
    ("docs/evening.md", "yaml"): ("fleet/test_documents.py::test_inventories_are_read_by_ansible",),
    ("docs/evening.md", "text"): ("fleet/test_pcs.py::test_a_first_run_joins_the_droplet_and_both_pcs",),
    ("docs/fleet.md", "sh"): (f"{HERE}::test_a_pc_joins_without_ssh",),
    ("docs/fleet.md", "text"): ("fleet/test_inventory.py::test_the_document_shows_what_the_check_says",),
    ("docs/fleet.md", "yaml"): ("fleet/test_documents.py::test_inventories_are_read_by_ansible",),
    ("docs/fleet.md", "ini"): ("for Windows, which the tests do not cover, as the document itself says",),
    ("docs/http-api.md", "sh"): (
        "contract/http/test_http_docs.py::test_the_examples_run_as_they_stand_and_show_every_route",
    ),
    ("docs/http-api.md", "json"): ("contract/http/test_http_docs.py::test_the_refusal_in_the_docs_is_the_real_one",),
    ("docs/job-file.md", "yaml"): ("unit/jobfile/test_docs.py::test_every_example_is_a_valid_job_file",),
    ("docs/job-file.md", "text"): (
        "unit/jobfile/test_docs.py::test_the_documented_problems_are_the_reported_ones",
    ),
    ("docs/operations.md", "sh"): (f"{HERE}::test_a_pool_set_up_by_hand",),
    ("docs/operations.md", "ini"): (f"{HERE}::test_the_unit_starts_what_is_typed_by_hand",),
    ("docs/rabbitmq.md", "sh"): (
        "integration/server/test_rabbitmq.py::test_what_the_document_types_starts_a_bridge",
    ),
    ("docs/rabbitmq.md", "json"): (
        "integration/server/test_rabbitmq.py::test_the_document_shows_the_fields_that_a_status_has",
    ),
    ("docs/settings.md", "toml"): (f"{HERE}::test_the_coordinator_starts_from_the_settings_file",),
    ("docs/settings.md", "sh"): (f"{HERE}::test_the_coordinator_starts_from_the_settings_file",),
    ("docs/tour.md", "console"): (
        "integration/cli/test_readme.py::test_every_command_of_the_readme_works_as_shown",
    ),
    ("docs/tour.md", "python"): (f"{HERE}::test_python_blocks_run_unchanged",),
    ("docs/tailnet-policy.md", "json"): (f"{HERE}::test_the_policy_allows_and_denies_what_its_own_tests_say",),
    ("docs/volunteers.md", "toml"): (f"{HERE}::test_the_owners_file_is_read_by_the_worker",),
    ("docs/worker.md", "toml"): (f"{HERE}::test_the_shared_folders_of_the_document_are_read",),
    ("docs/worker.md", "sh"): (f"{HERE}::test_the_owner_of_a_machine_is_in_charge",),
}  # fmt: skip


def unproved(found: list[Block]) -> list[str]:
    return [f"{block.place} ({block.language or 'no language'})" for block in found
            if (block.document, block.language) not in PROOFS]  # fmt: skip


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_block_of_every_document_is_proved() -> None:
    found = [block for document in documents() for block in blocks_of(document)]
    assert len(found) > 60
    assert unproved(found) == [], "say in PROOFS which test proves it"
    assert {(block.document, block.language) for block in found} == set(PROOFS), "nothing is listed that is not there"


def test_every_fenced_block_is_found() -> None:
    for document in documents():
        fences = re.findall(r"^\s*(?:```|~~~)", (ROOT / document).read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(document)), document


def test_the_proofs_are_tests_that_exist() -> None:
    reasons = set()
    for name in {proof for proofs in PROOFS.values() for proof in proofs}:
        path, _, test = name.partition("::")
        if test:
            assert test in functions_in(ROOT / "tests" / path), name
        else:
            reasons.add(name)
    assert len(reasons) == 2, "few things may have a reason instead of a test"


def test_an_unproved_block_is_reported() -> None:
    assert unproved([Block("docs/new.md", 3, "sh", "rm -rf /\n")]) == ["docs/new.md:3 (sh)"]
    assert unproved([Block("README.md", 3, "", "make\n")]) == ["README.md:3 (no language)"]


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for document in documents() for name in re.findall(r"`make ([a-z-]+)", (ROOT / document).read_text())}
    assert {"install", "demo", "test"} <= named
    assert named <= targets


class Typist:
    """Types commands in a clean folder. Servers run in the background, with addresses and folders of this test.

    Things that this machine may not have are set by the environment, so that the commands stay as in the document.
    """

    BACKGROUND = ("deborgen-coordinator serve", "deborgen-worker run", "~/deborgen/bin/deborgen-worker run")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.home = Person(folder / "home")
        self.environment = self.home.environment | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DEBORGEN_WORKER_RUNNER": "subprocess",
            "DEBORGEN_WORKER_STATE_DIR": str(folder / "state"),
        }
        #: Texts of the document, and their replacements here.
        self.replacements = {
            "10.0.0.1:8765": f"127.0.0.1:{self.port}",
            "/var/lib/": f"{folder}/",
            "/etc/": f"{folder}/etc/",
            "--cpus 6 --memory 8GiB": "--cpus 2 --memory 2GiB",
        }
        self.cwd = folder
        self.servers: list[subprocess.Popen[bytes]] = []

    def log(self, number: int = -1) -> Path:
        return self.folder / f"server-{number % len(self.servers)}.log"

    def type(self, command: str, stdin: str = "", seconds: float = 120) -> str:
        """Type a command and return its output."""
        for said, meant in self.replacements.items():
            command = command.replace(said, meant)
        if command.startswith(self.BACKGROUND):
            self._start(command)
            return ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.cwd, env=self.environment, capture_output=True, text=True,
            timeout=seconds, check=False, input=stdin,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _start(self, command: str) -> None:
        with (self.folder / f"server-{len(self.servers)}.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.cwd, env=self.environment, stdout=log, stderr=log
            )
        self.servers.append(server)
        if "serve" in command:
            wait_until(self.answers, what="the coordinator to answer", log=self.log())

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def joined(self) -> bool:
        told = subprocess.run(
            ["deborgen", "workers"], env=self.environment, capture_output=True, text=True, check=False
        )
        return "\topen\t" in told.stdout

    def end(self) -> None:
        for server in reversed(self.servers):
            server.terminate()
        for server in self.servers:
            server.wait(60)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A separate pool for the documents, because machines join it and would be visible to other tests."""
    with pool_with_a_box(tmp_path_factory.mktemp("documented")) as pool:
        yield pool


@pytest.fixture(scope="module")
def anna(pool: Pool) -> Person:
    return pool.person("anna")


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    each = Typist(tmp_path)
    yield each
    each.end()


def test_a_pool_set_up_by_hand(typist: Typist) -> None:
    lines = commands("docs/operations.md")
    assert len(lines) >= 6
    for line in lines:
        typist.type(line)
        if line.startswith("deborgen-worker run"):
            wait_until(typist.joined, what="the worker to join", log=typist.log())


def test_the_unit_starts_what_is_typed_by_hand(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "docs/operations.md", "ini")
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    (typed,) = [line for line in commands("docs/operations.md") if line.startswith("deborgen-coordinator serve")]
    assert [Path(program).name, *words] == shlex.split(typed)
    if shutil.which("systemd-analyze"):
        file = tmp_path / "deborgen-coordinator.service"
        file.write_text(text.replace(program, str(BIN / "deborgen-coordinator")).replace("User=deborgen", "User=root"))
        said = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
        assert "deborgen" not in said.stderr, said.stderr


def test_the_coordinator_starts_from_the_settings_file(typist: Typist) -> None:
    (text,) = blocks(ROOT / "docs/settings.md", "toml")
    path = Path(text.splitlines()[0].removeprefix("# "))
    for said, meant in {"100.101.102.103:8765": f"127.0.0.1:{typist.port}", "/var/lib/": f"{typist.folder}/"}.items():
        assert said in text
        text = text.replace(said, meant)
    file = typist.folder / path.relative_to("/")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (line,) = commands("docs/settings.md")
    assert str(path) in line
    typist.type(line)
    answer = requests.get(f"http://127.0.0.1:{typist.port}/health", timeout=10)
    assert answer.json()["status"] == "ok"
    assert (typist.folder / "deborgen").is_dir(), "the data is where the file says"
    token = typist.type(
        "deborgen-coordinator token create --role admin --name you --data-dir /var/lib/deborgen"
    ).strip()
    submitted = requests.post(
        f"http://127.0.0.1:{typist.port}/v1/runs", json={"run": "true"}, headers={"Authorization": f"Bearer {token}"},
        timeout=10,
    )  # fmt: skip
    assert submitted.status_code == 201
    wait_until(lambda: '\n{"' in "\n" + typist.log().read_text(), what="a line of JSON in the log", log=typist.log())


def test_the_owners_file_is_read_by_the_worker(tmp_path: Path) -> None:
    from deborgen_worker.settings import TABLE

    (text,) = blocks(ROOT / "docs/volunteers.md", "toml")
    (tmp_path / "worker.toml").write_text('cpus = 16\nmemory = "64GiB"\nnetwork = "internet"\n')
    (tmp_path / "worker.local.toml").write_text(text)
    settings = TABLE.load({}, {}, str(tmp_path / "worker.toml"))
    said = tomllib.loads(text)
    assert (settings.cpus, settings.memory, settings.network) == (said["cpus"], 4 << 30, said["network"])
    assert str(said["hours"]) == "23:00-06:00"
    assert settings.hours, "the owner's hours hold"


@pytest.mark.parametrize("document", ["docs/worker.md", "docs/volunteers.md"])
def test_the_owner_of_a_machine_is_in_charge(document: str, typist: Typist, pool: Pool) -> None:
    """The worker is started as docs/worker.md says; then the commands in the tables of both documents are typed."""
    token = typist.home.home / "worker.token"
    token.write_text(pool.coordinator.token("worker", "garage-pc"))
    token.chmod(0o600)
    typist.replacements |= {"https://pool.example": pool.coordinator.url, "sudo ": ""}
    (start,) = commands("docs/worker.md")
    typist.type(start)
    admin = pool.coordinator.client("admin")

    def seen(state: str) -> Any:
        def look() -> bool:
            found = admin.get("/v1/workers/garage-pc")
            return bool(found.status_code == 200 and found.json()["state"] == state)

        return wait_until(look, what=f"garage-pc to be {state}", log=typist.log())

    seen("open")
    lines = commands_in_tables(document, "deborgen-worker")
    assert len(lines) >= 6
    assert lines[-1].endswith("leave")
    for line in lines:
        told = typist.type(line)
        if "status" in line:
            assert told.startswith("garage-pc: ")
        if "pause" in line or "resume" in line:
            seen("paused" if "pause" in line else "open")
        if line.endswith("stop"):
            assert typist.servers[-1].wait(60) == 0
            assert "nothing of deborgen runs here now" in told
            typist.type(start)
            seen("open")
    seen("left")
    assert typist.servers[-1].wait(60) == 0, "a worker that leaves ends"


def test_going_back_to_an_older_release_by_hand(typist: Typist) -> None:
    """The folders are those that the role creates; the service manager only records the requests."""
    installs = (ROOT / "deploy/ansible/roles/deborgen_coordinator/tasks/upgrade.yml").read_text()
    lines = [line for line in commands("docs/disaster-recovery.md") if not is_for_the_organiser(line)]
    assert len(lines) == 2
    switch, restart = lines[1].split(" && ")
    assert switch.replace("releases/OLD", "releases/{{ deborgen_base_release }}") in installs
    assert (ROOT / "deploy/ansible/roles/deborgen_coordinator/templates" / f"{restart.split()[-1]}.service.j2").exists()
    releases = typist.folder / "opt/deborgen/coordinator/releases"
    for name in ("0.1.0-aaaa", "0.2.0-bbbb"):
        (releases / name / "bin").mkdir(parents=True)
    (releases.parent / "current").symlink_to("releases/0.2.0-bbbb")
    asked = typist.folder / "bin/systemctl"
    asked.parent.mkdir()
    asked.write_text(f'#!/bin/sh\necho "$@" with "$(readlink -e {releases.parent}/current)" >> {typist.folder}/asked\n')
    asked.chmod(0o755)
    typist.environment["PATH"] = f"{asked.parent}:{typist.environment['PATH']}"
    typist.replacements |= {"/opt/": f"{typist.folder}/opt/", "releases/OLD": "releases/0.1.0-aaaa"}
    assert typist.type(lines[0]).split() == ["0.1.0-aaaa", "0.2.0-bbbb"]
    typist.type(lines[1])
    assert (typist.folder / "asked").read_text() == (
        f"restart deborgen-coordinator with {releases.resolve()}/0.1.0-aaaa\n"
    )


def fresh_venv(typist: Typist) -> None:
    """A person's own environment is active, in a fresh checkout."""
    venv.create(typist.folder / "venv", with_pip=True)
    typist.environment["PATH"] = f"{typist.folder}/venv/bin:{os.environ['PATH']}"
    typist.cwd = clone_into(typist.folder / "checkout")


@pytest.fixture
def python_image(podman_ready: None) -> Iterator[None]:
    """The image of docs/evening.md, built from Debian's Python, because there may be no registry."""
    name = "docker.io/library/python:3.13-slim"
    present = subprocess.run(["podman", "image", "exists", name], check=False).returncode == 0
    if not present:
        make_base()
        recipe = f"FROM {BASE}\nRUN ln -s python3 /usr/bin/python\n"
        subprocess.run(
            ["podman", "build", "-q", "-t", name, "-"], input=recipe, text=True, check=True, capture_output=True,
            env=os.environ | {"CONTAINERS_CONF": str(CONF)},
        )  # fmt: skip
    yield
    if not present:
        # The worker may be removing the job's container at this moment, and then Podman refuses.
        remove = ["podman", "rmi", "-f", name]
        environment = os.environ | {"CONTAINERS_CONF": str(CONF)}
        wait_until(
            lambda: subprocess.run(remove, env=environment, capture_output=True, check=False).returncode == 0,
            what="the image to be removed",
        )


@pytest.mark.podman
@pytest.mark.root
@pytest.mark.timeout(600)
def test_the_first_job_of_the_evening(typist: Typist, pool: Pool, python_image: None) -> None:
    """A worker with Podman has joined, as after running the playbooks; the rest is typed."""
    token = typist.folder / "worker.token"
    token.write_text(pool.coordinator.token("worker", "ada-tower"))
    token.chmod(0o600)
    typist.environment["CONTAINERS_CONF"] = str(CONF)
    typist.type(
        f"deborgen-worker run --coordinator {pool.coordinator.url} --name ada-tower --token-file {token} "
        "--runner podman --cpus 1 --memory 1GiB"
    )
    fresh_venv(typist)
    typist.replacements["http://10.8.0.1:8765"] = pool.coordinator.url
    lines = [line for line in commands("docs/evening.md") if not is_for_the_organiser(line)]
    assert [line.split()[0] for line in lines] == ["pip", "deborgen", "deborgen"]
    typist.type(lines[0], seconds=400)
    typist.type(lines[1], stdin=pool.coordinator.token("submitter", "you"))
    assert typist.type(lines[2], seconds=180) == "42\n"


@pytest.mark.timeout(600)
def test_a_pc_joins_without_ssh(typist: Typist, pool: Pool) -> None:
    """The token is what the admin's command printed. The worker runs plain processes, instead of Podman."""
    typist.replacements["http://10.8.0.1:8765"] = pool.coordinator.url
    mint, install, paste, run = commands("docs/fleet.md")
    typist.environment |= {"DEBORGEN_URL": pool.coordinator.url, "DEBORGEN_TOKEN": pool.coordinator.token("admin")}
    token = typist.type(mint).strip()
    for name in ("DEBORGEN_URL", "DEBORGEN_TOKEN"):
        del typist.environment[name]
    typist.environment["PATH"] = os.environ["PATH"]
    typist.cwd = clone_into(typist.folder / "checkout")
    typist.type(install, seconds=400)
    typist.type(paste, stdin=token)
    typist.type(run)
    admin = pool.coordinator.client("admin")
    wait_until(lambda: pool.state_of("bob-laptop") == "open", what="bob-laptop to join", log=typist.log())
    assert admin.get("/v1/workers/bob-laptop").json()["capacity"]["memory"] == 4 << 30
    typist.end()
    assert "bob-laptop" in {each["name"] for each in admin.get("/v1/workers").json()["items"]}


def test_the_first_commands_of_the_package(typist: Typist, pool: Pool) -> None:
    typist.replacements["http://pool:8765"] = pool.coordinator.url
    login, *others = commands("cli/README.md")
    typist.type(login, stdin=pool.coordinator.token("submitter", "newcomer"))
    shown = [typist.type(line) for line in others]
    assert "central" in shown[-1]


@pytest.mark.parametrize("document", ["docs/tour.md", "cli/README.md", "docs/cli.md"])
def test_python_blocks_run_unchanged(document: str, pool: Pool, anna: Person, tmp_path: Path) -> None:
    """Those of the tour and of the package need no other file. Seen to fail when the latter named sim.py."""
    (text,) = blocks(ROOT / document, "python")
    if document == "docs/cli.md":
        (tmp_path / "sim.py").write_text("import os; open(os.environ['DEBORGEN_RESULT'], 'w').write('{\"y\": 4}')\n")
        (tmp_path / "pi.yml").write_text(
            "run: |\n  printf '{\"error\": %s}' ${{ seed }} > $DEBORGEN_RESULT\nsweep: {grid: {seed: [1]}}\n"
        )
        text = text.replace("python sim.py", f"{sys.executable} sim.py")
    (tmp_path / "snippet.py").write_text(text)
    folder = ROOT if document == "docs/tour.md" else tmp_path
    done = subprocess.run(
        [sys.executable, tmp_path / "snippet.py"], cwd=folder, env=anna.environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if document == "docs/tour.md":
        *each, best = done.stdout.splitlines()
        assert [line.partition("}")[0] for line in sorted(each)] == [
            f"{{'samples': 1000, 'seed': {seed}" for seed in range(1, 5)
        ]
        assert "'error': " in best
    if document == "cli/README.md":
        assert list(ast.literal_eval(done.stdout).values()) == ["2\n", "4\n"]


def test_the_demo_in_a_pipe_prints_no_escapes_and_names_only_files_that_are_there(tmp_path: Path) -> None:
    """Seen to fail when each command was printed in bold, and when a file that is gone was named.

    The demo is the real one, with fewer darts.
    """
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / ".venv").symlink_to(BIN.parent)
    pi = tmp_path / "examples/pi/pi.yml"
    pi.write_text(pi.read_text().replace("[1000, 30000, 1000000]", "[1000]").replace("to: 10", "to: 2"))
    done = subprocess.run(
        [tmp_path / "tools/demo.sh"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "\x1b" not in said
    assert "darts, " in done.stdout, "the log is printed while the pool is up"
    assert said.count("deborgen logs ") == 1, "later, when the pool is down, nobody is sent to a log"
    named = re.findall(r"(?<![\w/])(\.demo/[\w./-]+)|see (\S*/\S+)", said)
    assert any(path.endswith("darts.svg") for path, _ in named)
    for path, log in named:
        assert (tmp_path / (path or log)).exists(), f"{path or log} is named, but it is gone"


def test_the_shared_folders_of_the_document_are_read(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "docs/worker.md", "toml")
    (tmp_path / "worker.toml").write_text(text)
    shared = TABLE.load({}, {}, str(tmp_path / "worker.toml")).shared
    found = {name: (folder.path, folder.write) for name, folder in shared.items()}
    assert found == {"datasets": ("/mnt/datasets", False), "scratch": ("/mnt/scratch", True)}


def test_the_help_of_schema_is_right(typist: Typist) -> None:
    (text,) = blocks(ROOT / "docs/cli.md", "text")
    (command,) = [line.strip() for line in text.splitlines() if line.strip().startswith("deborgen ")]
    typist.type(command)
    written = command.split(" > ")[1]
    assert json.loads((typist.folder / written).read_text())["properties"]["run"]
    assert f"# yaml-language-server: $schema={written} " in text


def test_the_policy_allows_and_denies_what_its_own_tests_say() -> None:
    """Tailscale itself is not available here; its few rules can be evaluated by hand."""
    from deborgen_coordinator.settings import TABLE

    (text,) = blocks(ROOT / "docs/tailnet-policy.md", "json")
    policy = json.loads(text)

    def is_one_of(who: str, name: str) -> bool:
        return who == name or who in policy["groups"].get(name, [])

    def allowed(source: str, target: str) -> bool:
        return any(
            any(is_one_of(source, name) for name in rule["src"]) and target in rule["dst"] for rule in policy["acls"]
        )

    for test in policy["tests"]:
        assert [target for target in test.get("accept", []) if not allowed(test["src"], target)] == []
        assert [target for target in test["deny"] if allowed(test["src"], target)] == []
    reached = {target for rule in policy["acls"] for target in rule["dst"]}
    port = TABLE.rows["listen"].default.rpartition(":")[2]
    assert reached == {f"{tag}:{port}" for tag in policy["tagOwners"]}
