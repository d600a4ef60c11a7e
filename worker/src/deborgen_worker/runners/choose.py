"""Which runners this worker has: what the owner said, and what works here."""

from __future__ import annotations

from pathlib import Path

from deborgen_shared.states import RunAs
from deborgen_worker.runners.protocol import CannotStart, Runner, Tell
from deborgen_worker.runners.subprocess import SubprocessRunner
from deborgen_worker.settings import Settings, SettingsError


def make_runners(settings: Settings, state: Path, tell: Tell) -> dict[str, Runner]:
    """By what they run jobs as. Where Podman is wanted and does not work, the refusal says what to do."""
    runners: dict[str, Runner] = {}
    processes = SubprocessRunner(state, tell)  # its supervisor watches over containers too
    if settings.runner in {"auto", "podman", "both"}:
        from deborgen_worker.runners.podman.runner import PodmanRunner  # large, and not needed for plain processes

        try:
            runners[RunAs.CONTAINER] = PodmanRunner(settings, state, tell, processes.watchdog)
        except CannotStart as error:
            processes.close()
            hint = "; to run jobs as plain processes of this user instead, say --runner subprocess"
            raise SettingsError(f"Podman does not work here: {error}{hint}") from None
    if settings.runner in {"subprocess", "both"}:
        runners[RunAs.PROCESS] = processes
    return runners
