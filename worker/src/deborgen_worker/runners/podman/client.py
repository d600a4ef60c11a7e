"""podman-py with what it lacks: a deadline for every call, a client per thread, and two kinds of failure.

It is the only module that imports podman.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import requests
from podman import PodmanClient
from podman.errors import PodmanError

from deborgen_worker.runners.containers.engine import EngineError
from deborgen_worker.runners.protocol import RunnerDown

CONNECT = 5.0


class Refused(EngineError):
    """Podman understood and refused, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """Podman's service at an address, for any thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._local = threading.local()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[Any]:
        """podman-py's client, each of whose requests must be answered within this time.

        A service that cannot be reached, or does not answer in time, is `RunnerDown`; what it refuses is `Refused`.
        """
        try:
            if getattr(self._local, "client", None) is None:
                self._local.client = PodmanClient(base_url=self.url)
            # Its managers give no timeout with their requests: then that of the client holds. No other thread has it.
            self._local.client.api.timeout = (min(seconds, CONNECT), seconds)
            yield self._local.client
        except (PodmanError, OSError) as error:  # all of requests' errors are OSErrors, and so is podman-py's APIError
            answer = getattr(error, "response", None)
            if answer is not None:
                raise Refused(answer.status_code, str(getattr(error, "explanation", None) or error)[:500]) from None
            self._forget()
            slow = isinstance(error.__cause__ or error, requests.Timeout)
            raise RunnerDown(
                "Podman does not answer in time" if slow else "Podman's service cannot be reached"
            ) from None

    def ping(self) -> None:
        with self.within(CONNECT) as podman:
            if not podman.ping():
                raise RunnerDown("Podman's service is not well")

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._local.client.close()
        self._local.client = None
