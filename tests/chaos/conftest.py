from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compose import images
from support.podman import podman, podman_ready
from support.postgres import postgres, postgres_url
from support.simulation_coordinator import InProcess

__all__ = ["both", "images", "podman", "podman_ready", "postgres", "postgres_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcess]:
    """A coordinator in this process, on SQLite and on PostgreSQL, whose clock the test moves."""
    coordinator = InProcess(tmp_path, request.getfixturevalue("postgres_url") if request.param == "postgres" else "")
    yield coordinator
    coordinator.down()
