"""Translates Podman's descriptions of a container and of its host into the runner's types. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from deborgen_shared.states import Cause, RunAs
from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState
from deborgen_worker.runners.podman.spec import ATTEMPT_LABEL
from deborgen_worker.runners.protocol import Host

NEVER = "0001-01-01"


#: Words in Podman's report of a failed pull. The first cause that fits counts.
PULL_FAILURES = {
    Cause.IMAGE: ("no space left", "permission denied", "input/output error", "quota exceeded", "no image found in"),
    Cause.IMAGE_UNKNOWN: ("manifest unknown", "name unknown", "not known to registry", "not found", "short-name"),
    Cause.IMAGE_REFUSED: ("unauthorized", "denied", "403 forbidden", "toomanyrequests", "too many requests"),
}


def cause_of(failure: str) -> Cause:
    """Why an image could not be pulled, from Podman's report. A registry that fails in another way is not reachable."""
    words = failure.lower()
    fitting = (cause for cause, signs in PULL_FAILURES.items() if any(sign in words for sign in signs))
    return next(fitting, Cause.REGISTRY_UNREACHABLE)


def container_info(found: Mapping[str, Any]) -> ContainerInfo:
    """A container, from the answer of Podman's `inspect`."""
    state = found["State"]
    began, finished = moment(state.get("StartedAt")), moment(state.get("FinishedAt"))
    return ContainerInfo(
        id=found["Id"],
        attempt=(found["Config"].get("Labels") or {}).get(ATTEMPT_LABEL, ""),
        state=_state(state["Status"], began, finished),
        pid=int(state.get("Pid") or 0),
        monitor=int(state.get("ConmonPid") or 0),
        cgroup=str(state.get("CgroupPath") or ""),
        code=int(state.get("ExitCode", -1)),
        error=str(state.get("Error") or ""),
        oom_killed=bool(state.get("OOMKilled")),
        started_at=began,
        finished_at=finished,
        image=str(found.get("ImageDigest") or found.get("Image") or ""),
    )


def _state(status: str, began: float, finished: float) -> ContainerState:
    if status in {"exited", "stopped"}:
        return ContainerState.ENDED if finished else ContainerState.LOST
    if status in {"created", "configured", "initialized"}:
        # If a power cut ends a running container, Podman afterwards says `created`, with exit code 0.
        return ContainerState.LOST if began else ContainerState.CREATED
    if status == "removing":
        return ContainerState.LOST
    return ContainerState.PAUSED if status == "paused" else ContainerState.RUNNING


def moment(text: object) -> float:
    """The wall-clock time that a text of Podman gives, in any time zone; 0 if it gives none."""
    if not text or str(text).startswith(NEVER):
        return 0.0
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(str(text)).timestamp()
    return 0.0


def host_from(info: Mapping[str, Any], *, lowest_weight: bool = True) -> Host:
    """What this machine can run and limit, from the answer of Podman's `info`.

    `lowest_weight` says whether all containers of jobs together have the lowest weight.
    """
    host = info.get("host", {})
    security, version = host.get("security", {}), host.get("cgroupVersion")
    rootless = bool(security.get("rootless"))
    found = Host(labels={RunAs.CONTAINER.label: True, RunAs.CONTAINER.old_label: True})
    found.labels["podman"] = str(info.get("version", {}).get("Version", ""))
    found.labels["podman.rootless"] = rootless
    have = set(host.get("cgroupControllers") or [])
    for controller, words in (("memory", "memory"), ("cpu", "processors"), ("pids", "processes")):
        enforced = controller in have and not (rootless and version == "v1")
        found.labels[f"limits.{controller}"] = enforced
        if not enforced:
            why = f"{'rootless' if rootless else 'root'}, cgroups {version}"
            found.warnings.append(f"this host cannot limit the {words} of a container ({why})")
    if not (lowest_weight and found.labels["limits.cpu"]):
        found.warnings.append(
            "this host cannot give containers the lowest weight, so jobs give way to your programs only by their "
            "priority; use a Podman with cgroups version 2 and systemd, or run the worker as root"
        )
    if not security.get("seccompEnabled", True):
        found.labels["limits.seccomp"] = False
        found.warnings.append("this host has no seccomp: containers may make any system call")
    return found
