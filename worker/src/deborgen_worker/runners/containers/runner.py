"""Jobs in containers: implements `protocol.Runner` with any engine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection

from deborgen_shared.jobfile.images import POOL
from deborgen_shared.states import Cause
from deborgen_worker.attempts import Standing
from deborgen_worker.folders import OUTPUT
from deborgen_worker.logs import Log
from deborgen_worker.runners.containers.creating import create, remove
from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState, Engine, EngineError
from deborgen_worker.runners.containers.following import Container, Follower
from deborgen_worker.runners.containers.images import ImageStore
from deborgen_worker.runners.containers.judging import program_fault
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, Report, RunnerDown, Unavailable
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.steps import Adopted

#: Retry a call for this many seconds if it fails although the container is in the right state.
STEER_SECONDS = 1.0


class ContainerRunner:
    """Each attempt has a container of its own, which keeps running even if the worker stops."""

    def __init__(
        self,
        engine: Engine,
        report: Report,
        supervision: Supervision,
        registries: frozenset[str] = frozenset(),
        images: ImageStore | None = None,
    ) -> None:
        self.name, self._images = engine.name.lower(), images
        self._engine, self._supervision, self._registries = engine, supervision, registries
        self._containers: dict[str, Container] = {}
        self._follower = Follower(engine, report, supervision)

    def check(self) -> str:
        try:
            self._engine.check()
        except CannotStart as error:
            return str(error)
        return self._supervision.check()

    def describe(self) -> Host:
        return self._engine.describe()

    def log(self, launch: Launch) -> Log:
        return self._engine.log(launch)

    def images(self) -> list[str]:
        """The ids of the pool's images on this machine."""
        return self._images.digests() if self._images is not None else []

    def remove_images(self) -> list[str]:
        """Remove the images that this worker has pulled, loaded or built, and return their names. Raises
        `CannotStart`."""
        return self._engine.remove_images() + (self._images.remove_all() if self._images is not None else [])

    def close(self) -> None:
        self._engine.close()
        self._supervision.close()

    # Starting

    def prepare(self, launch: Launch) -> None:
        if launch.attempt not in self._containers:
            if launch.pool_image is None and launch.image.startswith(POOL):
                raise Unavailable(Cause.IMAGE_UNKNOWN, f"the image {launch.image} was removed from the pool")
            if launch.pool_image is not None and self._images is not None:
                launch.image_id = self._images.obtain(launch.pool_image, launch.image, launch.credentials)
            self._containers[launch.attempt] = Container(create(self._engine, launch, self._registries), launch)

    def start(self, launch: Launch) -> None:
        self.prepare(launch)
        container = self._containers[launch.attempt]
        try:
            with container.steering:
                self._start(container)
        except RunnerDown:
            raise
        except CannotStart as error:
            return self._not_started(container, str(error))
        return self._follower.follow(container)

    def _start(self, container: Container) -> None:
        """Start a container, unless it was already sent a signal. If it was already frozen, freeze it at once.

        The supervisor hears of it first: the worker may die at any moment.
        """
        if container.signalled:
            raise CannotStart("it was ended before it started")
        container.started = time.monotonic()
        self._supervision.watch(container.launch, 0.0, self._engine.commands(container.id))
        self._engine.start(container.id)
        if container.frozen:
            self._steer(container, self._engine.pause, ContainerState.RUNNING)

    def _not_started(self, container: Container, message: str) -> None:
        """Remove the container. If the program is to blame, report its end; otherwise raise `CannotStart`."""
        with contextlib.suppress(CannotStart):
            self._engine.remove(container.id)
        self._supervision.unwatch(container.launch.attempt)
        self._containers.pop(container.launch.attempt, None)
        exit_ = program_fault(container.launch, message)
        if exit_ is None:
            raise CannotStart(f"the container cannot be started: {message}")
        self._follower.ended(container, exit_)

    def adopt(self, launch: Launch) -> Adopted:
        seen = self._inspect(self._engine.name_of(launch.attempt))
        gone = Adopted(launch.attempt, Standing.GONE)
        if seen is None:
            # Without a container, only the program's output tells whether it was started.
            begun = (launch.folder / OUTPUT).exists()
            return gone if begun else Adopted(launch.attempt, Standing.NEVER_STARTED)
        if seen.attempt != launch.attempt or seen.state is ContainerState.LOST:
            return gone
        if seen.state is ContainerState.CREATED:
            with contextlib.suppress(EngineError):  # if this fails, the next start removes the container
                self._engine.remove(seen.id)
            return Adopted(launch.attempt, Standing.NEVER_STARTED)
        age = max(0.0, time.time() - seen.started_at) if seen.started_at else 0.0
        frozen = seen.state is ContainerState.PAUSED
        container = Container(seen.id, launch, started=time.monotonic() - age, frozen=frozen)
        self._containers[launch.attempt] = container
        found = self._supervision.watch(launch, age, self._engine.commands(seen.id))
        self._follower.follow(container)
        standing = Standing.ENDED if seen.state is ContainerState.ENDED else Standing.RUNNING
        return Adopted(launch.attempt, standing, frozen, found.get("stopped", 0.0))

    # Steering

    def signal(self, attempt: str, name: str) -> None:
        if container := self._containers.get(attempt):
            with container.steering:
                container.signalled = True
                if container.frozen:
                    self._wake(container, even_if_refused=name == "KILL")
                self._steer(
                    container, lambda id_: self._engine.kill(id_, name), ContainerState.RUNNING, ContainerState.PAUSED
                )

    def freeze(self, attempt: str) -> None:
        if container := self._containers.get(attempt):
            with container.steering:
                container.frozen = True
                self._steer(container, self._engine.pause, ContainerState.RUNNING)
                self._supervision.note_frozen(attempt, frozen=True)

    def thaw(self, attempt: str) -> None:
        if container := self._containers.get(attempt):
            with container.steering:
                self._wake(container)

    def is_frozen(self, attempt: str) -> bool:
        container = self._containers.get(attempt)
        seen = self._inspect(container.id) if container is not None else None
        return seen is not None and seen.state is ContainerState.PAUSED

    def _wake(self, container: Container, even_if_refused: bool = False) -> None:
        """Wake a frozen container. A frozen program gets no signal but KILL: it could not clean up."""
        try:
            self._steer(container, self._engine.unpause, ContainerState.PAUSED)
        except CannotStart:
            if not even_if_refused:
                raise
        container.frozen = False
        self._supervision.note_frozen(container.launch.attempt, frozen=False)

    def _steer(self, container: Container, call: Callable[[str], None], *states: ContainerState) -> None:
        """Make a call that only makes sense for a container in one of these states. In other states, do nothing.

        The state is checked only after the call has failed, because the container may end at any moment. So it is not
        an error if the container has ended, or if the call took effect and only its answer was lost. A call that fails
        in one of these states is retried, because the program may be about to end.
        """
        end = time.monotonic() + STEER_SECONDS
        while container.started and not container.finished:
            try:
                call(container.id)
                break
            except CannotStart:
                seen = self._inspect(container.id)
                if seen is None or seen.state not in states:
                    break
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _inspect(self, container: str) -> ContainerInfo | None:
        try:
            return self._engine.inspect(container)
        except EngineError as error:
            raise RunnerDown(str(error)) from None

    # Removing

    def discard(self, attempt: str) -> None:
        container = self._containers.get(attempt)
        if container is not None:
            container.finished = True
        remove(self._engine, container.id if container is not None else self._engine.name_of(attempt))
        self._supervision.unwatch(attempt)
        self._containers.pop(attempt, None)  # only now: if the removal fails, a retry needs the id

    def cleanup(self, keep: Collection[str]) -> list[str]:
        gone = []
        for container, attempt in self._engine.containers():
            if attempt not in keep:
                with contextlib.suppress(CannotStart):
                    remove(self._engine, container)
                    gone.append(attempt or container[:12])
        return gone
