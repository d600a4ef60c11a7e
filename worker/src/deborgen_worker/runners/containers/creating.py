"""Containers are created and removed here, and what an interrupted start or removal left is found again."""

from __future__ import annotations

import contextlib
import time

from deborgen_worker.runners.containers.engine import Engine, EngineError, ImageMissing, NameTaken, State
from deborgen_worker.runners.protocol import CannotStart, Launch

REMOVE_TRIES = 5


def create(engine: Engine, launch: Launch) -> str:
    """The id of the attempt's new container. Raises `CannotStart`."""
    try:
        try:
            return engine.create(launch)
        except ImageMissing:
            pull(engine, launch.image)
        except NameTaken:
            _remove_unstarted(engine, launch)
        return engine.create(launch)
    except EngineError as error:
        raise CannotStart(f"the container cannot be created: {error}") from None


def pull(engine: Engine, image: str) -> None:
    try:
        engine.pull(image)
    except EngineError as error:
        raise CannotStart(f"the image {image} could not be pulled: {error}") from None


def _remove_unstarted(engine: Engine, launch: Launch) -> None:
    """Remove a container that an interrupted start left. One that was started is never started again."""
    seen = engine.inspect(engine.name_of(launch.attempt))
    if seen is not None:
        if seen.state is not State.CREATED:
            raise CannotStart("it was started before")
        engine.remove(seen.id)


def remove(engine: Engine, container: str) -> None:
    """End it and remove it. One that does not exist is not an error."""
    for tries in range(1, REMOVE_TRIES + 1):
        with contextlib.suppress(EngineError):  # one that does not run cannot be killed
            engine.kill(container, "KILL")
        try:
            return engine.remove(container)
        except EngineError:
            # One whose monitor was killed is only found to be over at the second try.
            if tries == REMOVE_TRIES:
                raise
        time.sleep(0.3)
    return None
