"""A container as Podman's service takes it: everything that isolates a job is in this one pure function."""

from __future__ import annotations

import resource
from typing import Any

from deborgen_worker.folders import IN_CONTAINER, OUTPUT
from deborgen_worker.runners.protocol import Launch

WORKER_LABEL = "deborgen.worker"
ATTEMPT_LABEL = "deborgen.attempt"
CPU_PERIOD = 100_000
OPEN_FILES = 20_000
PROCESSES = 4_096


def container_name(worker: str, attempt: str) -> str:
    return f"deborgen-{worker}-{attempt.replace('/', '-')}"


def container_spec(worker: str, launch: Launch, *, swap: bool = True, relabel: bool = False) -> dict[str, Any]:
    """No capability, no new privileges, the default seccomp filter, a read-only root, limits on everything."""
    memory = {"limit": launch.memory} if launch.memory else {}
    if memory and swap:
        memory["swap"] = launch.memory  # memory and swap together: so no swap
    spec: dict[str, Any] = {
        "name": container_name(worker, launch.attempt),
        "image": launch.image,
        "command": list(launch.argv),
        "env": dict(launch.env),
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
        "stop_timeout": 0,  # of a removal, which does not send TERM first; podman-py's cannot say so itself
        "log_configuration": {"driver": "k8s-file", "path": str(launch.folder / OUTPUT)},
        "mounts": [
            {
                "destination": "/tmp",  # noqa: S108 - in the container
                "type": "tmpfs",
                "source": "tmpfs",
                "options": [f"size={launch.tmp_size}", "mode=1777", "nosuid", "nodev"],
            },
            {
                "destination": IN_CONTAINER,
                "type": "bind",
                "source": str(launch.workspace),
                # With SELinux the workspace gets a label that this container alone may touch.
                "options": ["rbind", "rw", "nosuid", "nodev"] + (["Z"] if relabel else []),
            },
        ],
        "resource_limits": {
            "memory": memory,
            "cpu": {"period": CPU_PERIOD, "quota": max(1000, int(launch.cpus * CPU_PERIOD))},
            "pids": {"limit": launch.pids},
        },
        "r_limits": _rlimits(launch),
        "devices": [{"path": gpu} for gpu in launch.gpus],
    }
    if launch.network == "none":
        spec["netns"] = {"nsmode": "none"}
    return spec


def _rlimits(launch: Launch) -> list[dict[str, Any]]:
    """Named ones replace Podman's defaults altogether, so those are given again; never above what this host allows."""

    def most(which: int, wanted: int) -> int:
        hard = resource.getrlimit(which)[1]
        return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)

    limits = {
        "nofile": most(resource.RLIMIT_NOFILE, OPEN_FILES),
        "nproc": most(resource.RLIMIT_NPROC, max(PROCESSES, launch.pids)),
        "core": 0,
    }
    if launch.disk:
        limits["fsize"] = most(resource.RLIMIT_FSIZE, launch.disk)
    return [{"type": name, "hard": value, "soft": value} for name, value in limits.items()]
