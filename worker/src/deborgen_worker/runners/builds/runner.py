"""Jobs that build images: implements `protocol.Runner` with the supervisor, which runs a `builder` for each."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from deborgen_shared.jobfile.images import check_image, registry_of, tagged
from deborgen_shared.jobfile.model import Build
from deborgen_shared.registries import is_allowed
from deborgen_shared.states import RunAs
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.folders import BLANK, OUTPUT, open_folder
from deborgen_worker.logs import Log, RawLog
from deborgen_worker.runners.builds import builder, containerfile, leftovers
from deborgen_worker.runners.containers import archives
from deborgen_worker.runners.containers.engine import Engine
from deborgen_worker.runners.containers.images import ImageStore, builds_of_images
from deborgen_worker.runners.containers.pulling import pull
from deborgen_worker.runners.exits import exit_of
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, Report, RunnerDown
from deborgen_worker.runners.supervision import Message, Supervision, supervised_limit
from deborgen_worker.steps import Adopted, AttemptEvent, Exited

PLAN, CREDENTIALS = "build.json", "auth.json"
#: A Containerfile has at most this many bytes.
MOST_BYTES = 1 << 20
CPU_PERIOD = 100_000


class BuildRunner:
    """Builds run beside each other, each under the limits of its job."""

    name = RunAs.BUILD.value

    def __init__(
        self,
        supervision: Supervision,
        report: Report,
        engine: Engine,
        images: ImageStore,
        *,
        state: Path,
        registries: frozenset[str],
        memory: Path | None = None,
    ) -> None:
        self._supervision, self._report, self._engine, self._images = supervision, report, engine, images
        self._registries, self._memory, self._state = registries, memory, state
        #: The folders of the attempts that were started or adopted here and have not ended.
        self._watched: dict[str, Path] = {}
        self.check, self.close = supervision.check, supervision.close
        supervision.listen(self._handle_ends, self._handle_loss)

    # The promises of `protocol.Runner`

    def describe(self) -> Host:
        return Host(labels={RunAs.BUILD.label: True})

    def prepare(self, launch: Launch) -> None:
        """Pull the base images that are missing, from registries that the owner of this machine allows."""
        self._images.evict()
        build = _build_of(launch)
        try:
            text = read_containerfile(launch.workspace, build)
        except OSError:
            return  # the builder says so in the log
        for image in containerfile.base_images(text, build.args):
            if not check_image(image) and not self._engine.has_image(image):
                if launch.network == "none":
                    raise CannotStart(f"the base image {image} is not on this machine, and the job has network: none")
                pull(self._engine, image, self._registries)

    def start(self, launch: Launch) -> None:
        plan = self._plan(launch)
        (launch.folder / PLAN).write_text(json.dumps(plan))
        self._watched[launch.attempt] = launch.folder
        try:
            self._supervision.send(self._message(launch, plan["id"]))
        except RunnerDown:
            del self._watched[launch.attempt]
            raise

    def adopt(self, launch: Launch) -> Adopted:
        self._watched[launch.attempt] = launch.folder
        report = self._supervision.ask({"do": "adopt", "attempt": launch.attempt})
        if report["standing"] == "unknown":
            del self._watched[launch.attempt]
            begun = (launch.folder / OUTPUT).exists()
            return Adopted(launch.attempt, Standing.GONE if begun else Standing.NEVER_STARTED)
        frozen, stopped = report.get("frozen", False), report.get("stopped", 0.0)
        return Adopted(launch.attempt, Standing(report["standing"]), frozen, stopped)

    def signal(self, attempt: str, name: str) -> None:
        number = int(signal.Signals[f"SIG{name}"])
        self._supervision.send_quietly({"do": "signal", "attempt": attempt, "signal": number})

    def freeze(self, attempt: str) -> None:
        self.signal(attempt, "STOP")

    def thaw(self, attempt: str) -> None:
        self.signal(attempt, "CONT")

    def is_frozen(self, attempt: str) -> bool:
        return False  # a build saves no checkpoint

    def log(self, launch: Launch) -> Log:
        return RawLog(launch.folder / OUTPUT)

    def discard(self, attempt: str) -> None:
        self._supervision.send_quietly({"do": "discard", "attempt": attempt})
        folder = self._watched.pop(attempt, None)
        build = self.build_id(attempt)
        if build not in self._images.builds():
            leftovers.sweep(build)
        self._remove_credentials(attempt)
        if folder is not None:
            (folder / PLAN).unlink(missing_ok=True)

    def cleanup(self, keep: Collection[str]) -> list[str]:
        found = self._supervision.ask({"do": "list"})["list"]
        sweep_all(self._state, keep)
        gone = [attempt for attempt in found if attempt not in keep]
        self._supervision.send_quietly(*({"do": "discard", "attempt": attempt} for attempt in gone))
        return gone

    # Starting

    def build_id(self, attempt: str) -> str:
        return build_id(self._state, attempt)

    def _plan(self, launch: Launch) -> Message:
        build, name = _build_of(launch), self.build_id(launch.attempt)
        context = _folder_in(launch.workspace, (build.subdir or "").strip("/"))
        group = self._engine.build_group(leftovers.group_name(name, False))
        return {
            "id": name,
            "podman": shutil.which("podman") or "podman",
            "context": str(context),
            "containerfile": f"{context}/{build.containerfile}",
            "target": build.target,
            "args": dict(build.args),
            "platform": build.platform,
            "network": "none" if launch.network == "none" else "private",
            "parent": group.parent,
            "systemd": group.systemd,
            "pids": launch.pids,
            "limits": _limits(launch, self._engine.describe()),
            "temporary": str(launch.folder / "tmp"),
            "archive": str(launch.folder / archives.FILE),
            "push": self._push(launch, build),
        }

    def _push(self, launch: Launch, build: Build) -> Message | None:
        """Where the image is pushed; None if it goes to the pool's own store."""
        target = launch.push
        if target is None or not build.push:
            return None
        name = f"{target.place}/{tagged(build.tag)}"
        if not is_allowed(registry_of(name), self._registries):
            return {"refused": f"the owner of this machine does not allow the registry {registry_of(name)}"}
        return {"name": name, "plain": target.plain, "authfile": self._write_credentials(launch, registry_of(name))}

    def _write_credentials(self, launch: Launch, registry: str) -> str:
        """A file that Podman reads, in memory if there is such a place; empty without credentials."""
        if not launch.credentials:
            return ""
        path = self._credentials(launch.attempt, launch.folder)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        auth = {"auths": {registry: {"auth": base64.b64encode(launch.credentials.encode()).decode()}}}
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(auth, file)
        return str(path)

    def _credentials(self, attempt: str, folder: Path) -> Path:
        return (self._memory or folder) / f"{attempt.replace('/', '-')}-{CREDENTIALS}"

    def _remove_credentials(self, attempt: str) -> None:
        if self._memory is not None:
            self._credentials(attempt, self._memory).unlink(missing_ok=True)

    def _message(self, launch: Launch, build: str) -> Message:
        program = [sys.executable, "-I", "-S", builder.__file__]
        verbs = {"SIGKILL": "kill", "SIGSTOP": "freeze", "SIGCONT": "wake"}
        return {
            "do": "spawn",
            "attempt": launch.attempt,
            "lane": f"build {launch.attempt}",
            "argv": [*program, "run", str(launch.folder)],
            "env": {**launch.env_from_now(), **_podman_environment(), "DEBORGEN_ATTEMPT_ID": launch.attempt},
            "cwd": str(launch.folder),
            "output": f"{launch.folder}/{OUTPUT}",
            "blank": f"{launch.folder}/{BLANK}",
            "limits": {"RLIMIT_FSIZE": launch.disk} if launch.disk else {},
            "limit": launch.timeout_seconds,
            "timeout": supervised_limit(launch),
            "start_by": launch.start_by,
            "gives_way": launch.gives_way,
            "verbs": {name: [*program, verb, build] for name, verb in verbs.items()},
        }

    # Messages from the supervisor

    def _handle_ends(self, ends: list[Message]) -> None:
        events: list[AttemptEvent] = []
        for report in ends:
            folder = self._watched.pop(report["exit"], None)
            if folder is not None:
                self._remove_credentials(report["exit"])
                events.append(Exited(report["exit"], self._exit_of(report, folder)))
        if events:
            self._report(events)

    def _exit_of(self, report: Message, folder: Path) -> Exit:
        """How a build ended. If its image could not be kept, the machine is to blame."""
        exit_ = exit_of(report)
        made = builder.outcome_of(str(folder))
        if made.get("failure"):
            exit_ = replace(exit_, error=str(made["failure"]))
        elif exit_.code == 0 and "digest" in made:
            self._images.note(made["digest"], int(made["size"]), self.build_id(report["exit"]))
        elif exit_.code == 0:
            exit_ = replace(exit_, error="the build ended without an image")
        return exit_

    def _handle_loss(self) -> None:
        """The supervisor is gone, so nobody knows how its builds end. Its successor kills those that still run."""
        lost, self._watched = list(self._watched), {}
        self._supervision.check()
        for attempt in lost:
            leftovers.sweep(self.build_id(attempt))
        self._report([Exited(attempt, Exit(error="the supervisor of builds was killed")) for attempt in lost])


