"""The specification of a container for Podman's service. All isolation of a job is in one pure function."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from deborgen_worker.folders import IN_CONTAINER, OUTPUT, OWN, OWN_IN_CONTAINER
from deborgen_worker.runners.protocol import Launch

WORKER_LABEL = "deborgen.worker"
ATTEMPT_LABEL = "deborgen.attempt"
#: The state directory of the worker: a worker of another pool may have the same name.
STATE_LABEL = "deborgen.state"
CPU_PERIOD = 100_000
OPEN_FILES = 20_000
PROCESSES = 4_096
#: The weight of a container beside others.
LOWEST_SHARES, DEFAULT_SHARES = 2, 1024


def container_name(worker: str, attempt: str) -> str:
    return f"deborgen-{worker}-{attempt.replace('/', '-')}"


def container_spec(
    worker: str, launch: Launch, *, swap: bool = True, relabel: bool = False, group: str = ""
) -> dict[str, Any]:
    """No capability, no new privileges, the default seccomp filter, a read-only root, limits on everything.

    `group` is the group of all containers that give way; if it is empty, Podman chooses one.
    """
    memory = {"limit": launch.memory} if launch.memory else {}
    if memory and swap:
        memory["swap"] = launch.memory  # the limit of memory and swap together, so there is no swap
    spec: dict[str, Any] = {
        "name": container_name(worker, launch.attempt),
        "image": launch.image_id or launch.image,
        "command": list(launch.argv),
        "env": launch.env_from_now(),
        "labels": {WORKER_LABEL: worker, ATTEMPT_LABEL: launch.attempt},
        "work_dir": IN_CONTAINER,
        "entrypoint": [],
        "cap_drop": ["all"],
        "no_new_privileges": True,
        "read_only_filesystem": True,
        "privileged": False,
        "init": True,
        "httpproxy": False,
        "image_volume_mode": "ignore",
        "stop_timeout": 0,  # so that a removal sends no TERM first; podman-py's `remove` cannot ask for that
        "log_configuration": {"driver": "k8s-file", "path": str(launch.folder / OUTPUT)},
        "mounts": [
            {
                "destination": "/tmp",  # noqa: S108 - in the container
                "type": "tmpfs",
                "source": "tmpfs",
                "options": [f"size={launch.tmp_size}", "mode=1777", "nosuid", "nodev"],
            },
            _own_folder(IN_CONTAINER, launch.workspace, relabel) if launch.shared is None else _shared_folder(launch),
            _own_folder(OWN_IN_CONTAINER, launch.workspace / OWN, relabel),
        ],
        "resource_limits": {
            "memory": memory,
            "cpu": {
                "period": CPU_PERIOD,
                "quota": max(1000, int(launch.cpus * CPU_PERIOD)),
                "shares": LOWEST_SHARES if launch.gives_way else DEFAULT_SHARES,
            },
            "pids": {"limit": launch.pids},
        },
        "r_limits": _rlimits(launch),
        "devices": [{"path": gpu} for gpu in launch.gpus],
    }
    if group and launch.gives_way:
        spec["cgroup_parent"] = group
    if launch.network == "none":
        spec["netns"] = {"nsmode": "none"}
    return spec


def _own_folder(destination: str, folder: Path, relabel: bool) -> dict[str, Any]:
    """A folder of the attempt. With SELinux, it is labelled so that only this container may touch it."""
    options = ["rbind", "rw", "nosuid", "nodev"] + (["Z"] if relabel else [])
    return {"destination": destination, "type": "bind", "source": str(folder), "options": options}


def _shared_folder(launch: Launch) -> dict[str, Any]:
    """The shared folder instead of the workspace, without what is mounted inside it: that might stay writable."""
    options = ["bind", "rw" if launch.shared_write else "ro", "nosuid", "nodev"]
    return {"destination": IN_CONTAINER, "type": "bind", "source": str(launch.shared), "options": options}


def _rlimits(launch: Launch) -> list[dict[str, Any]]:
    """Limits per process. They replace Podman's defaults, so the defaults are repeated here, within the host's
    limits."""

    def at_most(which: int, wanted: int) -> int:
        hard = resource.getrlimit(which)[1]
        return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)

    limits = {
        "nofile": at_most(resource.RLIMIT_NOFILE, OPEN_FILES),
        "nproc": at_most(resource.RLIMIT_NPROC, max(PROCESSES, launch.pids)),
        "core": 0,
    }
    if launch.disk:
        limits["fsize"] = at_most(resource.RLIMIT_FSIZE, launch.disk)
    return [{"type": name, "hard": value, "soft": value} for name, value in limits.items()]
