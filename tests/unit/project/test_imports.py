"""The rules about who may import whom (`make lint`) notice what they forbid."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.documents import ROOT

BIN = Path(sys.executable).parent
PARTS = ("shared", "coordinator", "worker", "cli")

#: An import that must not be, the module that has it, and the rule that forbids it.
FORBIDDEN = [
    ("worker", "deborgen_worker/lifecycle.py", "import threading", "the core is pure"),
    ("worker", "deborgen_worker/attempts.py", "import deborgen_worker.disk", "the worker is a staircase"),
    ("worker", "deborgen_worker/runners/protocol.py", "import deborgen_worker.agent", "the worker is a staircase"),
    ("worker", "deborgen_worker/runners/programs.py", "from . import registry", "the runners are a staircase"),
    ("worker", "deborgen_worker/execution.py", "import podman", "only runners.podman knows podman"),
    ("worker", "deborgen_worker/claims.py", "import requests", "only shared's client and Podman's know requests"),
    ("worker", "deborgen_worker/runners/programs.py", "import msgspec", "the supervisor is small"),
    ("worker", "deborgen_worker/newcomer.py", "", "the worker is a staircase"),
    ("cli", "deborgen/runs.py", "import deborgen.commands.wait", "the command is a staircase"),
    ("cli", "deborgen/transfers.py", "import rich", "import deborgen needs no terminal"),
]  # fmt: skip


def broken_rules(root: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(root / part / "src") for part in PARTS)}
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"], cwd=root, env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return "\n".join(line for line in done.stdout.splitlines() if line.endswith(" BROKEN"))


def test_the_rules_notice_what_they_forbid(tmp_path: Path) -> None:
    """All rules are in one test, because copying and reading the whole project takes long."""
    for part in PARTS:
        shutil.copytree(ROOT / part / "src", tmp_path / part / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    assert broken_rules(tmp_path) == ""
    for part, module, line, rule in FORBIDDEN:
        file = tmp_path / part / "src" / module
        sound = file.read_text("utf-8") if file.exists() else None
        file.write_text(f"{sound or ''}\n{line}\n")
        assert rule in broken_rules(tmp_path), (module, line)
        if sound is None:
            file.unlink()
        else:
            file.write_text(sound)


def names_taken_from(module: str, file: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if node.module == module for alias in node.names}


def test_only_the_workers_coordinator_module_speaks_through_the_transport() -> None:
    """`daemon.py` makes the transport and hands it over; so does `stopping.py`, for the commands of the owner of a dead
    worker. The others know only the two errors of a call."""
    for file in sorted((ROOT / "worker/src/deborgen_worker").rglob("*.py")):
        if file.name not in ("coordinator.py", "daemon.py", "stopping.py"):
            taken = names_taken_from("deborgen_shared.client.transport", file)
            assert taken <= {"Refused", "NoAnswer"}, file.name
            assert names_taken_from("deborgen_shared.client", file) == set(), file.name


@pytest.mark.parametrize("code", ["import deborgen", "from deborgen import Client, InvalidJob, Results"])
def test_python_needs_neither_click_nor_rich(code: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert {"click", "rich"} & set(told.stdout.split()) == set()
