"""Images of the coordinator and the worker, built from the project's own Containerfiles without any registry.

The base image is made from Debian's packages, and stays on the machine between runs. The wheels of all dependencies are
built for each run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.podman import CONF, IMAGE

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = "localhost/deborgen-base:1"
COORDINATOR = "localhost/deborgen-coordinator:test"
WORKER = "localhost/deborgen-worker:test"
POSTGRES = "localhost/deborgen-postgres:2"
PACKAGES = "python3,python3-venv,ca-certificates"
#: Stands in for the entry point of the image `postgres`: the same variables, the same folder, the same user.
POSTGRES_ENTRY = """#!/bin/sh
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
data=/var/lib/postgresql/data
if ! test -s $data/PG_VERSION; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D $data -E UTF8 --locale C -U "$POSTGRES_USER" --pwfile /tmp/password -A scram-sha-256 --auth-local trust
    rm /tmp/password
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $data postgres
    echo "host all all all scram-sha-256" >> $data/pg_hba.conf
fi
exec postgres -D $data -h '*' -k "${PGHOST:-/var/run/postgresql}"
"""


def environment(**more: str) -> dict[str, str]:
    """Our own environment without a developer's settings, and with the tests' configuration of Podman."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("DEBORGEN_", "COMPOSE_"))}
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    return clean | {"CONTAINERS_CONF": str(CONF)} | more


def run(*words: str | Path, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=600, check=False,
        env=environment(**env), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, words))}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


def make_base() -> None:
    """Make a small Debian with Python."""
    make_debian(BASE, PACKAGES)


def make_postgres(folder: Path) -> None:
    """Make a small Debian with PostgreSQL, which starts like the image in compose.yaml."""
    entry = folder / "entry"
    entry.write_text(POSTGRES_ENTRY)
    make_debian(
        POSTGRES, "postgresql",
        f"--customize-hook=upload {entry} /entry", '--customize-hook=chmod 755 "$1/entry"',
        '--customize-hook=echo "postgres70:x:70:70::/var/lib/postgresql:/bin/sh" >> "$1/etc/passwd"',
        '--customize-hook=mkdir -p "$1/var/lib/postgresql/data" && chown 70:70 "$1/var/lib/postgresql/data"',
        changes=("ENTRYPOINT [\"/entry\"]", "VOLUME /var/lib/postgresql/data"),
    )  # fmt: skip


def make_debian(name: str, packages: str, *hooks: str, changes: tuple[str, ...] = ()) -> None:
    """Make an image of Debian with these packages, with mmdebstrap, if it does not exist."""
    present = subprocess.run(["podman", "image", "exists", name], check=False, env=environment()).returncode == 0
    if present:
        return
    if shutil.which("mmdebstrap") is None:
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", "mmdebstrap", DEBIAN_FRONTEND="noninteractive")
    tar = Path(f"/var/tmp/{name.partition('/')[2].partition(':')[0]}.tar")
    run("mmdebstrap", "--variant=minbase", f"--include={packages}", *hooks, "bookworm", tar)
    run("podman", "import", *(word for change in changes for word in ("--change", change)), tar, name)
    tar.unlink()


def make_context(folder: Path) -> Path:
    """Make the build context, with the wheels of all dependencies, so that the build needs no index."""
    context = folder / "context"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for part in ("shared", "coordinator", "worker"):
        shutil.copytree(ROOT / part, context / part, ignore=ignore)
    shutil.copytree(ROOT / "deploy" / "compose", context / "deploy" / "compose")
    shutil.copy(ROOT / "constraints.txt", context)
    wheels = context / "deploy" / "compose" / "wheels"
    parts = [f"{context}/shared[http]", f"{context}/coordinator[postgres,rabbitmq,s3]", f"{context}/worker"]
    run(sys.executable, "-m", "pip", "wheel", "-q", "-c", ROOT / "constraints.txt", "-w", wheels, *parts,
        "setuptools", "wheel")  # fmt: skip
    for wheel in wheels.glob("deborgen*.whl"):
        wheel.unlink()  # these are built inside the image, from source
    return context


BUILD = {"BASE_IMAGE": BASE, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/src/deploy/compose/wheels"}


@pytest.fixture(scope="session")
def images(podman_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context; coordinator and worker are built from it, by podman-compose."""
    make_base()
    context = make_context(tmp_path_factory.mktemp("images"))
    Compose(context, tmp_path_factory.mktemp("built"), name="build").run("--profile", "worker", "build")
    return context


class Compose:
    """`podman-compose` on compose.yaml of a context, with settings of its own."""

    def __init__(self, context: Path, folder: Path, name: str, **settings: str | None) -> None:
        self.files = [context / "deploy" / "compose" / "compose.yaml"]
        self.folder, self.name = folder, name
        wanted = {
            **BUILD, "COORDINATOR_IMAGE": COORDINATOR, "WORKER_IMAGE": WORKER, "DEBORGEN_DEFAULT_IMAGE": IMAGE,
            **settings,
        }  # fmt: skip
        self.settings = {name: value for name, value in wanted.items() if value is not None}

    def run(self, *words: str) -> str:
        files = [word for file in self.files for word in ("-f", file)]
        return run(sys.executable, "-m", "podman_compose", *files, "-p", self.name, *words, **self.settings)
