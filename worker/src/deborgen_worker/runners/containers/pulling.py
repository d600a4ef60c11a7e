"""Pull images, but only from registries that the owner of this machine allows.

A submitter chooses the name of an image, and with it the address that this machine would contact. So the reason of a
failure is told in our own words, never in those of whatever answered there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from deborgen_shared.jobfile.images import check_image, registry_of
from deborgen_shared.registries import LOCALHOST, is_allowed, is_public
from deborgen_shared.states import Cause
from deborgen_worker.runners.containers.engine import Engine, PullFailed
from deborgen_worker.runners.protocol import Unavailable

#: The addresses of a host. Raises an OSError if it has none.
Lookup = Callable[[str], list[str]]

WORDS = {
    Cause.IMAGE_UNKNOWN: "the registry does not know it",
    Cause.IMAGE_REFUSED: "the registry refused it",
    Cause.REGISTRY_UNREACHABLE: "its registry is not reachable",
    Cause.IMAGE_NOT_ALLOWED: "images from its registry are not allowed on this machine",
    Cause.IMAGE: "this machine cannot store it, or it is not made for this kind of machine",
}


def look_up(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def pull(
    engine: Engine,
    image: str,
    allowed: frozenset[str],
    lookup: Lookup = look_up,
    *,
    credentials: str = "",
    plain: bool = False,
) -> None:
    """Pull an image. Raises `Unavailable` with the cause."""
    registry = registry_of(image)
    if check_image(image):
        raise _unavailable(image, Cause.IMAGE_UNKNOWN, "that is not the name of an image")
    if registry == LOCALHOST and registry not in allowed:
        raise _unavailable(image, Cause.IMAGE_UNKNOWN, "it is not on this machine, and names no registry")
    if not is_allowed(registry, allowed):
        raise _unavailable(image, Cause.IMAGE_NOT_ALLOWED)
    if registry and registry not in allowed:
        try:
            addresses = lookup(registry.partition(":")[0])
        except (OSError, UnicodeError):
            raise _unavailable(image, Cause.REGISTRY_UNREACHABLE) from None
        if not all(map(is_public, addresses)):
            raise _unavailable(image, Cause.IMAGE_NOT_ALLOWED)
    try:
        engine.pull(without_tag(image), credentials, plain=plain)
    except PullFailed as failed:
        raise _unavailable(image, failed.cause, detail=str(failed)) from None


def without_tag(image: str) -> str:
    """The name of an image without its tag, if it has a digest too: no engine takes both."""
    name, at, digest = image.partition("@")
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}{at}{digest}" if at else image


def _unavailable(image: str, cause: Cause, words: str = "", detail: str = "") -> Unavailable:
    return Unavailable(cause, f"the image {image} could not be pulled: {words or WORDS[cause]}", detail)
