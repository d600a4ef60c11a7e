"""Images that are pushed to a registry: Debian's, with a login, and away in the middle."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.runners.builds import leftovers
from deborgen_worker.runners.builds.runner import mark_of
from support.coordinator import CoordinatorProcess
from support.docker_registry import DockerRegistry
from support.podman import CONF, IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, pytest.mark.root]

LOGIN = "robot:correct-horse"


@contextmanager
def pool_with(registry: DockerRegistry, podman: Podman, folder: Path, **env: str) -> Iterator[Pool]:
    """A pool with this registry, and a worker that builds. Nothing of its images is left behind."""
    place = f"http://{registry.address}/pool"
    coordinator = CoordinatorProcess(
        folder, lease_seconds=20, heartbeat_seconds=0.5, registry=place, registry_secret="REGISTRY"
    )
    os.environ["CONTAINERS_CONF"] = str(CONF)
    with Pool(coordinator) as pool:
        worker = pool.add_worker(
            "box", runner="podman", podman_socket=str(podman.socket), builds="true", registries=registry.address,
            priority="normal",
            env={"CONTAINERS_CONF": str(CONF), **env},
        )  # fmt: skip
        try:
            yield pool
        finally:
            worker.stop()
            for build in leftovers.builds_with_images():
                if build.startswith(mark_of(worker.state)):
                    leftovers.sweep(build)
            podman.remove_all(worker.name)


def build(pool: Pool, tag: str = "solver:1", **body: Any) -> int:
    data = f"FROM {IMAGE}\nRUN echo {tag} > /made\n".encode()
    digest = hashlib.sha256(data).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{digest}", data=data).status_code == 201
    file = {"path": "Containerfile", "sha256": digest, "size": len(data)}
    return pool.submit(build={"tag": tag}, files=[file], network="none", **body)


def forget(podman: Podman, digest: str) -> None:
    """Remove an image, as on a machine that never had it."""

    def gone() -> bool:
        podman("rmi", digest[7:], check=False)
        return digest not in podman("images", "--all", "--quiet", "--no-trunc")

    wait_until(gone, what="the image to be gone")


def built_once(pool: Pool, run: int) -> bool:
    return pool.log(run).count(b"STEP 1/") == 1 and pool.job(run)["attempts"] == 1


def share(pool: Pool, value: str) -> None:
    answer = pool.admin.put("/v1/secrets/REGISTRY", json={"value": value, "shared": True})
    assert answer.status_code == 200, answer.text


def test_an_image_is_pushed_and_pulled_with_the_pools_credentials(podman: Podman, tmp_path: Path) -> None:
    with DockerRegistry(tmp_path / "r", LOGIN).start() as registry, pool_with(registry, podman, tmp_path) as pool:
        share(pool, LOGIN)
        result = pool.until(run := build(pool))["result"]
        assert result["image_url"].startswith(f"{registry.address}/pool/solver:1@sha256:"), pool.log(run)
        assert b"correct-horse" not in pool.log(run)
        forget(podman, result["digest"])
        use = pool.until(pool.submit(run="cat /made", image="pool/solver:1"))
        assert (use["state"], pool.log(use["run"])) == ("succeeded", b"solver:1\n"), use["reason"]

        share(pool, "robot:wrong-horse")
        job = pool.until(run := build(pool, "other:1"))
        assert job["state"] == "succeeded", "an image is not lost because of its registry"
        assert job["result"]["image_url"] is None
        assert "does not accept the pool's credentials" in job["warnings"][0]
        forget(podman, job["result"]["digest"])
        assert pool.until(pool.submit(run="cat /made", image="pool/other:1"))["state"] == "succeeded"
        forget(podman, result["digest"])
        refused = pool.until(pool.submit(run="cat /made", image="pool/solver:1"))
        assert refused["history"][-1]["outcome"] == "error"
        assert "the registry refused it" in refused["reason"]


def test_fault_79_an_image_waits_for_its_registry_and_is_not_built_again(podman: Podman, tmp_path: Path) -> None:
    """Seen to fail when a push is tried once."""
    with DockerRegistry(tmp_path / "r") as registry, pool_with(registry, podman, tmp_path) as pool:
        run = build(pool, max_attempts=3, retry={"backoff": "0s"})
        wait_until(lambda: b"the push is tried again" in pool.log(run), 150, "the first push to fail")
        registry.start()
        job = pool.until(run)
        assert job["state"] == "succeeded", job["reason"]
        assert job["result"]["image_url"].startswith(registry.address)
        assert built_once(pool, run)

        registry.stop()
        forget(podman, job["result"]["digest"])
        use = pool.submit(run="cat /made", image="pool/solver:1", max_attempts=100, retry={"backoff": "1s"})
        wait_until(lambda: any(each["outcome"] == "error" for each in pool.job(use)["history"]),
                   150, "an attempt to fail while the registry is away")  # fmt: skip
        registry.start()
        assert pool.until(use, seconds=180)["state"] == "succeeded"
        assert built_once(pool, run)


def test_fault_79_the_pool_keeps_an_image_whose_registry_stays_away(podman: Podman, tmp_path: Path) -> None:
    """Seen to fail when an image that cannot be pushed is thrown away."""
    away = {"DEBORGEN_PUSH_SECONDS": "1"}
    with DockerRegistry(tmp_path / "r") as registry, pool_with(registry, podman, tmp_path, **away) as pool:
        job = pool.until(run := build(pool, max_attempts=3, retry={"backoff": "0s"}))
        assert job["state"] == "succeeded", job["reason"]
        assert job["warnings"] == [
            "the image was not pushed: the registry cannot be reached; the pool keeps it in its own store"
        ]
        assert built_once(pool, run)
        forget(podman, job["result"]["digest"])
        assert pool.until(pool.submit(run="cat /made", image="pool/solver:1"))["state"] == "succeeded"
