"""Keeps the promises of `containers.engine.Engine` with podman-py's managers.

Two requests are made by hand, for the reasons given there. podman-py's `run` and `wait` are not used: `run` loses
output, and `wait` has a timeout per read but none for the whole call.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from deborgen_shared import headers
from deborgen_worker.folders import OUTPUT
from deborgen_worker.logs import K8sLog, Log
from deborgen_worker.runners.containers.engine import ContainerInfo, EngineError, ImageMissing, NameTaken
from deborgen_worker.runners.podman.client import STEER, PodmanRefused, connected
from deborgen_worker.runners.podman.reading import container_info, host_from
from deborgen_worker.runners.podman.service import Service
from deborgen_worker.runners.podman.spec import ATTEMPT_LABEL, WORKER_LABEL, container_name, container_spec
from deborgen_worker.runners.protocol import Host, Launch

#: Deadlines of calls: quick ones, slow ones, and the pull of an image.
QUICK_SECONDS = 10.0
SLOW_SECONDS = 60.0
PULL_SECONDS = 900.0


class PodmanEngine:
    """Podman's service over its socket: a running one, or one that we start."""

    name = "Podman"

    def __init__(self, worker: str, socket: str, state: Path) -> None:
        self._worker = worker
        self._service = Service(socket, state)
        #: Before Podman 5, conmon leaves this file where the service was started.
        self.oom_file = self._service.folder / "oom"
        with self._connected(SLOW_SECONDS) as podman:
            self._info = dict(podman.info())

    def _connected(self, seconds: float) -> contextlib.AbstractContextManager[Any]:
        return connected(self._service.url, seconds)

    def check(self) -> None:
        self._service.check()

    def describe(self) -> Host:
        return host_from(self._info)

    def name_of(self, attempt: str) -> str:
        return container_name(self._worker, attempt)

    def create(self, launch: Launch) -> str:
        selinux = bool(self._info.get("host", {}).get("security", {}).get("selinuxEnabled"))
        try:
            return self._create(container_spec(self._worker, launch, relabel=selinux))
        except PodmanRefused as error:
            words = str(error).lower()
            if error.status == 404 or "no such image" in words or "image not known" in words:
                raise ImageMissing(str(error)) from None
            if error.status == 409 or "already in use" in words:
                raise NameTaken(str(error)) from None
            if "swap" not in words:
                raise
            return self._create(container_spec(self._worker, launch, swap=False, relabel=selinux))

    def _create(self, spec: dict[str, Any]) -> str:
        with self._connected(SLOW_SECONDS) as podman:
            # podman-py's `create` leaves out or ignores some settings that isolation needs, such as `tmpfs`.
            kind = {headers.CONTENT_TYPE: "application/json"}
            answer = podman.api.post("/containers/create", data=json.dumps(spec), headers=kind)
            answer.raise_for_status()
            return str(answer.json()["Id"])

    def pull(self, image: str) -> None:
        """Pull an image, and check that it is there: the service reports a failure inside a successful answer."""
        with self._connected(PULL_SECONDS) as podman:
            # podman-py's `pull` loses the reason for a failure, and has the service report its progress, where every
            # line would extend the deadline.
            answer = podman.api.post("/images/pull", params={"reference": image, "quiet": True})
            answer.raise_for_status()
            if not podman.images.exists(image):
                failures = [json.loads(line).get("error") for line in answer.text.splitlines()]
                raise EngineError(next(filter(None, failures), "Podman gives no reason"))

    def start(self, container: str) -> None:
        self._steer(container, "start", SLOW_SECONDS)

    def inspect(self, container: str) -> ContainerInfo | None:
        try:
            with self._connected(QUICK_SECONDS) as podman:
                return container_info(podman.containers.get(container).attrs)
        except PodmanRefused as error:
            if error.status == 404:
                return None
            raise

    def kill(self, container: str, signal: str) -> None:
        self._steer(container, "kill", QUICK_SECONDS, signal)

    def pause(self, container: str) -> None:
        self._steer(container, "pause", QUICK_SECONDS)

    def unpause(self, container: str) -> None:
        self._steer(container, "unpause", QUICK_SECONDS)

    def commands(self, container: str) -> dict[str, list[str]]:
        # Our own service ends with the worker, but the program `podman` can steer its containers.
        # With a permanent service there may be no program `podman`, as in the worker's own image.
        podman = ["podman"] if self._service.own else [sys.executable, "-c", STEER, self._service.url]
        verbs = {"SIGKILL": "kill", "SIGSTOP": "pause", "SIGCONT": "unpause"}
        return {name: [*podman, verb, container] for name, verb in verbs.items()}

    def remove(self, container: str) -> None:
        try:
            with self._connected(SLOW_SECONDS) as podman:
                podman.containers.remove(container, force=True, v=True)
        except PodmanRefused as error:
            if error.status != 404:
                raise

    def containers(self) -> list[tuple[str, str]]:
        with self._connected(QUICK_SECONDS) as podman:
            # Filters must be a list: podman-py turns a filter by name into text that matches nothing.
            found = podman.containers.list(all=True, filters=[f"label={WORKER_LABEL}={self._worker}"])
            return [(each.id, each.labels.get(ATTEMPT_LABEL, "")) for each in found]

    def log(self, launch: Launch) -> Log:
        return K8sLog(launch.folder / OUTPUT)

    def close(self) -> None:
        """Running containers do not need our own service. The next session starts another."""
        self._service.close()

    def _steer(self, container: str, verb: str, seconds: float, *words: str) -> None:
        """Call a method of podman-py's container object, without the extra request that its `get` would make."""
        with self._connected(seconds) as podman:
            getattr(podman.containers.prepare_model({"Id": container}), verb)(*words)
