from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compose import images
from support.in_process import InProcessCoordinator
from support.podman import podman, podman_ready
from support.postgres import postgres, postgres_url

__all__ = ["both", "images", "podman", "podman_ready", "postgres", "postgres_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessCoordinator]:
    """A coordinator in this process, whose clock the test moves. The test runs once on each database."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    coordinator = InProcessCoordinator(tmp_path / "coordinator", url)
    yield coordinator
    coordinator.stop()
