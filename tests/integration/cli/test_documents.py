"""The documents match the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_reference import reference
from deborgen_shared.states import Role
from deborgen_worker.runners.podman.spec import container_spec
from deborgen_worker.runners.protocol import Launch
from deborgen_worker.runners.supervision import supervised_limit
from support.documents import ROOT, differences, documents
from support.pool import Pool

BIN = Path(sys.executable).parent
#: The folders that have the project's Python.
PARTS = ("shared", "coordinator", "worker", "cli", "tests", "tools", "benchmarks", "deploy", "examples")


def test_every_variable_that_the_command_reads_is_documented() -> None:
    code = "".join(path.read_text() for path in (ROOT / "cli/src").rglob("*.py"))
    read = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code)) | set(re.findall(r'_base\("([A-Z_]+)"', code))
    shown = (ROOT / "docs/cli.md").read_text()
    assert {"DEBORGEN_URL", "DEBORGEN_TOKEN", "DEBORGEN_TOKEN_FILE", "NO_COLOR"} <= read
    assert [name for name in sorted(read - {"TERM"}) if f"`{name}`" not in shown] == []


#: Flags of other programs that the documents mention.
FOREIGN = {
    "--ask-become-pass",
    "--check",
    "--install",
    "--limit",
    "--packages",
    "--shutdown",
    "--user",
    "--scope",
    "--x",
    "--samples",
    "--seed",
}
PROGRAMS = ("deborgen-coordinator serve", "deborgen-coordinator token create", "deborgen-coordinator audit",
            "deborgen-worker run", "deborgen-worker pause", "deborgen-worker status",
            "deborgen-worker stop")  # fmt: skip
#: Pages about our own programs.
PAGES = [
    "README.md", "docs/tour.md", "docs/cli.md", "docs/operations.md", "docs/security.md", "docs/settings.md",
    "docs/worker.md", "docs/volunteers.md", "docs/evening.md", "docs/fleet.md", "docs/disaster-recovery.md",
    "docs/builds.md", "examples/README.md",
]  # fmt: skip


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    known = {"--", "--help", "--version"} | FOREIGN
    for program in PROGRAMS:
        words = program.split()
        told = subprocess.run([BIN / words[0], *words[1:], "--help"], capture_output=True, text=True, check=True)
        known |= set(re.findall(r"--[a-z][a-z-]*", told.stdout))
    reference = (ROOT / "docs/cli.md").read_text()
    return known | set(re.findall(r"--[a-z][a-z-]*", reference[reference.index("## Reference") :]))


@pytest.mark.parametrize("name", PAGES)
def test_every_flag_that_a_document_names_exists(name: str, known_flags: set[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", (ROOT / name).read_text()))
    assert named - known_flags == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_sentence_names_exists(name: str) -> None:
    """A command in a sentence or a table, like `deborgen token create …`, must exist."""
    known = set(re.findall(r"^#### `deborgen ([a-z ]+)`$", reference(), re.MULTILINE))
    for line in re.findall(r"`deborgen ([a-z][^`]*)`", (ROOT / name).read_text()):
        words = re.match(r"[a-z]+(?: [a-z]+)*", line)
        assert words is not None
        first, _, rest = words[0].partition(" ")
        assert first in known, f"{name}: deborgen {line}"
        group = {each for each in known if each.startswith(f"{first} ")}
        if group and rest:
            assert f"{first} {rest.split()[0]}" in group, f"{name}: deborgen {line}"


@pytest.mark.parametrize("path", documents())
def test_links_between_documents_are_not_broken(path: str) -> None:
    text = (ROOT / path).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / path).parent.joinpath(target).exists(), f"{path} links to {target}"


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = [name for name in documents() if name.startswith("docs/") and name != "docs/README.md"]
    assert [page for page in pages if f"]({page.removeprefix('docs/')})" not in index] == []


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_every_module_that_architecture_names_exists() -> None:
    """For `leases.py` or `coordinator/…/leases.py`, the project has a file whose path ends in `/leases.py`."""
    files = [f"/{file.relative_to(ROOT)}" for part in PARTS for file in (ROOT / part).rglob("*.py")]
    for name in re.findall(r"`([\w/…-]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()):
        part, _, rest = name.rpartition("/…/")
        found = [file for file in files if file.startswith(f"/{part}") and file.endswith(f"/{rest}")]
        assert found, name


def test_a_difference_from_a_document_is_reported() -> None:
    screen = "Run 7: pi, 30 jobs\nrun 7 pi ━━ 30/30 succeeded after 8.1s\n  30 succeeded\nlast"
    assert differences(["Run 1: pi, 30 jobs", "…", "last"], screen) == []
    assert differences(["Run 1: tau, 30 jobs"], screen) == ["Run 1: tau, 30 jobs"]
    assert differences(["Run 1: pi, 30 jobs", "last"], screen) == ["last"], "nothing may be left out silently"
    assert differences(["…", "run 1 pi ━━ 30/30 failed after 8.1s"], screen) != []


def table(document: str, heading: str) -> dict[str, str]:
    """The rows of the first table after the heading, by their first cell."""
    text = (ROOT / document).read_text().partition(f"\n{heading}\n")[2]
    rows = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert rows is not None
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[0].splitlines()[2:]]
    return {row[0].strip("`"): row[1] for row in cells}


def test_the_roles_in_operations_md_match_the_code() -> None:
    assert set(table("docs/operations.md", "## People and machines")) == {role.value for role in Role}


def test_the_metrics_in_operations_md_exist(pool: Pool) -> None:
    told = table("docs/operations.md", "## Is it well?")
    measured = pool.coordinator.client("viewer").get("/metrics").text
    assert len(told) >= 5
    assert [name for name in told if name not in measured] == []


def test_the_messages_in_operations_md_exist() -> None:
    code = "".join(path.read_text() for part in ("cli", "coordinator") for path in (ROOT / part / "src").rglob("*.py"))
    seen = [re.findall(r"`([^`]+)`", cell) for cell in table_cells("docs/operations.md", "## When something is wrong")]
    words = [word.rstrip(" …") for cell in seen for word in cell]
    assert len(words) >= 5
    assert [word for word in words if word not in code] == []


def table_cells(document: str, heading: str) -> list[str]:
    text = (ROOT / document).read_text().partition(f"\n{heading}\n")[2]
    return [line.strip("|").split("|")[0] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)[2:]]


def test_the_container_options_in_security_md_match_the_request_to_podman(tmp_path: Path) -> None:
    rows = table("docs/security.md", "### In a container")
    launch = Launch(
        attempt="1.1/1", argv=("true",), env={"A": "b"}, folder=tmp_path, workspace=tmp_path / "work", image="x",
        memory=1 << 30, timeout_seconds=60.0,
    )  # fmt: skip
    spec = container_spec("box", launch)
    limits = spec["resource_limits"]
    environment = {name: value for name, value in spec["env"].items() if name != "DEBORGEN_DEADLINE"}
    promised = {
        "no capabilities": spec["cap_drop"] == ["all"],
        "no new privileges": spec["no_new_privileges"] and not spec["privileged"],
        "read-only root": spec["read_only_filesystem"],
        "its own workspace at `/job`": {each["destination"] for each in spec["mounts"]}
        == {"/job", "/deborgen", "/tmp"},
        "none, unless the job asks for `internet`": spec["netns"] == {"nsmode": "none"},
        "memory without swap": limits["memory"] == {"limit": 1 << 30, "swap": 1 << 30},
        "processors, processes and open files are limited": limits["cpu"]["quota"] > 0
        and limits["pids"]["limit"] > 0
        and "nofile" in {each["type"] for each in spec["r_limits"]},
        "none except the GPUs that it asked for": spec["devices"] == [],
        "nothing from the host, not even proxy settings": environment == {"A": "b"} and spec["httpproxy"] is False,
        "by the supervisor if the worker is dead": supervised_limit(launch) > 60,
    }
    said = " ".join(rows.values())
    assert [words for words in promised if words not in said] == []
    assert [words for words, kept in promised.items() if not kept] == []
