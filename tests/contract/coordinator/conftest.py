"""A coordinator in this process, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.in_process import InProcessCoordinator
from support.postgres import own_postgres, postgres, postgres_url

__all__ = ["own_postgres", "postgres", "postgres_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: the same tests for SQLite and for PostgreSQL."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def make_pool(tmp_path: Path, database: str) -> Iterator[Callable[..., InProcessCoordinator]]:
    """Creates coordinators with the test's own settings, and stops them after the test."""
    made: list[InProcessCoordinator] = []

    def make(**settings: Any) -> InProcessCoordinator:
        made.append(InProcessCoordinator(tmp_path, database, **settings))
        return made[-1]

    yield make
    for coordinator in made:
        coordinator.stop()


@pytest.fixture
def pool(make_pool: Callable[..., InProcessCoordinator]) -> InProcessCoordinator:
    return make_pool()
