"""The documents say what the code does, and every command block in them runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import Person, Pool, eventually
from .documents import blocks, differences

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
BACKGROUND = ("deborgen-coordinator serve", "deborgen-worker run")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "tools/cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_in_cli_md_is_that_of_the_commands(reference: ModuleType) -> None:
    text = reference.DOCUMENT.read_text()
    written = text.partition(reference.BEGIN)[2].partition(reference.END)[0].strip()
    assert written == reference.reference().strip(), "run: python tools/cli_reference.py"


def test_the_exit_codes_in_cli_md_are_those_of_the_code(reference: ModuleType) -> None:
    assert reference.exit_codes() in reference.DOCUMENT.read_text()


def test_every_variable_that_the_command_reads_is_documented() -> None:
    code = "".join(path.read_text() for path in (ROOT / "cli/src").rglob("*.py"))
    read = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code)) | set(re.findall(r'_base\("([A-Z_]+)"', code))
    shown = (ROOT / "docs/cli.md").read_text()
    assert {"DEBORGEN_URL", "DEBORGEN_TOKEN", "DEBORGEN_TOKEN_FILE", "NO_COLOR"} <= read
    assert [name for name in sorted(read - {"TERM"}) if f"`{name}`" not in shown] == []


@pytest.mark.parametrize("name", ["README.md", "docs/cli.md", "docs/operations.md", "docs/security.md"])
def test_every_flag_that_a_document_names_exists(name: str) -> None:
    known = {"--"}
    for program in (["deborgen-coordinator", "serve"], ["deborgen-coordinator", "token", "create"],
                    ["deborgen-worker", "run"], ["deborgen-worker", "pause"]):  # fmt: skip
        told = subprocess.run([BIN / program[0], *program[1:], "--help"], capture_output=True, text=True, check=True)
        known |= set(re.findall(r"--[a-z][a-z-]*", told.stdout))
    known |= set(re.findall(r"--[a-z][a-z-]*", (ROOT / "docs/cli.md").read_text())) | {"--help", "--version"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", (ROOT / name).read_text()))
    assert named - known == set()


@pytest.mark.parametrize("path", ["README.md", "docs/cli.md", "docs/operations.md", "docs/security.md"])
def test_links_between_documents_lead_somewhere(path: str) -> None:
    text = (ROOT / path).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / path).parent.joinpath(target).exists(), f"{path} links to {target}"


class Runner:
    """Types the `sh` blocks of a document: servers go to the background, addresses and folders are this test's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        home = Person(folder / "home")
        self.environment = home.environment | {"PATH": f"{BIN}:{os.environ['PATH']}"}
        self.servers: list[subprocess.Popen[bytes]] = []

    def type(self, command: str) -> None:
        command = command.replace("10.0.0.1:8765", f"127.0.0.1:{self.port}").replace("/var/lib/", f"{self.folder}/")
        if command.startswith(BACKGROUND):
            with (self.folder / f"server-{len(self.servers)}.log").open("wb") as log:
                words = [
                    *shlex.split(command),
                    *(["--state-dir", "state"] if "--state-dir" not in command and "worker" in command else []),
                ]
                self.servers.append(
                    subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
                )
            if "serve" in command:
                eventually(self.answers, "the coordinator answers", self.folder / "server-0.log")
            return
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"

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


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    each = Runner(tmp_path)
    yield each
    each.end()


@pytest.mark.parametrize("name", ["docs/operations.md", "README.md"])
def test_every_command_block_runs(name: str, runner: Runner) -> None:
    lines = [
        line
        for text in blocks(ROOT / name, "sh")
        for line in text.replace("\\\n", " ").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert len(lines) >= 6
    for line in lines:
        # The readme's worker has Podman's default; what it says about plain processes is in the other document.
        typed = (
            line + " --runner subprocess" if line.startswith("deborgen-worker run") and "--runner" not in line else line
        )
        runner.type(typed.replace("--cpus 6 --memory 8GiB", "--cpus 2 --memory 2GiB"))
        if line.startswith("deborgen-worker run"):
            eventually(runner.joined, "the worker joins", runner.folder / "server-1.log")


def test_the_python_of_cli_md_runs(pool: Pool, anna: Person, tmp_path: Path) -> None:
    (tmp_path / "sim.py").write_text("import sys; print(sys.argv)\n")
    (tmp_path / "pi.yml").write_text(
        "run: |\n  printf '{\"error\": %s}' ${{ seed }} > $DEBORGEN_RESULT\nsweep: {grid: {seed: [1]}}\n"
    )
    (text,) = blocks(ROOT / "docs/cli.md", "python")
    lines = [line for line in text.splitlines() if "to_pandas" not in line or importlib.util.find_spec("pandas")]
    (tmp_path / "snippet.py").write_text("\n".join(lines).replace("python sim.py", f"{sys.executable} sim.py"))
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=tmp_path, env=anna.environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_differs_from_a_document_is_noticed() -> None:
    screen = "Run 7: pi, 30 jobs\nrun 7 pi ━━ 30/30 succeeded after 8.1s\n  30 succeeded\nlast"
    assert differences(["Run 1: pi, 30 jobs", "…", "last"], screen) == []
    assert differences(["Run 1: tau, 30 jobs"], screen) == ["Run 1: tau, 30 jobs"]
    assert differences(["Run 1: pi, 30 jobs", "last"], screen) == ["last"], "nothing may be left out silently"
    assert differences(["…", "run 1 pi ━━ 30/30 failed after 8.1s"], screen) != []
