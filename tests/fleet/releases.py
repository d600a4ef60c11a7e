"""Releases of deborgen for the hosts: copies of this checkout's sources, and the archives and images made of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fleet.play import ANSIBLE, ROOT
from release import set_version
from support import compose
from support.examples import DEFAULT_IMAGE
from support.host_images import CACHE, locked, podman

PARTS = ("shared", "coordinator", "worker", "cli")
#: The archives that hosts install from. All stories of this checkout share them.
WHEELHOUSE = ROOT / ".cache" / "wheelhouse"
JOB_IMAGE = "localhost/deborgen-fleet-job:2"
APPLETS = ("sh", "sleep", "echo", "cat", "id", "hostname", "true", "mkdir", "seq", "date", "pwd", "grep", "wget")
BROKEN = "    import time; time.sleep(1e6)  # broken\n"


def copy_sources(target: Path) -> None:
    """Copy the checkout as it is now, so that an edit in the middle of a story changes no release."""
    for part in PARTS:
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    shutil.copy2(ROOT / "constraints.txt", target)


def make_release(source: Path, version: str, *, broken: bool = False) -> None:
    """Make another release of the sources; a broken one starts and never answers."""
    set_version(source, version)
    server = source / "coordinator" / "src" / "deborgen_coordinator" / "__main__.py"
    text = server.read_text().replace(BROKEN, "")
    if broken:
        place = "    from deborgen_coordinator.server import serve\n"
        text = text.replace(place, BROKEN + place, 1)
        assert BROKEN in text
    server.write_text(text)


def build_archive(source: Path, python: str) -> Path:
    """Build the archive for hosts with that Python, as the playbooks would; they find it in the wheelhouse later."""
    script = ANSIBLE / "roles" / "deborgen_base" / "files" / "build_wheelhouse.py"
    command = [
        sys.executable, str(script), f"--source={source}", f"--cache={WHEELHOUSE}", f"--python={python}",
        f"--machine={os.uname().machine}",
    ]  # fmt: skip
    with locked("wheelhouse"):
        output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
    answer: dict[str, Any] = json.loads(output)
    return Path(answer["archive"])


def job_image_archive() -> Path:
    """A tiny image that Podman can load, as a file: busybox and nothing else. It is made once per machine."""
    archive = CACHE / "job-image-2.tar"
    with locked("job-image"):
        if not archive.exists():
            tree, draft = CACHE / "job-image", CACHE / "job-image.draft"
            shutil.rmtree(tree, ignore_errors=True)
            (tree / "bin").mkdir(parents=True)
            (tree / "tmp").mkdir()
            shutil.copy2("/bin/busybox", tree / "bin" / "busybox")
            for applet in APPLETS:
                (tree / "bin" / applet).symlink_to("busybox")
            subprocess.run(["tar", "-C", tree, "-cf", CACHE / "job-image.tree", "."], check=True)
            _podman("import", "-q", str(CACHE / "job-image.tree"), JOB_IMAGE)
            draft.unlink(missing_ok=True)
            _podman("save", "-q", "-o", str(draft), JOB_IMAGE)
            _podman("rmi", JOB_IMAGE)
            draft.replace(archive)
    return archive


def default_image_archive() -> Path:
    """The pool's default image as a file: a small Debian with Python under the name that the playbooks set."""
    archive = CACHE / "default-image.tar"
    with locked("coordinator-image"):
        compose.make_base()
        if not archive.exists():
            draft = CACHE / "default-image.draft"
            draft.unlink(missing_ok=True)
            _podman("tag", compose.BASE, DEFAULT_IMAGE)
            try:
                _podman("save", "-q", "-o", str(draft), DEFAULT_IMAGE)
            finally:
                _podman("untag", compose.BASE, DEFAULT_IMAGE)
            draft.replace(archive)
    return archive


def coordinator_image(source: Path, folder: Path) -> tuple[str, Path]:
    """The image that deploy/compose builds of the sources, without any registry: its name, and an archive of it."""
    context = folder / "context"
    if not context.exists():
        with locked("coordinator-image"):
            compose.make_base()
        compose.make_context(folder)
    for part in ("shared", "coordinator"):
        shutil.rmtree(context / part)
        shutil.copytree(source / part, context / part)
    version = re.search(r'^version = "([^"]+)"', (context / "coordinator/pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    name, archive = f"localhost/deborgen-fleet-coordinator:{version[1]}", folder / f"image-{version[1]}.tar"
    with locked("coordinator-image"):  # the name is the same in each run
        compose.Compose(context, folder, "build", COORDINATOR_IMAGE=name).run("build", "coordinator")
        _podman("save", "-q", "-o", str(archive), name)
        _podman("rmi", name)
    return name, archive


def _podman(*words: str) -> None:
    subprocess.run([*podman(), *words], check=True, capture_output=True, timeout=600)
