"""Removes everything that a build which did not succeed has left. This module uses only the standard library."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Any

from deborgen_worker.runners.builds import cgroups, containerfile

#: Every image that a build makes, in between and at the end, has this label with the build's id.
LABEL = "deborgen.build"
COMMAND_SECONDS = 60.0


def group_name(build: str, systemd: bool) -> str:
    """The name of the control group of a build."""
    return f"deborgen-{build}" + (".slice" if systemd else "")


def sweep(build: str, podman: str = "podman", *, images: bool = True) -> None:
    """Kill the processes of a build, and remove its working containers, its group and, unless it succeeded, its
    images."""
    names = [group_name(build, systemd) for systemd in (False, True)]
    for name in names:
        cgroups.kill(name)
    for container in working_containers(podman).get(build, ()):
        run(podman, "rm", "--force", container)
    if images:
        remove_images(build, podman)
    for name in names:
        cgroups.remove(name)


def remove_images(build: str, podman: str = "podman") -> None:
    """Remove the images with a build's label. Layers that it found in the cache have another build's label."""
    for _ in range(2):  # an image cannot be removed before the images that were made from it
        found = images_of(build, podman)
        if not found:
            return
        run(podman, "rmi", "--force", *found)


def images_of(build: str, podman: str = "podman") -> list[str]:
    return run(podman, "images", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={build}").split()


def builds_with_images(podman: str = "podman") -> set[str]:
    """The builds whose images, or layers, are on this machine."""
    text = run(podman, "images", "--all", "--filter", f"label={LABEL}", "--format", "json")
    with contextlib.suppress(ValueError):
        return {str((each.get("Labels") or {}).get(LABEL, "")) for each in json.loads(text or "[]")}
    return set()


def remote_source_in(image: str, podman: str = "podman") -> str:
    """The first remote source that an image would make a build add, with ONBUILD; empty if there is none."""
    with contextlib.suppress(ValueError):
        for each in json.loads(run(podman, "image", "inspect", image) or "[]"):
            config = each.get("Config") or {}
            triggers = config.get("OnBuild") or config.get("Onbuild") or []
            if source := containerfile.remote_source("\n".join(triggers)):
                return source
    return ""


def working_containers(podman: str = "podman") -> dict[str, list[str]]:
    """The containers in which builds work, by build. Only builds of deborgen are listed."""
    found: dict[str, list[str]] = {}
    root = run(podman, "info", "--format", "{{.Store.GraphRoot}} {{.Store.GraphDriverName}}").split()
    if len(root) != 2:
        return found
    folder = f"{root[0]}/{root[1]}-containers"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            parent = _group_of(f"{folder}/{name}/userdata/buildah.json")
            group = parent.rpartition("/")[2].removesuffix(".slice")
            if group.startswith("deborgen-"):
                found.setdefault(group.removeprefix("deborgen-"), []).append(name)
    return found


def _group_of(path: str) -> str:
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123
        read: Any = json.load(file)
        options = read.get("CommonBuildOpts") or {}
        return str(options.get("CgroupParent") or "")
    return ""


def run(podman: str, *words: str) -> str:
    """What a command of Podman prints; empty if it fails or takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [podman, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS,
            check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""
    return ""
