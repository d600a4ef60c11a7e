"""Make the runners of this worker, as the owner's settings say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from deborgen_shared.states import RunAs
from deborgen_worker.runners.isolation import Isolation
from deborgen_worker.runners.protocol import CannotStart, Report, Runner
from deborgen_worker.runners.subprocess import SubprocessRunner
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.settings import SettingsError, WorkerSettings


def make_runners(
    settings: WorkerSettings, state: Path, isolation: Isolation, fetch: Callable[[str, Path], None], report: Report
) -> dict[str, Runner]:
    """The runners, by the kind of job that they run. If Podman is wanted and does not work, the error says what to
    do.

    `fetch` gets a blob from the coordinator.
    """
    runners: dict[str, Runner] = {}
    if settings.builds and settings.runner in {RunAs.PROCESS, "subprocess"}:
        raise SettingsError("--builds needs Podman: use --runner podman or both")
    if settings.builds and shutil.which("podman") is None:
        raise SettingsError("--builds needs the program podman, which is not on this machine")
    supervision = Supervision(state, apart=settings.supervisor == "apart")
    if settings.runner in {"auto", "podman", "both"}:
        from deborgen_worker.runners.builds.leftovers import remove_images
        from deborgen_worker.runners.builds.runner import BuildRunner
        from deborgen_worker.runners.containers.images import ImageStore
        from deborgen_worker.runners.containers.runner import ContainerRunner
        from deborgen_worker.runners.podman.engine import PodmanEngine  # slow to import, and not always needed

        try:
            engine = PodmanEngine(settings.name, settings.podman_socket, state)
            images = ImageStore(
                engine, state / "images", settings.image_cache, fetch, settings.registries, remove_images
            )
            runners[RunAs.CONTAINER] = ContainerRunner(engine, report, supervision, settings.registries, images)
            if settings.builds:
                runners[RunAs.BUILD] = BuildRunner(
                    supervision, report, engine, images, state=state, registries=settings.registries,
                    memory=isolation.secrets,
                )  # fmt: skip
        except CannotStart as error:
            supervision.close()
            hint = "; to run jobs as plain processes instead, use --runner process"
            raise SettingsError(f"Podman does not work here: {error}{hint}") from None
    if settings.runner in {RunAs.PROCESS, "both"}:
        runners[RunAs.PROCESS] = SubprocessRunner(supervision, report, isolation)
    return runners
