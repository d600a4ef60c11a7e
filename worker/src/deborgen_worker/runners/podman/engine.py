"""The promise of `containers.engine.Engine`, kept with podman-py's managers.

Two requests are made by hand, each with the reason. podman-py's `run` and `wait` are not used at all: the one loses
output, and the other has a timeout for each read and none for the whole.
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
from deborgen_worker.runners.containers.engine import EngineError, ImageMissing, NameTaken, Seen
from deborgen_worker.runners.podman.client import STEER, Refused, connected
from deborgen_worker.runners.podman.reading import host_in, seen_in
from deborgen_worker.runners.podman.service import Service
from deborgen_worker.runners.podman.spec import ATTEMPT_LABEL, WORKER_LABEL, container_name, container_spec
from deborgen_worker.runners.protocol import Host, Launch

QUICK = 10.0
SLOW = 60.0
PULL = 900.0


class PodmanEngine:
    """Podman's service over its socket: the one that is there, or one of our own."""

    name = "Podman"

    def __init__(self, worker: str, socket: str, state: Path) -> None:
        self._worker = worker
        self._service = Service(socket, state)
        #: Before Podman 5, conmon leaves this file where the service was started.
        self.oom_file = self._service.folder / "oom"
        with self._connected(SLOW) as podman:
            self._info = dict(podman.info())

    def _connected(self, seconds: float) -> contextlib.AbstractContextManager[Any]:
        return connected(self._service.url, seconds)

    def check(self) -> None:
        self._service.check()

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
        with self._connected(SLOW) as podman:
            # Not by podman-py's `create`: it leaves out or ignores some of what isolation needs, such as `tmpfs`.
            kind = {headers.CONTENT_TYPE: "application/json"}
            answer = podman.api.post("/containers/create", data=json.dumps(spec), headers=kind)
            answer.raise_for_status()
            return str(answer.json()["Id"])

    def pull(self, image: str) -> None:
        """Pull, and make sure that it came: the service reports a failure inside a successful answer."""
        with self._connected(PULL) as podman:
            # Not by podman-py's `pull`: it loses the reason of a failure, and lets the service report its progress, of
            # which every line would extend the deadline.
            answer = podman.api.post("/images/pull", params={"reference": image, "quiet": True})
            answer.raise_for_status()
            if not podman.images.exists(image):
                failures = [json.loads(line).get("error") for line in answer.text.splitlines()]
                raise EngineError(next(filter(None, failures), "Podman does not say why"))

    def start(self, container: str) -> None:
        self._steer(container, "start", SLOW)

    def inspect(self, container: str) -> Seen | None:
        try:
            with self._connected(QUICK) as podman:
                return seen_in(podman.containers.get(container).attrs)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def kill(self, container: str, signal: str) -> None:
        self._steer(container, "kill", QUICK, signal)

    def pause(self, container: str) -> None:
        self._steer(container, "pause", QUICK)

    def unpause(self, container: str) -> None:
        self._steer(container, "unpause", QUICK)

    def commands(self, container: str) -> dict[str, list[str]]:
        # A service of our own ends with the worker, and is not needed: its containers are this user's.
        # Where there is one that stays, there may be no program `podman`, as in the worker's own image.
        podman = ["podman"] if self._service.own else [sys.executable, "-c", STEER, self._service.url]
        verbs = {"SIGKILL": "kill", "SIGSTOP": "pause", "SIGCONT": "unpause"}
        return {name: [*podman, verb, container] for name, verb in verbs.items()}

    def remove(self, container: str) -> None:
        try:
            with self._connected(SLOW) as podman:
                podman.containers.remove(container, force=True, v=True)
        except Refused as error:
            if error.status != 404:
                raise

    def containers(self) -> list[tuple[str, str]]:
        with self._connected(QUICK) as podman:
            # As a list of filters: podman-py turns one that is given by name into text that matches nothing.
            found = podman.containers.list(all=True, filters=[f"label={WORKER_LABEL}={self._worker}"])
            return [(each.id, each.labels.get(ATTEMPT_LABEL, "")) for each in found]

    def log(self, launch: Launch) -> Log:
        return K8sLog(launch.folder / OUTPUT)

    def close(self) -> None:
        """Our own service is not needed by what runs: the next session starts another."""
        self._service.close()

    def _steer(self, container: str, verb: str, seconds: float, *words: str) -> None:
        """By podman-py's object for a container, without the request by which its `get` would first ask for it."""
        with self._connected(seconds) as podman:
            getattr(podman.containers.prepare_model({"Id": container}), verb)(*words)
