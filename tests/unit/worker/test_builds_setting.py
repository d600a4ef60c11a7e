"""A worker that cannot build images does not offer it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_worker.runners.isolation import Isolation
from deborgen_worker.runners.registry import make_runners
from deborgen_worker.settings import SettingsError, WorkerSettings


@pytest.mark.parametrize(
    ("runner", "programs", "why"),
    [("process", None, "use --runner podman or both"), ("both", "/nonexistent", "the program podman")],
)
def test_builds_need_podman(
    runner: str, programs: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if programs is not None:
        monkeypatch.setenv("PATH", programs)
    settings = WorkerSettings(runner=runner, builds=True, state_dir=str(tmp_path))
    with pytest.raises(SettingsError, match=why):
        make_runners(settings, tmp_path, Isolation(), lambda _digest, _path: None, lambda _events: None)
