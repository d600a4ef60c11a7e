"""Jobs in containers, by Podman: isolated as `spec.py` says, watched by the kernel, judged by state and not by code."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from deborgen_shared.jobfile.units import format_size
from deborgen_shared.states import RunAs
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.logs import K8sLog, Log
from deborgen_worker.runners.podman.engine import Engine, EngineError
from deborgen_worker.runners.podman.service import Service
from deborgen_worker.runners.podman.spec import (
    ATTEMPT_LABEL,
    BACKSTOP_SECONDS,
    WORKER_LABEL,
    container_name,
    container_spec,
)
from deborgen_worker.runners.podman.watch import Usage, Watch, cgroups_of, usage_of
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, RunnerDown, Tell
from deborgen_worker.settings import Settings
from deborgen_worker.steps import Adopted, Exited

NEVER = "0001-01-01"
#: After the program is gone, how long Podman may take to know its exit code.
KNOW_SECONDS = 15.0
POLL_SECONDS = 0.5
REMOVE_TRIES = 4
ENDED = frozenset({"exited", "stopped"})


@dataclass
class Container:
    """One that this session started or adopted."""

    id: str
    launch: Launch
    started: float = 0.0
    groups: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    usage: Usage = field(default_factory=Usage)
    killed: bool = False
    over: bool = False


class PodmanRunner:
    """The promise of `protocol.Runner`, kept with containers."""

    name = "podman"

    def __init__(self, settings: Settings, state: Path, tell: Tell) -> None:
        self._worker, self._tell = settings.name, tell
        self._service = Service(settings.podman_socket, state)
        self._engine = Engine(self._service.url)
        self._info = self._look()
        self._containers: dict[str, Container] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(8, "podman")
        self._watch = Watch(self._gone)

    def _look(self) -> dict[str, Any]:
        try:
            return self._engine.info()
        except EngineError as error:
            raise CannotStart(str(error)) from None

    # What it is

    def check(self) -> str:
        try:
            if self._service.own:
                self._service.ensure()
            else:
                self._engine.ping()
        except RunnerDown as error:
            return str(error)
        except EngineError as error:
            return str(error)
        return ""

    def describe(self) -> Host:
        host = self._info.get("host", {})
        rootless = bool(host.get("security", {}).get("rootless"))
        old = host.get("cgroupVersion") == "v1"
        found = Host(labels={RunAs.CONTAINER.label: True, RunAs.CONTAINER.first_label: True})
        found.labels["podman"] = str(self._info.get("version", {}).get("Version", ""))
        found.labels["podman.rootless"] = rootless
        have = set(host.get("cgroupControllers") or [])
        for controller, words in (("memory", "memory"), ("cpu", "processors"), ("pids", "processes")):
            enforced = controller in have and not (rootless and old)
            found.labels[f"limits.{controller}"] = enforced
            if not enforced:
                why = f"{'rootless' if rootless else 'root'}, cgroups {host.get('cgroupVersion')}"
                found.warnings.append(f"this host cannot limit the {words} of a container ({why})")
        found.labels["limits.disk"] = False
        if not host.get("security", {}).get("seccompEnabled", True):
            found.labels["limits.seccomp"] = False
            found.warnings.append("this host has no seccomp: containers may make any system call")
        return found

    # Running

    def prepare(self, launch: Launch) -> None:
        with self._lock:
            if launch.attempt in self._containers:
                return
        try:
            self._create(launch)
        except EngineError as error:
            raise CannotStart(f"the container cannot be made: {error}") from None

    def _create(self, launch: Launch) -> None:
        selinux = bool(self._info.get("host", {}).get("security", {}).get("selinuxEnabled"))
        spec = container_spec(self._worker, launch, relabel=selinux)
        try:
            container = self._engine.create(spec)
        except EngineError as error:
            if error.status == 404 or "no such image" in str(error).lower() or "image not known" in str(error).lower():
                self._pull(launch.image)
            elif error.status == 409 or "already in use" in str(error):
                self._remove_unstarted(launch)
            elif "swap" in str(error).lower():
                spec = container_spec(self._worker, launch, swap=False, relabel=selinux)
            else:
                raise
            container = self._engine.create(spec)
        with self._lock:
            self._containers[launch.attempt] = Container(container, launch)

    def _pull(self, image: str) -> None:
        try:
            self._engine.pull(image)
        except EngineError as error:
            raise CannotStart(f"the image {image} cannot be had: {error}") from None

    def _remove_unstarted(self, launch: Launch) -> None:
        """A container of our name that an interrupted start left. One that was started is never started again."""
        found = self._engine.inspect(container_name(self._worker, launch.attempt))
        if found is not None:
            if not found["State"].get("StartedAt", NEVER).startswith(NEVER):
                raise CannotStart("it was started before")
            self._engine.remove(found["Id"])

    def start(self, launch: Launch) -> None:
        self.prepare(launch)
        container = self._containers[launch.attempt]
        container.started = time.monotonic()
        try:
            self._engine.start(container.id)
        except EngineError as error:
            self._cannot_start(container, str(error))
            return
        self._follow(container)

    def _cannot_start(self, container: Container, message: str) -> None:
        """What is the program's own fault ends like a shell would end it; the rest is the machine's."""
        with contextlib.suppress(CannotStart, EngineError):
            self._engine.remove(container.id)
        with self._lock:
            self._containers.pop(container.launch.attempt, None)
        lower = message.lower()
        program = container.launch.argv[0]
        if "executable file" in lower or f'exec: "{program.lower()}": ' in lower or f"`{program.lower()}`" in lower:
            code = 126 if "permission denied" in lower else 127
            reason = f"cannot execute {program!r}: {message}"[:500]
            self._tell([Exited(container.launch.attempt, Exit(code=code, reason=reason, seconds=0.0))])
            return
        raise CannotStart(f"the container cannot be started: {message}")

    def _follow(self, container: Container) -> None:
        """Watch a container that was started. One that is over already is ended at once."""
        try:
            state = (self._engine.inspect(container.id) or {}).get("State", {})
        except (RunnerDown, EngineError):
            return self._ask(container)  # it runs: what is known of it can wait
        pid, conmon = int(state.get("Pid") or 0), int(state.get("ConmonPid") or 0)
        if container.id in str(state.get("CgroupPath")):
            path = str(state["CgroupPath"])
            old = Path("/sys/fs/cgroup/memory").is_dir()
            container.groups = {"memory": path, "cpuacct": path} if old else {"": path}
        if pid and container.id in (found := cgroups_of(pid)).get("memory", found.get("", "")):
            container.groups = found
        container.pid = pid
        if state.get("Status") in ENDED:
            container.usage = usage_of(container.groups)
            self._later(container, self._find_end)
        elif not self._watch.add(container.launch.attempt, pid, conmon):
            self._ask(container)
        return None

    def _guarded(self, work: Callable[[Container], None], container: Container) -> None:
        """In a thread of the runner's: whatever goes wrong there, the attempt ends."""
        try:
            work(container)
        except Exception as error:
            self._ended(container, Exit(error=f"a fault in the worker: {type(error).__name__}: {error}"))

    def _later(self, container: Container, work: Callable[[Container], None]) -> None:
        self._pool.submit(self._guarded, work, container)

    def _ask(self, container: Container) -> None:
        """In a thread of its own, because it may last as long as the container does."""
        threading.Thread(target=self._guarded, args=(self._ask_until_over, container), daemon=True).start()

    def _gone(self, attempt: str, conmon: bool) -> None:
        """A watched process is gone. Its cgroup is still there for a moment: now is the time to read it."""
        container = self._containers.get(attempt)
        if container is None or container.over:
            return
        container.usage = usage_of(container.groups)
        if conmon and psutil.pid_exists(container.pid):
            with contextlib.suppress(OSError):
                os.kill(container.pid, signal.SIGKILL)
            exit_ = Exit(error="its monitor (conmon) was killed: nobody knows how it would have ended")
            self._later(container, lambda each: self._ended(each, exit_))
        elif not conmon:
            self._later(container, self._find_end)

    def _ask_until_over(self, container: Container) -> None:
        """Where the processes cannot be seen, or were gone before they could be: ask Podman now and then."""
        pause = 0.002
        while not container.over:
            with contextlib.suppress(RunnerDown, EngineError):
                found = self._engine.inspect(container.id)
                if found is None or found["State"]["Status"] in ENDED:
                    return self._find_end(container)
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS)
        return None

    def _find_end(self, container: Container) -> None:
        """The program is gone: learn from Podman how it ended. Its state must say so; a code alone proves nothing."""
        end = time.monotonic() + KNOW_SECONDS
        pause = 0.002
        while time.monotonic() < end:
            try:
                found = self._engine.inspect(container.id)
            except EngineError as error:
                if error.status < 500:
                    return self._ended(container, Exit(error=f"Podman does not say how it ended: {error}"))
                time.sleep(POLL_SECONDS)
                continue
            except RunnerDown:
                end = time.monotonic() + KNOW_SECONDS  # it will be back, and so will the answer
                time.sleep(POLL_SECONDS)
                continue
            if found is None:
                return self._ended(container, Exit(error="its container was removed by somebody"))
            state = found["State"]
            if state["Status"] in ENDED and not str(state.get("FinishedAt", NEVER)).startswith(NEVER):
                return self._ended(container, self._judge(container, found))
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        return self._ended(container, Exit(error="its program is gone, and Podman does not know how it ended"))

    def _judge(self, container: Container, found: dict[str, Any]) -> Exit:
        state = found["State"]
        code = int(state.get("ExitCode", -1))
        seconds = max(0.0, time.monotonic() - container.started) if container.started else None
        began, finished = _moment(state.get("StartedAt")), _moment(state.get("FinishedAt"))
        if began and finished and finished >= began:  # it may have ended long before it was asked about
            seconds = finished - began
        limit = container.launch.timeout_seconds
        timed_out = code in {-1, 255} and seconds is not None and seconds >= limit + BACKSTOP_SECONDS - 1
        image = str(found.get("ImageDigest") or found.get("Image") or "")
        oom = code != 0 and not container.killed and self._out_of_memory(container, state, code)
        reason = ""
        if oom:
            reason = f"the program wanted more memory than the {format_size(container.launch.memory)} that the job has"
        elif code == 137 and not container.killed:
            reason = "killed by SIGKILL"
        return Exit(
            code=code if code >= 0 else None,
            error=str(state.get("Error") or "") if code != 0 else "",
            timed_out=timed_out,
            out_of_memory=oom,
            reason=reason,
            seconds=seconds,
            cpu_seconds=container.usage.cpu_seconds,
            peak_memory=container.usage.peak_memory,
            image=f"{container.launch.image}@{image}" if image else container.launch.image,
        )

    def _out_of_memory(self, container: Container, state: dict[str, Any], code: int) -> bool:
        """Several signs together, because each of them is missing somewhere."""
        mark = self._service.folder / "oom"  # before Podman 5, conmon leaves it where the service was started
        found = bool(state.get("OOMKilled") or container.usage.oom_kills)
        if not found and code == 137:
            peak = container.usage.peak_memory
            if peak is not None:
                found = bool(container.launch.memory) and peak >= container.launch.memory * 0.99
            else:
                with contextlib.suppress(OSError):
                    age = time.time() - mark.stat().st_mtime
                    found = age <= time.monotonic() - container.started
        if found:
            mark.unlink(missing_ok=True)  # it has spoken for this container, and shall not for another
        return found

    def _ended(self, container: Container, exit_: Exit) -> None:
        with self._lock:
            if container.over:
                return
            container.over = True
        self._watch.drop(container.launch.attempt)
        self._tell([Exited(container.launch.attempt, exit_)])

    # Adopting, steering, removing

    def adopt(self, launch: Launch) -> Adopted:
        try:
            found = self._engine.inspect(container_name(self._worker, launch.attempt))
        except EngineError as error:
            raise RunnerDown(str(error)) from None
        if found is None:
            begun = (launch.folder / "output").exists()
            return Adopted(launch.attempt, Standing.GONE if begun else Standing.NEVER_STARTED)
        if found["Config"]["Labels"].get(ATTEMPT_LABEL) != launch.attempt:
            return Adopted(launch.attempt, Standing.GONE)
        state, status = found["State"], found["State"]["Status"]
        never = str(state.get("StartedAt", NEVER)).startswith(NEVER)
        container = Container(found["Id"], launch, started=time.monotonic() - _age(state))
        if status in {"created", "configured", "initialized"}:
            # With a start in its past it ran when the power went: Podman calls that `created`, exit code 0.
            if not never:
                return Adopted(launch.attempt, Standing.GONE)
            with contextlib.suppress(EngineError):  # if it stays, its start finds it and tries again
                self._engine.remove(container.id)
            return Adopted(launch.attempt, Standing.NEVER_STARTED)
        with self._lock:
            self._containers[launch.attempt] = container
        self._follow(container)
        standing = Standing.ENDED if status in ENDED else Standing.RUNNING
        return Adopted(launch.attempt, standing, frozen=status == "paused")

    def signal(self, attempt: str, name: str) -> None:
        container = self._containers.get(attempt)
        if container is None or container.over:
            return
        container.killed = True
        self._try(lambda: self._engine.kill(container.id, name))

    def freeze(self, attempt: str) -> None:
        container = self._containers.get(attempt)
        if container is not None and not container.over:
            self._try(lambda: self._engine.pause(container.id))

    def thaw(self, attempt: str) -> None:
        container = self._containers.get(attempt)
        if container is not None and not container.over:
            self._try(lambda: self._engine.unpause(container.id))

    @staticmethod
    def _try(call: Callable[[], None]) -> None:
        try:
            call()
        except EngineError as error:
            raise CannotStart(str(error)) from None

    def log(self, launch: Launch) -> Log:
        return K8sLog(launch.folder / "output")

    def discard(self, attempt: str) -> None:
        container = self._containers.get(attempt)
        if container is not None:
            container.over = True
            self._watch.drop(attempt)
        self._remove(container.id if container is not None else container_name(self._worker, attempt))
        with self._lock:  # not before: if it has to be tried again, its id is surer than its name
            self._containers.pop(attempt, None)

    def _remove(self, container: str) -> None:
        for left in range(REMOVE_TRIES, -1, -1):
            try:
                with contextlib.suppress(EngineError):
                    self._engine.kill(container, "KILL")
                return self._engine.remove(container)
            except EngineError as error:
                # One whose monitor was killed is only found to be over at the second try.
                if left == 0:
                    raise CannotStart(str(error)) from None
                time.sleep(0.3)
        return None

    def sweep(self, keep: Collection[str]) -> list[str]:
        gone = []
        try:
            found = self._engine.labelled(f"{WORKER_LABEL}={self._worker}")
        except EngineError as error:
            raise RunnerDown(str(error)) from None
        for each in found:
            attempt = (each.get("Labels") or {}).get(ATTEMPT_LABEL, "")
            if attempt not in keep:
                with contextlib.suppress(CannotStart):
                    self._remove(each["Id"])
                    gone.append(attempt or each["Id"][:12])
        return gone

    def close(self) -> None:
        """Our own service is not needed by what runs: the next session starts another."""
        self._service.close()


def _age(state: dict[str, Any]) -> float:
    """How long ago the container says it was started."""
    began = _moment(state.get("StartedAt"))
    return max(0.0, time.time() - began) if began else 0.0


def _moment(text: object) -> float:
    """A time as Podman writes it, in whatever zone its host has; 0 if there is none."""
    if not text or str(text).startswith(NEVER):
        return 0.0
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(str(text)).timestamp()
    return 0.0