def mark_of(state: Path) -> str:
    """How the ids of all builds of a worker begin: another worker of this machine has another state directory."""
    return hashlib.sha256(os.fsencode(os.path.realpath(state))).hexdigest()[:10]


def build_id(state: Path, attempt: str) -> str:
    """A name for a build that no other build on this machine has, whatever worker it belongs to."""
    return f"{mark_of(state)}x{attempt.replace('.', 'x').replace('/', 'x')}"


def sweep_all(state: Path, keep: Collection[str] = ()) -> None:
    """End the builds of a worker, apart from those of these attempts, and remove what they have left. Finished images
    stay."""
    if not (state / "images").exists():  # this worker has never had an image of the pool
        return
    found = {*leftovers.working_containers(), *leftovers.builds_with_images()}
    kept = {build_id(state, attempt) for attempt in keep}  # only now: an attempt is added before its build starts
    for build in found - kept - builds_of_images(state / "images"):
        if build.startswith(mark_of(state)):
            leftovers.sweep(build)


def _build_of(launch: Launch) -> Build:
    if launch.build is None:
        raise CannotStart("the job builds no image")
    return launch.build


def _folder_in(workspace: Path, subdir: str) -> Path:
    """A folder in the workspace. A link in its path is refused."""
    try:
        os.close(open_folder(workspace, subdir))
    except OSError:
        raise CannotStart(f"there is no folder {subdir!r} to build in") from None
    return workspace / subdir


def read_containerfile(workspace: Path, build: Build) -> str:
    """The text of the Containerfile. A link in its path is an error."""
    parent, _, name = f"{build.subdir or ''}/{build.containerfile}".strip("/").rpartition("/")
    folder = open_folder(workspace, parent)
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    finally:
        os.close(folder)


def _limits(launch: Launch, host: Host) -> list[str]:
    """The limits of each RUN, as far as this machine can enforce them."""
    words = []
    if launch.memory and host.labels.get("limits.memory"):
        words += ["--memory", str(launch.memory), "--memory-swap", str(launch.memory)]
    if host.labels.get("limits.cpu"):
        words += ["--cpu-period", str(CPU_PERIOD), "--cpu-quota", str(max(1000, int(launch.cpus * CPU_PERIOD)))]
    return words


def _podman_environment() -> dict[str, str]:
    """What Podman needs of our own environment."""
    names = ("PATH", "HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
             "CONTAINERS_REGISTRIES_CONF", "DBUS_SESSION_BUS_ADDRESS", "DEBORGEN_PUSH_SECONDS")  # fmt: skip
    return {name: os.environ[name] for name in names if name in os.environ}
