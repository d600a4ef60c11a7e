"""podman-py, with a deadline for every call, and with its errors turned into ours.

This is the only module that imports podman.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import requests
from podman import PodmanClient
from podman.errors import PodmanError

from deborgen_worker.runners.containers.engine import EngineError
from deborgen_worker.runners.protocol import RunnerDown

CONNECT_SECONDS = 5.0
#: A program that steers a container without the worker. Its arguments are the service's address, the verb, and the id.
STEER = (
    "import podman, sys\n"
    "container = podman.PodmanClient(base_url=sys.argv[1], timeout=60).containers.get(sys.argv[3])\n"
    "getattr(container, sys.argv[2])()"
)


class PodmanRefused(EngineError):
    """Podman understood the request and refused it, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def connected(url: str, seconds: float) -> Iterator[Any]:
    """podman-py's client. Each of its requests must be answered within this many seconds.

    Raises `RunnerDown` if the service cannot be reached or does not answer in time, and `PodmanRefused` if it refuses.
    """
    try:
        with PodmanClient(base_url=url) as client:
            # podman-py's managers set no timeout for their requests, so the client's own applies. It may be a pair.
            client.api.timeout = (min(seconds, CONNECT_SECONDS), seconds)  # type: ignore[assignment]
            yield client
    except (PodmanError, OSError) as error:  # all of requests' errors are OSErrors, and so is podman-py's APIError
        answer = getattr(error, "response", None)
        if answer is not None:
            raise PodmanRefused(answer.status_code, str(getattr(error, "explanation", None) or error)[:500]) from None
        slow = isinstance(error.__cause__ or error, requests.Timeout)
        raise RunnerDown("Podman does not answer in time" if slow else "Podman's service cannot be reached") from None


def ping(url: str) -> None:
    with connected(url, CONNECT_SECONDS) as podman:
        if not podman.ping():
            raise RunnerDown("Podman's service is unhealthy")
