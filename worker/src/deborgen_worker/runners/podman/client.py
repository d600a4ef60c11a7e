"""podman-py with what it lacks: a deadline for every call, and two kinds of failure.

It is the only module that imports podman.
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

CONNECT = 5.0
#: A program that steers a container without the worker. Its arguments are the service's address, the verb, and the id.
STEER = (
    "import podman, sys\n"
    "container = podman.PodmanClient(base_url=sys.argv[1], timeout=60).containers.get(sys.argv[3])\n"
    "getattr(container, sys.argv[2])()"
)


class Refused(EngineError):
    """Podman understood and refused, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def connected(url: str, seconds: float) -> Iterator[Any]:
    """podman-py's client, each of whose requests must be answered within this time.

    A service that cannot be reached, or does not answer in time, is `RunnerDown`; what it refuses is `Refused`.
    """
    try:
        with PodmanClient(base_url=url) as client:
            # Its managers give no timeout with their requests: then that of the client holds, which may be a pair.
            client.api.timeout = (min(seconds, CONNECT), seconds)  # type: ignore[assignment]
            yield client
    except (PodmanError, OSError) as error:  # all of requests' errors are OSErrors, and so is podman-py's APIError
        answer = getattr(error, "response", None)
        if answer is not None:
            raise Refused(answer.status_code, str(getattr(error, "explanation", None) or error)[:500]) from None
        slow = isinstance(error.__cause__ or error, requests.Timeout)
        raise RunnerDown("Podman does not answer in time" if slow else "Podman's service cannot be reached") from None


def ping(url: str) -> None:
    with connected(url, CONNECT) as podman:
        if not podman.ping():
            raise RunnerDown("Podman's service is not well")
