"""The promise of `containers.engine.Engine`, kept with podman-py's managers.

Two requests are made by hand, each with the reason. podman-py's `run` and `wait` are not used at all: the one loses
output, and the other has a timeout for each read and none for the whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deborgen_shared import headers
from deborgen_worker.logs import K8sLog, Log
from deborgen_worker.runners.containers.engine import OUTPUT, EngineError, ImageMissing, NameTaken, Seen
from deborgen_worker.runners.podman.client import Client, Refused
from deborgen_worker.runners.podman.reading import host_in, seen_in
from deborgen_worker.runners.podman.service import Service
from deborgen_worker.runners.podman.spec import ATTEMPT_LABEL, WORKER_LABEL, container_name, container_spec
from deborgen_worker.runners.protocol import CannotStart, Host, Launch

QUICK = 10.0
SLOW = 60.0
PULL = 900.0


class PodmanEngine:
    """Podman's service over its socket: the one that is there, or one of our own."""

    name = "Podman"

    def __init__(self, worker: str, socket: str, state: Path) -> None:
        self._worker = worker
        self._service = Service(socket, state)
        self._client = Client(self._service.url)
        #: Before Podman 5, conmon leaves this file where the service was started.
        self.oom_file = self._service.folder / "oom"
        try:
            with self._client.within(SLOW) as podman:
                self._info = dict(podman.info())
        except EngineError as error:
            raise CannotStart(str(error)) from None

    def check(self) -> None:
        if self._service.own:
            self._service.ensure()
        else:
            self._client.ping()

    def describe(self) -> Host:
        return host_in(self._info)

    def name_of(self, attempt: str) -> str:
        return container_name(self._worker, attempt)

    def create(self, launch: Launch) -> str:
        selinux = bool(self._info.get("host", {}).get("security", {}).get("selinuxEnabled"))
        try:
            return self._create(container_spec(self._worker, launch, relabel=selinux))
        except Refused as error:
            words = str(error).lower()
            if error.status == 404 or "no such image" in words or "image not known" in words:
                raise ImageMissing(str(error)) from None
            if error.status == 409 or "already in use" in words:
                raise NameTaken(str(error)) from None
            if "swap" not in words:
                raise
            return self._create(container_spec(self._worker, launch, swap=False, relabel=selinux))

    def _create(self, spec: dict[str, Any]) -> str:
        with self._client.within(SLOW) as podman:
            # Not by podman-py's `create`: it leaves out or ignores some of what isolation needs, such as `tmpfs`.
            kind = {headers.CONTENT_TYPE: "application/json"}
            answer = podman.api.post("/containers/create", data=json.dumps(spec), headers=kind)
            answer.raise_for_status()
            return str(answer.json()["Id"])

    def pull(self, image: str) -> None:
        """Pull, and make sure that it came: the service reports a failure inside a successful answer."""
        with self._client.within(PULL) as podman:
            # Not by podman-py's `pull`: it loses the reason of a failure, and lets the service report its progress, of
            # which every line would extend the deadline.
            answer = podman.api.post("/images/pull", params={"reference": image, "quiet": True})
            answer.raise_for_status()
            if not podman.images.exists(image):
                failures = [json.loads(line).get("error") for line in answer.text.splitlines()]
                raise EngineError(next(filter(None, failures), "Podman does not say why"))

    def start(self, container: str) -> None:
        with self._container(container, SLOW) as found:
            found.start()

    def inspect(self, container: str) -> Seen | None:
        try:
            with self._client.within(QUICK) as podman:
                return seen_in(podman.containers.get(container).attrs)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def kill(self, container: str, signal: str) -> None:
        with self._container(container, QUICK) as found:
            found.kill(signal)

    def pause(self, container: str) -> None:
        with self._container(container, QUICK) as found:
            found.pause()

    def unpause(self, container: str) -> None:
        with self._container(container, QUICK) as found:
            found.unpause()

    def commands(self, container: str) -> dict[str, list[str]]:
        # A service of our own ends with the worker, and is not needed: its containers are this user's.
        podman = ["podman"] if self._service.own else ["podman", "--url", self._service.url]
        verbs = {"SIGKILL": "kill", "SIGSTOP": "pause", "SIGCONT": "unpause"}
        return {name: [*podman, verb, container] for name, verb in verbs.items()}

    def remove(self, container: str) -> None:
        try:
            with self._client.within(SLOW) as podman:
                podman.containers.remove(container, force=True, v=True)
        except Refused as error:
            if error.status != 404:
                raise

    def containers(self) -> list[tuple[str, str]]:
        with self._client.within(QUICK) as podman:
            # As a list of filters: podman-py turns one that is given by name into text that matches nothing.
            found = podman.containers.list(all=True, filters=[f"label={WORKER_LABEL}={self._worker}"])
            return [(each.id, each.labels.get(ATTEMPT_LABEL, "")) for each in found]

    def log(self, launch: Launch) -> Log:
        return K8sLog(launch.folder / OUTPUT)

    def close(self) -> None:
        """Our own service is not needed by what runs: the next session starts another."""
        self._service.close()

    @contextlib.contextmanager
    def _container(self, container: str, seconds: float) -> Iterator[Any]:
        """podman-py's object for a container, without the request by which its `get` would first ask for it."""
        with self._client.within(seconds) as podman:
            yield podman.containers.prepare_model({"Id": container})
