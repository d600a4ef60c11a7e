"""Each of the four parts is a wheel that installs alone, with what it needs and without what it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PARTS = {
    "shared": ("deborgen-shared", "deborgen_shared.messages", ["flask", "peewee", "podman", "click", "requests"]),
    "coordinator": ("deborgen-coordinator", "deborgen_coordinator.app", ["podman", "rich", "deborgen_worker"]),
    "worker": ("deborgen-worker", "deborgen_worker.daemon", ["flask", "peewee", "click", "deborgen_coordinator"]),
    "cli": ("deborgen", "deborgen.cli", ["flask", "peewee", "podman", "deborgen_coordinator", "deborgen_worker"]),
}
COMMANDS = {"coordinator": "deborgen-coordinator", "worker": "deborgen-worker", "cli": "deborgen"}


def run(*words: str | Path, timeout: float = 280) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of this checkout, built from copies, so that nothing is left in it."""
    folder = tmp_path_factory.mktemp("wheels")
    for part in PARTS:
        copy = folder / "source" / part
        shutil.copytree(ROOT / part, copy, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", copy)
    return folder / "dist"


@pytest.mark.parametrize("part", PARTS)
def test_a_part_installs_alone(part: str, wheels: Path, tmp_path: Path) -> None:
    name, module, strangers = PARTS[part]
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", "--find-links", wheels, name)
    run(python, "-c", f"import {module}")
    (carried,) = (tmp_path / "venv").glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info/licenses")
    for text in ("LICENSE", "NOTICE"):
        assert (carried / text).read_bytes() == (ROOT / text).read_bytes()
    assert "License-Expression: Apache-2.0" in (carried.parent / "METADATA").read_text("utf-8")
    for stranger in strangers:
        found = run(python, "-c", f"import importlib.util as u; print(u.find_spec({stranger!r}) is not None)")
        assert found.strip() == "False", f"{name} brings {stranger} along"
    if part in COMMANDS:
        assert "usage" in run(tmp_path / "venv" / "bin" / COMMANDS[part], "--help").lower()


def test_the_wheel_of_the_coordinator_has_every_file_of_the_dashboard(wheels: Path) -> None:
    """Seen to fail when it lacked the icon."""
    (wheel,) = wheels.glob("deborgen_coordinator-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "coordinator" / "src"
    files = [path for folder in ("templates", "static") for path in source.glob(f"deborgen_coordinator/web/{folder}/*")]
    assert len(files) > 20
    assert [path.name for path in files if str(path.relative_to(source)) not in packed] == []
