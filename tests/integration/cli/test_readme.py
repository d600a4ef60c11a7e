"""A new user's path, by the text of the README and of docs/tour.md: typed in a clean clone, shown as they say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import ROOT, Typed, clone_into, differences, typed

from .screen import Terminal


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A copy of what a fresh clone of the working tree would have, for a new user."""
    folder = clone_into(tmp_path / "deborgen")
    yield folder
    if (folder / ".venv").exists():
        type_in(folder, Typed("deborgen down"))


def environment(folder: Path) -> dict[str, str]:
    dropped = ("DEBORGEN_", "XDG_", "VIRTUAL_ENV", "PYTHON", "NO_COLOR", "MAKE", "MFLAGS")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    kept["PATH"] = ":".join(part for part in kept["PATH"].split(":") if ".venv" not in part)
    # Jobs have the same priority as the tests. Otherwise they would wait for minutes while other tests are busy.
    return kept | {"HOME": str(folder.parent / "home"), "LANG": "C.UTF-8", "DEBORGEN_WORKER_PRIORITY": "normal"}


def type_in(folder: Path, line: Typed) -> None:
    """Type one command of a document; what it shows must be what the document says."""
    script = f"[ -e .venv/bin/activate ] && . .venv/bin/activate\n{line.command}\n"
    if not line.shown:
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=900,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {line.command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return
    terminal = Terminal(["bash", "-c", script], folder, environment(folder))
    try:
        code = terminal.end(180)
        assert code == 0, f"$ {line.command}\nended with {code}:\n{terminal.screen.text}"
        missing = differences(line.shown, terminal.screen.text)
        assert not missing, f"$ {line.command}\ndoes not show {missing}, but:\n{terminal.screen.text}"
    finally:
        terminal.close()


@pytest.mark.timeout(1200)
def test_every_command_of_the_readme_works_as_shown(clone: Path) -> None:
    lines = typed(ROOT / "README.md")
    assert [line.command for line in lines[:2]] == ["make install", "make demo"]
    lines += typed(ROOT / "docs/tour.md")
    assert len(lines) >= 20
    for line in lines:
        type_in(clone, line)
    assert not (clone.parent / "home/.local/state/deborgen/up.json").exists(), "nothing is left running"
