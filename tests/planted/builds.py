"""Bugs around builds. A builder runs without site-packages, so the worker that starts it plants a bug for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from planted.bug import Planted
from planted.patch import Patch, nothing

RUNNER = "deborgen_worker.runners.builds.runner:BuildRunner"
BUILDS = "integration/worker/test_builds.py::test_fault_78"
REGISTRY = "integration/worker/test_registry.py::test_fault_79"


def builder_with(bug: str) -> Callable[[Any], Any]:
    """Start builders in which this line of Python is executed first."""
    lines = (
        "import sys",
        "from deborgen_worker.runners.builds import builder, leftovers, pushing",
        bug,
        "sys.exit(builder.Builder(sys.argv[1]).run())",
    )

    def change(original: Any) -> Any:
        def message(self: Any, launch: Any, build: str) -> Any:
            changed = [sys.executable, "-c", "\n".join(lines), str(launch.folder)]
            return original(self, launch, build) | {"argv": changed, "verbs": {}}

        return message

    return change


def adopt_nothing(original: Any) -> Any:
    from deborgen_worker.attempts import Standing
    from deborgen_worker.steps import Adopted

    return lambda self, launch: Adopted(launch.attempt, Standing.GONE)


PLANTED = [
    Planted(
        "nobody sweeps up after a build",
        (
            Patch("deborgen_worker.runners.builds.leftovers:sweep", nothing),
            Patch(f"{RUNNER}._message", builder_with("leftovers.sweep = lambda *given, **named: None")),
        ),
        (
            f"{BUILDS}_a_canceled_build_leaves_nothing",
            f"{BUILDS}_a_build_that_runs_out_of_time_leaves_nothing",
            f"{BUILDS}_a_build_whose_podman_is_killed_leaves_nothing",
            f"{BUILDS}_a_build_whose_worker_and_supervisor_are_killed_leaves_nothing",
        ),
        "nothing of the build to be left",
        300,
    ),
    Planted(
        "a new session does not take up builds",
        (Patch(f"{RUNNER}.adopt", adopt_nothing),),
        (f"{BUILDS}_a_build_goes_on_when_its_worker_is_killed",),
        "the build to be adopted",
        300,
    ),
    Planted(
        "a push is tried once",
        (Patch(f"{RUNNER}._message", builder_with("pushing.PUSH_SECONDS = 0.0")),),
        (f"{REGISTRY}_an_image_waits_for_its_registry_and_is_not_built_again",),
        "the first push to fail",
        300,
    ),
    Planted(
        "an image that cannot be pushed is thrown away",
        (
            Patch(
                f"{RUNNER}._message",
                builder_with("builder.Builder.pack = lambda *given: sys.exit('it cannot be pushed')"),
            ),
        ),
        (f"{REGISTRY}_the_pool_keeps_an_image_whose_registry_stays_away",),
        seconds=300,
    ),
]
