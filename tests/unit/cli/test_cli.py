"""The command itself: its help, its imports, and its exit codes."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from deborgen import errors
from deborgen.cli import SECTIONS, cli

NAMES = [name for section in SECTIONS.values() for name in section]
PACKAGE = Path(errors.__file__).parent
COMMANDS = PACKAGE / "commands"
ROOT = Path(__file__).resolve().parents[3]


def deborgen(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("DEBORGEN_")}
    return subprocess.run(
        [sys.executable, "-m", "deborgen", *words], capture_output=True, text=True, env=env | environment, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.fixture
def empty_home(tmp_path: Path) -> dict[str, str]:
    return {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE")}


def test_every_verb_has_one_file() -> None:
    assert {path.stem for path in COMMANDS.glob("[a-z]*.py")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_matches_the_help_of_the_command(name: str) -> None:
    section = next(section for section in SECTIONS.values() if name in section)
    command = importlib.import_module(f"deborgen.commands.{name}").command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert (command.help or "").strip().splitlines()[0] == section[name]


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nfrom deborgen.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & {"requests", "rich", "msgspec", "yaml", "pathspec", "urllib3", "deborgen.client"}


def test_every_command_has_help() -> None:
    for name in NAMES:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        context = click.Context(command, info_name=name)
        assert "Usage:" in command.get_help(context)


def test_a_similar_command_is_suggested() -> None:
    done = deborgen("sumbit", "x.yml")
    assert done.returncode == 2
    assert "Did you mean 'submit'?" in done.stderr


def test_without_a_coordinator_the_error_says_what_to_do(empty_home: dict[str, str]) -> None:
    done = deborgen("list", **empty_home)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("error: no coordinator is known here\n")


def test_an_unexpected_failure_is_one_sentence_and_exit_code_1(empty_home: dict[str, str]) -> None:
    code = "import deborgen.profile as p; p.find = lambda *a: 1 / 0\nfrom deborgen.cli import main; main(['list'])"
    env = {**os.environ, **empty_home}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "unexpected ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_not_an_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m deborgen schema | head -c 10 > /dev/null; echo $?"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_every_exit_code_is_in_the_table() -> None:
    used = {
        kind.exit_code
        for module in ("errors", "waiting", "transfers")
        for kind in vars(importlib.import_module(f"deborgen.{module}")).values()
        if isinstance(kind, type) and issubclass(kind, errors.DeborgenError)
    }
    function = next(
        each for each in ast.parse((PACKAGE / "cli.py").read_text()).body if getattr(each, "name", "") == "_main"
    )
    returned = {
        each.value.value
        for each in ast.walk(function)
        if isinstance(each, ast.Return) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, int)
    }
    assert returned == {1, 130, 141}
    assert used | returned <= set(errors.EXIT_CODES)


def test_the_documentation_has_the_table_of_exit_codes() -> None:
    _, _, section = (ROOT / "docs/cli.md").read_text().partition("\n## Exit codes\n")
    section, _, _ = section.partition("\n## ")
    documented = {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)}
    assert documented == errors.EXIT_CODES


def test_check_offline_needs_no_coordinator(empty_home: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("run: echo ${{ x }}\nsweep: {grid: {x: {from: 1, to: 100}}}\n")
    done = deborgen("check", "--offline", str(job), **empty_home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{job} is valid: 100 jobs",
        "    1  x=1  echo 1",
        "    2  x=2  echo 2",
        "    3  x=3  echo 3",
        "       … 95 more …",
        "   99  x=99  echo 99",
        "  100  x=100  echo 100",
    ]


def test_check_without_a_coordinator_says_what_it_skipped(empty_home: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("run: ls\n")
    done = deborgen("check", str(job), **empty_home)
    assert done.returncode == 0
    assert "skipped the checks that need a coordinator" in done.stderr
    assert deborgen("check", "--url", "http://127.0.0.1:9", str(job), **empty_home).returncode == 5


def test_a_wrong_job_file_is_exit_code_3_with_the_report_on_stderr(empty_home: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("run: ls\nmemroy: 8GiB\n")
    done = deborgen("check", "--offline", str(job), **empty_home)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.search(r"job\.yml:2:1: unknown key 'memroy'", done.stderr)
    assert done.stderr.endswith("1 problem, it cannot be submitted.\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    done = deborgen("completion", shell)
    assert "_DEBORGEN_COMPLETE" in done.stdout


def test_completion_knows_the_commands() -> None:
    done = deborgen(_DEBORGEN_COMPLETE="bash_complete", COMP_WORDS="deborgen wo", COMP_CWORD="1")
    assert done.stdout.strip() == "plain,workers"


@pytest.mark.parametrize("kind", ["hello", "container", "sweep", "steps", "git"])
def test_init_writes_a_valid_file_and_never_overwrites_one(
    kind: str, empty_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = deborgen("init", kind)
    assert done.stdout == f"{kind}.yml\n"
    assert deborgen("check", "--offline", f"{kind}.yml", **empty_home).returncode == 0
    assert deborgen("init", kind).returncode == 7
    assert deborgen("init", kind, "--force").returncode == 0
