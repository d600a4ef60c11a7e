"""Which runners this worker has: what the owner said, and what works here."""

from __future__ import annotations

from pathlib import Path

from deborgen_shared.states import RunAs
from deborgen_worker.runners.protocol import CannotStart, Runner, Tell
from deborgen_worker.runners.subprocess import SubprocessRunner
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.settings import Settings, SettingsError


def make_runners(settings: Settings, state: Path, tell: Tell) -> dict[str, Runner]:
    """By what they run jobs as. Where Podman is wanted and does not work, the refusal says what to do."""
    runners: dict[str, Runner] = {}
    supervision = Supervision(state, apart=settings.supervisor == "apart")
    if settings.runner in {"auto", "podman", "both"}:
        from deborgen_worker.runners.containers.runner import ContainerRunner
        from deborgen_worker.runners.podman.engine import PodmanEngine  # large, and not needed for plain processes

        try:
            engine = PodmanEngine(settings.name, settings.podman_socket, state)
            runners[RunAs.CONTAINER] = ContainerRunner(engine, tell, supervision)
        except CannotStart as error:
            supervision.close()
            hint = "; to run jobs as plain processes of this user instead, say --runner subprocess"
            raise SettingsError(f"Podman does not work here: {error}{hint}") from None
    if settings.runner in {"subprocess", "both"}:
        runners[RunAs.PROCESS] = SubprocessRunner(supervision, tell)
    return runners
