"""Which images a pool accepts, by their registries. In addition, each worker's owner has a list of their own."""

from __future__ import annotations

from collections.abc import Iterator

from deborgen_shared.jobfile.images import POOL, registry_of
from deborgen_shared.jobfile.model import JobFile, Step
from deborgen_shared.jobfile.problems import Problem, show
from deborgen_shared.jobfile.template import OPEN, text_of
from deborgen_shared.jobfile.values import image_with
from deborgen_shared.registries import LOCALHOST, is_allowed


def image_problems(jobfile: JobFile, allowed: frozenset[str]) -> list[Problem]:
    """A problem for each step whose image comes from a registry that the pool does not allow."""
    found = []
    for step in jobfile.steps:
        refused = next((each for each in _registries(step) if not is_allowed(each, allowed)), None)
        if refused is not None:
            place = f"the registry '{show(refused)}'" if refused else "the engine's own registries"
            message = f"images from {place} are not allowed in this pool"
            hint = f"allowed: {', '.join(sorted(allowed)) or 'none but images that are already on a machine'}"
            found.append(Problem((*step.path, "image"), message, hint))
    return found


def _registries(step: Step) -> Iterator[str]:
    """The registries that the step's image may name. An image that was made on the machine itself has none."""
    image = step.spec.image
    if image is None or image.startswith((POOL, "${{ steps.", "${{steps.")):  # it was built in this pool
        return
    looked_up = OPEN in image.partition("/")[0]
    for params in step.params() if looked_up else [{}]:
        values = {name: text_of(value) for name, value in params.items()}
        registry = registry_of(image_with(image, lambda name: values.get(name, "1")))  # noqa: B023
        if registry != LOCALHOST:
            yield registry
