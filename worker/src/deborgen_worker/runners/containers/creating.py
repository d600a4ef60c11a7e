"""Create and remove containers, even if an earlier start or removal was interrupted."""

from __future__ import annotations

import contextlib
import time

from deborgen_worker.runners.containers.engine import ContainerState, Engine, EngineError, ImageMissing, NameTaken
from deborgen_worker.runners.containers.pulling import pull
from deborgen_worker.runners.protocol import CannotStart, Launch

REMOVE_TRIES = 5


def create(engine: Engine, launch: Launch, registries: frozenset[str]) -> str:
    """Create the attempt's container and return its id. Raises `CannotStart`.

    A missing image is pulled if its registry is among `registries`.
    """
    try:
        try:
            return engine.create(launch)
        except ImageMissing:
            pull(engine, launch.image, registries)
        except NameTaken:
            _remove_unstarted(engine, launch)
        return engine.create(launch)
    except EngineError as error:
        raise CannotStart(f"the container cannot be created: {error}") from None


def _remove_unstarted(engine: Engine, launch: Launch) -> None:
    """Remove the container of an interrupted start. If it has run, refuse: an attempt starts at most once."""
    seen = engine.inspect(engine.name_of(launch.attempt))
    if seen is not None:
        if seen.state is not ContainerState.CREATED:
            raise CannotStart("the attempt's container was started before")
        engine.remove(seen.id)


def remove(engine: Engine, container: str) -> None:
    """Kill and remove a container. It is not an error if it does not exist."""
    for tries in range(1, REMOVE_TRIES + 1):
        with contextlib.suppress(EngineError):  # it may have ended already
            engine.kill(container, "KILL")
        try:
            return engine.remove(container)
        except EngineError:
            # If the container's monitor process was killed, the engine notices the end only at the second try.
            if tries == REMOVE_TRIES:
                raise
        time.sleep(0.3)
    return None
