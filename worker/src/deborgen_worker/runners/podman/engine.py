"""Implements `containers.engine.Engine` with podman-py's managers.

Two requests are made without a manager, for the reasons given in their comments. podman-py's `run` and `wait` are not
used: `run` loses output, and `wait` has a timeout per read but none for the whole call.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from deborgen_shared import headers
from deborgen_worker.folders import OUTPUT
from deborgen_worker.logs import K8sLog, Log
from deborgen_worker.runners.containers.engine import BuildGroup, ContainerInfo, ImageMissing, NameTaken, PullFailed
from deborgen_worker.runners.podman.client import STEER, PodmanRefused, connected
from deborgen_worker.runners.podman.group import lowest_group
from deborgen_worker.runners.podman.reading import cause_of, container_info, host_from
from deborgen_worker.runners.podman.service import Service
from deborgen_worker.runners.podman.spec import (
    ATTEMPT_LABEL,
    STATE_LABEL,
    WORKER_LABEL,
    container_name,
    container_spec,
)
from deborgen_worker.runners.protocol import Host, Launch, RunnerDown

#: The deadlines of quick calls, of slow calls, and of the pull of an image.
QUICK_SECONDS = 10.0
SLOW_SECONDS = 60.0
PULL_SECONDS = 900.0
#: A file in the service's folder: how the owner's commands find the engine if the worker is dead.
NOTE = "engine.json"


class PodmanEngine:
    """Podman, through its service: one that is already running, or one that we start."""

    name = "Podman"

    def __init__(self, worker: str, socket: str, state: Path) -> None:
        self._worker, self._state = worker, str(state)
        self._service = Service(socket, state)
        #: Before Podman 5, conmon leaves this file where the service was started.
        self.oom_file = self._service.folder / "oom"
        with self._connected(SLOW_SECONDS) as podman:
            self._info = dict(podman.info())
        self._group = lowest_group(self._info)
        #: The names of the images that this worker has pulled, one per line.
        self._pulled = self._service.folder / "images"
        note = {"worker": worker, "socket": "" if self._service.own else self._service.url}
        with contextlib.suppress(OSError):  # a full disk
            (self._service.folder / NOTE).write_text(json.dumps(note))

    @classmethod
    def of_dead_worker(cls, state: Path) -> PodmanEngine | None:
        """The engine that the last worker of this state directory used; None if it used none. Raises `CannotStart`."""
        try:
            note = json.loads((state / "podman" / NOTE).read_text())
        except (OSError, ValueError):
            return None
        return cls(note["worker"], note["socket"], state)

    def _connected(self, seconds: float) -> contextlib.AbstractContextManager[Any]:
        return connected(self._service.url, seconds)

    def check(self) -> None:
        self._service.check()

    def describe(self) -> Host:
        return host_from(self._info, lowest_weight=bool(self._group))

    def name_of(self, attempt: str) -> str:
        return container_name(self._worker, attempt)

    def create(self, launch: Launch) -> str:
        selinux = bool(self._info.get("host", {}).get("security", {}).get("selinuxEnabled"))
        try:
            return self._create(container_spec(self._worker, launch, relabel=selinux, group=self._group))
        except PodmanRefused as error:
            words = str(error).lower()
            if error.status == 404 or "no such image" in words or "image not known" in words:
                raise ImageMissing(str(error)) from None
            if error.status == 409 or "already in use" in words:
                raise NameTaken(str(error)) from None
            if "swap" not in words:
                raise
            spec = container_spec(self._worker, launch, swap=False, relabel=selinux, group=self._group)
            return self._create(spec)

    def _create(self, spec: dict[str, Any]) -> str:
        spec["labels"][STATE_LABEL] = self._state
        with self._connected(SLOW_SECONDS) as podman:
            # podman-py's `create` ignores some settings that isolation needs, such as `tmpfs`.
            kind = {headers.CONTENT_TYPE: "application/json"}
            answer = podman.api.post("/containers/create", data=json.dumps(spec), headers=kind)
            answer.raise_for_status()
            return str(answer.json()["Id"])

    def pull(self, image: str, credentials: str = "", *, plain: bool = False) -> None:
        try:
            failure = self._pull(image, credentials, plain)
            if not failure:
                with contextlib.suppress(OSError), self._pulled.open("a") as file:  # a full disk
                    file.write(f"{image}\n")
        except PodmanRefused as error:
            failure = str(error)
        except RunnerDown:
            self.check()  # if Podman answers this, the registry was too slow
            failure = "it took too long"
        if failure:
            raise PullFailed(cause_of(failure), failure[:2000])

    def _pull(self, image: str, credentials: str, plain: bool) -> str:
        """Pull an image; why it failed, if it did. The service reports a failure inside a successful answer."""
        with self._connected(PULL_SECONDS) as podman:
            # podman-py's `pull` loses the reason for a failure. It also makes the service report its progress, and
            # every line of that would extend the deadline.
            params = {"reference": image, "quiet": True, **({"tlsVerify": False} if plain else {})}
            answer = podman.api.post("/images/pull", params=params, headers=_login(credentials))
            answer.raise_for_status()
            if podman.images.exists(image):
                return ""
            failures = [json.loads(line).get("error") for line in answer.text.splitlines()]
            return next(filter(None, failures), "Podman gives no reason")

    def has_image(self, image: str) -> bool:
        with self._connected(QUICK_SECONDS) as podman:
            return bool(podman.images.exists(image))

    def load_image(self, path: Path) -> None:
        with self._connected(PULL_SECONDS) as podman, path.open("rb") as archive:
            list(podman.images.load(data=archive))  # `file_path` would read the whole archive into memory

    def remove_image(self, image: str) -> bool:
        try:
            with self._connected(SLOW_SECONDS) as podman:
                podman.images.remove(image)
        except PodmanRefused as error:
            return error.status == 404
        return True

    def build_group(self, name: str) -> BuildGroup:
        if self._info.get("host", {}).get("cgroupManager") == "systemd":
            return BuildGroup(f"{name}.slice", systemd=True)
        return BuildGroup(f"{self._group}/{name}", systemd=False)

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
        # Our own service may end with the worker, but then the program `podman` can steer the containers. With a
        # permanent service there may be no program `podman`, for example in the worker's own image.
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
            ours = [each for each in found if each.labels.get(STATE_LABEL, self._state) == self._state]
            return [(each.id, each.labels.get(ATTEMPT_LABEL, "")) for each in ours]

    def remove_images(self) -> list[str]:
        removed = []
        for image in sorted(set(self._pulled.read_text().split())) if self._pulled.exists() else ():
            # Podman refuses to remove an image that another container uses, or that is gone.
            with contextlib.suppress(PodmanRefused), self._connected(SLOW_SECONDS) as podman:
                podman.images.remove(image)
                removed.append(image)
        self._pulled.unlink(missing_ok=True)
        return removed

    def log(self, launch: Launch) -> Log:
        return K8sLog(launch.folder / OUTPUT)

    def close(self) -> None:
        """Disconnect, and end our own service. Running containers do not need it."""
        self._service.close()

    def _steer(self, container: str, verb: str, seconds: float, *words: str) -> None:
        """Call a method of podman-py's container object, without the extra request that its `get` would make."""
        with self._connected(seconds) as podman:
            getattr(podman.containers.prepare_model({"Id": container}), verb)(*words)


def _login(credentials: str) -> dict[str, str]:
    """The header with which Podman's service logs in to a registry, for `USER:PASSWORD`."""
    user, _, password = credentials.partition(":")
    login = json.dumps({"username": user, "password": password}).encode()
    return {"X-Registry-Auth": base64.urlsafe_b64encode(login).decode()} if credentials else {}
