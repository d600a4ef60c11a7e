"""The files for editors, for the hooks of git and for CI are well-formed, and name commands and files that exist."""

from __future__ import annotations

import configparser
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from support.documents import ROOT

BIN = Path(sys.executable).parent
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
WORKFLOW = ".github/workflows/ci.yml"
HOOKS = ".pre-commit-config.yaml"


def load(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / name).read_text("utf-8"))
    return found


def steps() -> list[dict[str, Any]]:
    return [step for job in load(WORKFLOW)["jobs"].values() for step in job["steps"]]


def commands() -> list[list[str]]:
    """What the steps of the workflow type, word by word."""
    return [shlex.split(line) for step in steps() for line in step.get("run", "").replace("\\\n", "").splitlines()]


def test_editors_and_ruff_have_the_same_line_length() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text("utf-8"))
    assert settings["top"]["root"] == "true"
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert settings["*"]["max_line_length"] == str(tools["ruff"]["line-length"])
    assert settings["{Makefile,*.mk}"]["indent_style"] == "tab"


def test_the_hooks_are_the_commands_of_make_lint() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe
    lint = [line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in recipe[1].splitlines()]
    hooks = [hook for repo in load(HOOKS)["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == lint
    assert {hook["language"] for hook in hooks} == {"system"}, "nothing is downloaded"
    assert [repo["repo"] for repo in load(HOOKS)["repos"]] == ["local"]
    for hook in hooks:
        assert (BIN / Path(hook["entry"].split()[0]).name).exists(), hook["entry"]


def test_the_workflow_runs_everything_on_each_python_that_the_parts_name() -> None:
    linux, macos = load(WORKFLOW)["jobs"]["linux"], load(WORKFLOW)["jobs"]["macos"]
    classifiers = tomllib.loads((ROOT / "cli/pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    pythons = [word.rpartition(" ")[2] for word in classifiers if word.startswith("Programming Language")]
    assert linux["strategy"]["matrix"]["python"] == pythons
    assert linux["runs-on"].startswith("ubuntu")
    assert macos["runs-on"].startswith("macos")
    assert set(macos["strategy"]["matrix"]["python"]) <= set(pythons)
    assert {"run": "make test"} in linux["steps"]


def test_the_workflow_names_commands_and_files_that_exist() -> None:
    typed = commands()
    assert ["make", "test"] in typed
    for words in typed:
        if words[0] == "make":
            assert set(words[1:]) <= TARGETS, words
        for word in words:
            if word.startswith(("tests/", "tools/", "./")) or word == "constraints.txt":
                assert (ROOT / re.sub(r"\[\w+\]$", "", word)).exists(), words
        if words[0].startswith("tools/"):
            assert (ROOT / words[0]).stat().st_mode & 0o111, words
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    assert {words[words.index("--group") + 1] for words in typed if "--group" in words} <= groups.keys()


def test_the_workflow_needs_no_secret_and_may_change_nothing() -> None:
    assert "secrets." not in (ROOT / WORKFLOW).read_text("utf-8")
    assert load(WORKFLOW)["permissions"] == {"contents": "read"}


def test_the_packages_of_the_workflow_are_those_that_make_prepare_wants() -> None:
    (installed,) = [
        words[words.index("install") :] for words in commands() if words[:3] == ["sudo", "apt-get", "install"]
    ]
    script = (ROOT / "tools/prepare.sh").read_text("utf-8")
    (programs,) = re.findall(r"^for program in (.*); do$", script, re.MULTILINE)
    (pairs,) = re.findall(r"^for pair in (.*); do$", script, re.MULTILINE)
    wanted = set(programs.split()) | {pair.partition(":")[2] for pair in pairs.split()}
    wanted |= set(re.findall(r"missing\+=\(([\w-]+)\)", script))
    assert wanted | {"podman"} == {word for word in installed[1:] if not word.startswith("-")}


def test_the_unit_tests_on_macos_need_no_worker() -> None:
    (words,) = [words for words in commands() if "pytest" in words]
    named = [ROOT / word for word in words if word.startswith("tests/")]
    files = {file for path in named if path.is_dir() for file in path.rglob("test_*.py")} - set(named)
    assert len(files) > 20
    assert [file.name for file in sorted(files) if "deborgen_worker" in file.read_text("utf-8")] == []
