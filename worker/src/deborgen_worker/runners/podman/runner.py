"""Jobs in Podman's containers."""

from __future__ import annotations

from pathlib import Path

from deborgen_worker.runners.containers.runner import ContainerRunner
from deborgen_worker.runners.podman.engine import PodmanEngine
from deborgen_worker.runners.protocol import Tell
from deborgen_worker.runners.watchdog import Watchdog
from deborgen_worker.settings import Settings


class PodmanRunner(ContainerRunner):
    """The promise of `protocol.Runner`, kept with Podman."""

    name = "podman"

    def __init__(self, settings: Settings, state: Path, tell: Tell, watchdog: Watchdog) -> None:
        super().__init__(PodmanEngine(settings.name, settings.podman_socket, state), tell, watchdog)
