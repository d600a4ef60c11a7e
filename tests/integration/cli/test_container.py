"""The container example, unchanged, on a pool that `deborgen up` started with Podman."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.person import Person
from support.podman import CONF, IMAGE, podman_ready

__all__ = ["podman_ready"]

EXAMPLES = Path(__file__).parents[3] / "examples"
NAME = "docker.io/library/busybox:stable"

pytestmark = [pytest.mark.podman, pytest.mark.root]


@pytest.fixture
def image(podman_ready: None) -> Iterator[None]:
    """Make the example's image available on this machine, because there may be no registry to pull it from."""

    def podman(*words: str) -> int:
        return subprocess.run(["podman", *words], check=False, capture_output=True).returncode

    ours = podman("image", "exists", NAME) != 0 and podman("tag", IMAGE, NAME) == 0
    yield
    if ours:
        podman("untag", IMAGE, NAME)


def test_a_container_with_limits(image: None, tmp_path: Path) -> None:
    home = Person(tmp_path / "home", CONTAINERS_CONF=str(CONF))
    said = home.err("up", "--detach", "--runner", "podman", code=0)
    try:
        assert "runner: Podman for jobs with an image" in said
        assert "✓ containers (jobs with an image) can run on" in home.out("doctor")
        run = home.out("submit", str(EXAMPLES / "container/container.yml"), "--wait").strip()
        log = home.out("logs", run)
        assert "workspace /job" in log
        assert "no network, as promised" in log
        home.out("artifacts", "pull", run, "--into", "out")
        assert (home.folder / "out/note.txt").read_text() == "written in a container\n"
        starter = home.out("init", "container").strip()
        home.out("submit", starter, "--wait")
        assert home.out("run", "--image", NAME, "--", "echo", "in a box") == "in a box\n"
        assert home.out("run", "--", "echo", "without one") == "without one\n"
    finally:
        home.out("down")
