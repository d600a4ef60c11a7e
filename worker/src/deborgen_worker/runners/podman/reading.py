"""Translates Podman's descriptions of a container and of its host into the runner's types. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from deborgen_shared.states import RunAs
from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState
from deborgen_worker.runners.podman.spec import ATTEMPT_LABEL
from deborgen_worker.runners.protocol import Host

NEVER = "0001-01-01"


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
        # If it was started before, it ran during a power cut: Podman then says `created`, with exit code 0.
        return ContainerState.LOST if began else ContainerState.CREATED
    if status == "removing":
        return ContainerState.LOST
    return ContainerState.PAUSED if status == "paused" else ContainerState.RUNNING


def moment(text: object) -> float:
    """A time in Podman's format, in any time zone; 0 if there is none."""
    if not text or str(text).startswith(NEVER):
        return 0.0
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(str(text)).timestamp()
    return 0.0


def host_from(info: Mapping[str, Any]) -> Host:
    """What this machine can run and limit, from the answer of Podman's `info`."""
    host = info.get("host", {})
    security, version = host.get("security", {}), host.get("cgroupVersion")
    rootless = bool(security.get("rootless"))
    found = Host(labels={RunAs.CONTAINER.label: True, RunAs.CONTAINER.first_label: True})
    found.labels["podman"] = str(info.get("version", {}).get("Version", ""))
    found.labels["podman.rootless"] = rootless
    have = set(host.get("cgroupControllers") or [])
    for controller, words in (("memory", "memory"), ("cpu", "processors"), ("pids", "processes")):
        enforced = controller in have and not (rootless and version == "v1")
        found.labels[f"limits.{controller}"] = enforced
        if not enforced:
            why = f"{'rootless' if rootless else 'root'}, cgroups {version}"
            found.warnings.append(f"this host cannot limit the {words} of a container ({why})")
    found.labels["limits.disk"] = False
    if not security.get("seccompEnabled", True):
        found.labels["limits.seccomp"] = False
        found.warnings.append("this host has no seccomp: containers may make any system call")
    return found
